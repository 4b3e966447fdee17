from hypothesis import given
from hypothesis import strategies as st

from pipeline.domain.speech import SpeakerSpan, Word
from pipeline.speakers.handover import voices_of


def words(text: str, start: float, step: float = 0.3, pause: float = 0.0) -> list[Word]:
    """Return words of `step` seconds; `|` is a pause."""
    result, at = [], start
    for token in text.split():
        if token == "|":
            at += pause
        else:
            result.append(Word(at, at + step, token, 0.9))
            at += step
    return result


def spoken(text: str, edge: float, pause: float = 0.0, end: float = 60.0) -> str:
    """Return the words with a slash at the change of voice, for two spans that meet at `edge`."""
    spoken = words(text, 0.0, pause=pause)
    voices = voices_of(spoken, (SpeakerSpan(0, edge, "A"), SpeakerSpan(edge, end, "B")))
    parts = [spoken[0].text]
    for word, before, voice in zip(spoken[1:], voices, voices[1:], strict=False):
        parts += ["/", word.text] if before != voice else [word.text]
    return " ".join(parts)


def test_a_change_moves_to_the_end_of_the_sentence() -> None:
    assert spoken("I was there. Neither did I. Okay then.", 1.3) == "I was there. / Neither did I. Okay then."
    assert spoken("They were gone. So I don't hear that.", 1.4) == "They were gone. / So I don't hear that."


def test_a_change_moves_to_the_pause_where_nothing_is_punctuated() -> None:
    assert spoken("well that is it | now who are you", 1.0, pause=0.5) == "well that is it / now who are you"


def test_a_change_stays_where_spans_are_far_from_any_sentence() -> None:
    assert spoken("one two three four five six seven eight nine ten.", 1.5).count("/") == 1


def test_a_short_answer_between_two_sentences_keeps_its_voice() -> None:
    spoken = [*words("So that is it.", 0.0), *words("Yeah.", 1.7), *words("And then we go.", 2.5)]
    spans = (SpeakerSpan(0, 1.5, "A"), SpeakerSpan(1.5, 2.3, "B"), SpeakerSpan(2.3, 5, "A"))
    assert voices_of(spoken, spans) == [*"AAAA", "B", *"AAAA"]


def test_a_word_inside_a_sentence_is_not_torn_from_it_by_a_short_span() -> None:
    spoken = words("we went to the house by the river", 0.0)
    spans = (SpeakerSpan(0, 1.2, "A"), SpeakerSpan(1.2, 1.5, "B"), SpeakerSpan(1.5, 5, "A"))
    assert set(voices_of(spoken, spans)) == {"A"}


def test_without_spans_and_with_one_voice() -> None:
    spoken = words("one two", 0.0)
    assert voices_of(spoken, ()) == ["A", "A"]
    assert voices_of(spoken, (SpeakerSpan(5, 6, "C"),)) == ["C", "C"]
    assert voices_of([], (SpeakerSpan(0, 1, "A"), SpeakerSpan(1, 2, "B"))) == []


SPANS = st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 5), st.sampled_from("ABC")), min_size=1, max_size=12)
STARTS = st.lists(st.floats(0, 60), max_size=30)


@given(STARTS, SPANS)
def test_every_word_gets_a_voice_of_the_spans(starts: list[float], pieces: list[tuple[float, float, str]]) -> None:
    spoken = [Word(start, start + 0.2, "word", 0.9) for start in sorted(starts)]
    spans = [SpeakerSpan(start, start + length, voice) for start, length, voice in pieces]
    voices = voices_of(spoken, spans)
    assert len(voices) == len(spoken) and set(voices) <= {span.speaker for span in spans}


TOO_EARLY = """
en | Monday. And || what time would you like?
en | Okay. So || the appointment is booked.
en | Thank you. I || have scheduled your visit.
de | Am Montag. Und || um wie viel Uhr?
de | Danke. Also || der Termin steht.
es | El lunes. Y || a qué hora le viene bien?
es | Gracias. Entonces || queda apuntado.
fr | Lundi. Et || à quelle heure?
fr | Merci. Alors || c'est noté.
pt | Segunda. E || a que horas?
pt | Obrigado. Então || está marcado.
"""
IN_TIME = """
en | Monday. And || What time would you like?
en | My card. Yes, || which one is it?
en | My card. Yes. || which one is it?
en | I lost my card yesterday || what do I do
de | Am Montag. Ja. || um wie viel Uhr?
es | El lunes. Sí, || a qué hora?
fr | Lundi. Oui, || à quelle heure?
pt | Segunda. Sim. || a que horas?
"""


def after_pause(line: str) -> tuple[str, str]:
    """Return the voices of the word before a pause of 3 s and of the one after it; B speaks after it only."""
    before, after = line.split(" | ")[1].split("||")
    spoken = [*words(before, 0.0), *words(after, 3.0 + 0.3 * len(before.split()))]
    count = len(before.split())
    voices = voices_of(spoken, (SpeakerSpan(0, 0.3 * count, "A"), SpeakerSpan(spoken[count].start, 60, "B")))
    return voices[count - 1], voices[count]


def test_a_first_word_that_a_pause_separates_from_its_sentence_has_the_voice_of_the_sentence(subtests) -> None:
    for line in TOO_EARLY.strip().splitlines():
        with subtests.test(line):
            assert after_pause(line) == ("B", "B")


def test_a_word_before_a_pause_that_is_a_sentence_or_ends_one_keeps_its_voice(subtests) -> None:
    for line in IN_TIME.strip().splitlines():
        with subtests.test(line):
            assert after_pause(line) == ("A", "B")
