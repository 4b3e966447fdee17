from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis.rules.sentiment.change_point import change_point
from pipeline.analysis.rules.sentiment.lexicon import MAX_WEIGHT, score_turn
from pipeline.analysis.rules.sentiment.sentiment import SentimentStep
from pipeline.analysis.talk import read
from pipeline.domain.insight import Material
from pipeline.domain.speech import Layout, LayoutKind, Prosody, Role, Slices
from pipeline.language.pack import available, pack
from tests.support.calls_by_hand import call


def tone_of(material: Material):
    return SentimentStep().run(material).value


def weight(text: str, language: str = "en", speaker: str = "customer") -> float:
    (spoken,) = read(call((speaker, text), language=language))
    return score_turn(spoken).weight


PLEASED = {
    "en": "Oh, that's wonderful, thank you so much!",
    "es": "¡Ay, qué alegría, muchísimas gracias!",
    "de": "Das ist ja wunderbar, herzlichen Dank!",
    "fr": "C'est formidable, merci infiniment !",
}
DISPLEASED = {
    "en": "This is unacceptable, nobody called me back.",
    "es": "Esto es inaceptable, nadie me ha llamado.",
    "de": "Das ist eine Frechheit, niemand hat sich gemeldet.",
    "fr": "C'est inadmissible, personne ne m'a rappelé.",
}
NEITHER = {
    "en": "I'm afraid he is out, unfortunately. Thank you for calling, good morning.",
    "es": "Lamentablemente no está. Gracias por llamar, buenos días.",
    "de": "Er ist leider nicht da. Danke für Ihren Anruf, guten Tag.",
    "fr": "Il n'est malheureusement pas là. Merci de votre appel.",
}


@pytest.mark.parametrize("language", ["en", "es", "de", "fr"])
def test_pleasure_displeasure_and_formulas_are_told_apart(language: str) -> None:
    assert weight(PLEASED[language], language) >= 1
    assert weight(DISPLEASED[language], language) <= -1
    assert abs(weight(NEITHER[language], language)) <= 0.2


@pytest.mark.parametrize(
    ("plain", "turned"),
    [
        ("I am happy with it.", "I am not happy with it."),
        ("Das ist wunderbar.", "Das ist nicht wunderbar."),
        ("Estoy contenta.", "No estoy contenta."),
        ("Je suis déçu.", "Je ne suis pas déçu."),
    ],
)
def test_a_negation_turns_a_word_round(plain: str, turned: str) -> None:
    language = {"I": "en", "D": "de", "E": "es", "J": "fr"}[plain[0]]
    assert weight(plain, language) * weight(turned, language) < 0


def test_an_intensifier_and_an_exclamation_strengthen_what_is_there() -> None:
    assert weight("I am very disappointed.") < weight("I am disappointed.") < 0
    assert weight("I am disappointed!") < weight("I am disappointed.")
    assert weight("On Tuesday at five!") == 0


def test_trouble_is_a_rep_s_work_and_not_their_mood() -> None:
    assert weight("The pipe is broken and leaking.", speaker="rep") == 0
    assert weight("The pipe is broken and leaking.") < 0


@given(st.text(max_size=200), st.sampled_from(["en", "es", "de", "fr"]))
def test_no_text_weighs_more_than_the_most(text: str, language: str) -> None:
    material = call(("customer", text or "x"), language=language)
    assert all(abs(score_turn(spoken).weight) <= MAX_WEIGHT for spoken in read(material))


def test_all_packs_have_the_same_lists() -> None:
    keys = [set(pack(language).data["tone"]) for language in available()]
    assert all(pack_keys == keys[0] for pack_keys in keys)


QUIET = [
    ("rep", "Good morning, this is the workshop."),
    ("customer", "Hello, it is about my car on Tuesday."),
    ("rep", "Yes, it is the blue one with the new tyres."),
    ("customer", "That is the one, number forty seven."),
    ("rep", "It is on the lift at the moment."),
    ("customer", "And when can I come to collect it?"),
    ("rep", "Any time between four and six o'clock."),
    ("customer", "Then I come at five past four."),
    ("rep", "Bring the papers with you then, please."),
    ("customer", "They are in the car, under the seat."),
    ("rep", "Then that is all that there is to do."),
    ("customer", "Right, until this afternoon then, at five past four."),
    ("rep", "Until this afternoon then, at the front desk."),
]


def sounding(material: Material, *, loud: tuple[int, ...] = (), mono: bool = False) -> Material:
    """Return the call with a prosody of 120 Hz and -30 dB and small variations; turns in `loud` are 5 semitones and 10
    dB up.
    """
    length = round(material.transcript.duration * 2)
    rows: dict[int, list[tuple[int, float, float, float, float]]] = {0: [], 1: []}
    for turn in material.transcript.turns:
        lift = 1.0 if turn.index in loud else 0.0
        stir = (turn.index % 3 - 1) * 0.4
        for at in range(length):
            if turn.start <= (at + 0.5) * 0.5 <= turn.end:
                channel = 0 if mono or turn.speaker == "rep" else 1
                pitch = 120 * 2 ** ((5 * lift + stir) / 12)
                rows[channel].append((at, pitch, 2.0 + 2 * lift, -30 + 10 * lift + stir, 0.8))
    channels = tuple(Slices(*zip(*rows[at], strict=True)) if rows[at] else Slices() for at in (0, 1))
    return replace(material, prosody=Prosody(0.5, channels[:1] if mono else channels))


def test_the_voice_is_judged_against_the_speaker_s_own() -> None:
    value = tone_of(replace(sounding(call(*QUIET), loud=(7,)), tone_by_voice="everybody"))
    turns = {turn["turn"]: turn for turn in value["turns"]}
    assert turns[7]["voice"] == "raised"
    assert turns[7]["arousal"] > 1
    assert {turn["voice"] for index, turn in turns.items() if index != 7} == {"even"}
    assert value["parties"]["customer"]["raised_turns"] == [7]
    assert value["parties"]["rep"]["raised_turns"] == []


def test_of_a_rep_only_words_count_whatever_their_voice_does() -> None:
    """Article 5(1)(f) of the AI Act: emotions of employees are not inferred from their voices."""
    lines = [*QUIET[:6], ("rep", "I am disappointed about this, to be honest."), *QUIET[7:]]
    even, loud = (SentimentStep().run(sounding(call(*lines), loud=turns)) for turns in ((), (0, 6)))
    assert even == loud
    rep_turns = [turn for turn in loud.value["turns"] if turn["speaker"] == "rep"]
    assert all(turn["basis"] == ["words"] and "voice" not in turn and "arousal" not in turn for turn in rep_turns)
    assert loud.value["parties"]["rep"]["basis"] == ["words"]
    assert loud.note == "based on all words and the voice of customer"


@pytest.mark.parametrize(
    ("whose", "judged", "note"),
    [
        ("nobody", set(), "based on the words only (no voice is judged)"),
        ("customers", {"customer"}, "based on all words and the voice of customer"),
        ("everybody", {"rep", "customer"}, "based on all words and the voice of rep and customer"),
    ],
)
def test_whose_voice_counts_is_a_setting_and_the_record_says_whose_did(whose: str, judged: set[str], note: str) -> None:
    finding = SentimentStep().run(replace(sounding(call(*QUIET)), tone_by_voice=whose))
    assert {turn["speaker"] for turn in finding.value["turns"] if "voice" in turn["basis"]} == judged
    assert finding.note == note


@pytest.mark.parametrize(("role", "sure"), [(Role.UNKNOWN, 0.95), (Role.CUSTOMER, 0.8)])
def test_in_a_mixed_recording_nobodys_voice_counts_who_is_not_surely_a_customer(role: Role, sure: float) -> None:
    mixed = Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand")
    material = call(*QUIET)
    speakers = tuple(
        replace(speaker, role=role, role_confidence=sure) if speaker.label == "customer" else speaker
        for speaker in material.transcript.speakers
    )
    transcript = replace(material.transcript, layout=mixed, speakers=speakers)
    finding = SentimentStep().run(sounding(replace(material, transcript=transcript), loud=(7,), mono=True))
    assert all("voice" not in turn for turn in finding.value["turns"])
    assert finding.note == "based on the words only (no confirmed customer, and no other voice is judged)"


def test_a_raised_voice_alone_is_neither_pleased_nor_displeased() -> None:
    even, loud = (tone_of(sounding(call(*QUIET), loud=turns))["turns"][7] for turns in ((), (7,)))
    assert (even["label"], loud["label"]) == ("neutral", "neutral")
    assert abs(loud["score"]) <= 1.5 * abs(even["score"]) + 0.001


@pytest.mark.parametrize(("text", "label"), [("I am disappointed about this, to be honest.", "negative")])
def test_a_raised_voice_makes_words_weigh_more(text: str, label: str) -> None:
    lines = [*QUIET[:7], ("customer", text), *QUIET[8:]]
    even, loud = (tone_of(sounding(call(*lines), loud=turns))["turns"][7] for turns in ((), (7,)))
    assert loud["score"] < even["score"] < 0
    assert loud["label"] == label
    assert loud["basis"] == ["words", "voice"]


def test_a_loud_line_is_no_loud_voice() -> None:
    """A whole channel 10 dB up, and half an octave, is another telephone or person, not another mood."""
    material = replace(sounding(call(*QUIET), loud=(7,)), tone_by_voice="everybody")
    assert material.prosody is not None
    channel = material.prosody.channels[1]
    louder = replace(
        channel,
        level=tuple(level + 10 for level in channel.level),
        pitch=tuple(pitch and pitch * 1.5 for pitch in channel.pitch),
    )
    other = replace(material, prosody=Prosody(0.5, (material.prosody.channels[0], louder)))
    before, after = tone_of(material)["turns"], tone_of(other)["turns"]
    assert [turn["arousal"] for turn in before] == pytest.approx([turn["arousal"] for turn in after], abs=1e-6)


def test_a_mixed_recording_gives_each_speaker_their_turns() -> None:
    mixed = Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand")
    material = call(*QUIET)
    material = replace(material, transcript=replace(material.transcript, layout=mixed))
    value = tone_of(sounding(material, loud=(7,), mono=True))
    assert value["parties"]["customer"]["raised_turns"] == [7]
    assert value["parties"]["rep"]["raised_turns"] == []


def test_a_short_call_has_no_baseline_and_says_so() -> None:
    finding = SentimentStep().run(sounding(call(*QUIET[:6]), loud=(3,)))
    assert all("voice" not in turn for turn in finding.value["turns"])
    assert finding.note == "based on the words only (no voice baseline yet)"
    assert finding.value["overall"]["basis"] == ["words"]


def test_too_few_words_are_not_called_neutral() -> None:
    assert tone_of(call(("rep", "Hello?"), ("customer", "Yes.")))["parties"] == {"rep": None, "customer": None}
    value = tone_of(call(("rep", "Hello?"), ("customer", "This is unacceptable!")))
    assert value["parties"]["customer"]["label"] == "negative"


ANGRY = ("customer", "This is unacceptable, nobody called me back.")
GLAD = ("customer", "That's wonderful, thank you so much.")
PLAIN = ("rep", "It is number forty seven, in the second street.")


def test_a_call_that_turns_round_has_its_turning_point_there() -> None:
    value = tone_of(call(PLAIN, ANGRY, PLAIN, ANGRY, PLAIN, ANGRY, PLAIN, GLAD, PLAIN, GLAD, PLAIN, GLAD))
    (point,) = value["turning_points"]
    assert {key: point[key] for key in ("turn", "speaker", "from", "to")} == {
        "turn": 7,
        "speaker": "customer",
        "from": "negative",
        "to": "positive",
    }
    assert point["evidence"]["quote"] == GLAD[1]
    assert value["trend"]["label"] == "improving"


@pytest.mark.parametrize("lines", [[PLAIN, ANGRY] * 5, [PLAIN, GLAD] * 5, QUIET, [PLAIN, ANGRY, PLAIN, GLAD]])
def test_a_call_that_does_not_turn_has_none(lines: list[tuple[str, str]]) -> None:
    assert tone_of(call(*lines))["turning_points"] == []


marks = st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]), max_size=30)


@given(marks)
def test_a_change_lies_inside_and_its_means_differ(given_marks: list[float]) -> None:
    change = change_point(given_marks)
    assert change is None or 2 <= change.at < len(given_marks)
    assert change is None or change.before != change.after


@given(st.integers(2, 12), st.integers(2, 12))
def test_a_step_is_found_where_it_is(before: int, after: int) -> None:
    change = change_point([-1.5] * before + [1.5] * after)
    assert change is not None
    assert (change.at, change.before, change.after) == (before, -1.5, 1.5)


ASKED = {
    "en": "Is there anything else I can help you with?", "de": "Kann ich sonst noch etwas für Sie tun?",
    "es": "¿Le puedo ayudar en algo más?", "fr": "Avez-vous besoin d'autre chose ?",
    "pt": "Posso ajudar em mais alguma coisa?",
}  # fmt: skip
DECLINED = """
en | No, that was going to be it.
en | no that'll be it thank you
en | No, I'm good.
en | No, not today.
de | Nein, das war's.
de | Nein danke.
es | No, eso es todo.
es | No, con eso es suficiente.
fr | Non, c'est tout.
fr | Non, ça ira.
pt | Não, era só isso.
pt | Não, obrigado.
"""
UPSET = """
en | No, this is ridiculous.
de | Nein, das ist eine Frechheit.
de | Nein, ich bin sehr unzufrieden.
es | No, estoy muy enfadado con ustedes.
fr | Non, c'est inadmissible.
pt | Não, isso é um absurdo.
"""


def test_declining_more_help_is_neutral_and_anger_is_not(subtests) -> None:
    for lines, label in ((DECLINED, "neutral"), (UPSET, "negative")):
        for line in lines.strip().splitlines():
            with subtests.test(line):
                language, text = line.split(" | ")
                value = tone_of(call(("rep", ASKED[language]), ("customer", text), language=language))
                assert value["turns"][1]["label"] == label


def test_a_bare_answer_to_a_question_is_neutral() -> None:
    asked = ("rep", "And what is the destination account?")
    assert tone_of(call(asked, ("customer", "To my savings account.")))["turns"][1]["label"] == "neutral"
    assert tone_of(call(asked, ("customer", "This is unacceptable.")))["turns"][1]["label"] == "negative"
