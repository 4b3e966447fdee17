from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis import statistics
from pipeline.domain.insight import MemberVoiceprint, Roster
from pipeline.domain.speech import (
    AudioAnalysis,
    Chunk,
    ChunkText,
    Diarization,
    Doubt,
    Label,
    LabelKind,
    LanguageStretch,
    Layout,
    LayoutKind,
    Recognized,
    Role,
    Span,
    SpeakerSpan,
    Turn,
    Voiceprint,
    Word,
)
from pipeline.language.pack import pack
from pipeline.speakers import attribute, name_evidence, roles, seconds, turns
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.turns import SpokenWord
from pipeline.speakers.voiceprint import match, similarity
from tests.fixture_checkpoints import CALIBRATIONS

CALIBRATED = RoleOptions(calibration=CALIBRATIONS)
MEASURED = CALIBRATED.calibration_of("m")


def layout(kind):
    return Layout(kind, 2 if kind.separated else 1, 2, 1.0, {}, "test")


TALKED = ((Span(0, 10),),)


def heard(kind, speech=TALKED):
    return AudioAnalysis(layout(kind), 12.0, speech, ())


def text(channel, words, code="en"):
    """Return a chunk with `words` as (start, end, text)."""
    spoken = tuple(Word(start, end, word, 0.9) for start, end, word in words)
    return ChunkText(Chunk(channel, 0.0, 12.0), code, 0.9, spoken, -0.3, 0.01)


def recognized(texts, *doubts, languages=()):
    return Recognized(tuple(texts), "engine", doubts, languages)


def turn(speaker, sentence, code="en", index=0):
    words = tuple(Word(i * 0.3, i * 0.3 + 0.2, w, 0.9) for i, w in enumerate(sentence.split()))
    return Turn(index, speaker, 0.0, 1.0, words, code)


def unit(*values, model="m", seconds=10.0):
    vector = np.array(values) / np.linalg.norm(values)
    return Voiceprint(tuple(vector.tolist()), model, seconds)


def member(user_id, voiceprint):
    return MemberVoiceprint(user_id, voiceprint)


# turns


def test_words_of_two_channels_become_turns_in_the_order_of_time():
    texts = [text(0, [(0, 1, "Hello,"), (1, 2, "you?"), (5, 6, "Fine.")]), text(1, [(2.5, 3, "Good."), (3, 4, "You?")])]
    joined = turns.join(turns.by_channel(texts, ["rep", "customer"]))
    assert [(t.index, t.speaker, t.text) for t in joined] == [
        (0, "rep", "Hello, you?"),
        (1, "customer", "Good. You?"),
        (2, "rep", "Fine."),
    ]
    assert (joined[1].start, joined[1].end) == (2.5, 4)


def test_a_long_pause_begins_a_new_turn_of_the_same_speaker():
    words = [(0, 1, "one"), (2.9, 3.5, "two"), (6, 6.5, "three")]
    joined = turns.join(turns.by_channel([text(0, words)], ["rep"]))
    assert [t.text for t in joined] == ["one two", "three"]


def test_a_word_thrown_in_over_another_word_does_not_cut_the_running_turn():
    texts = [text(0, [(0, 1, "I"), (1, 2, "will"), (2, 3, "send")]), text(1, [(1.2, 1.6, "Yes.")])]
    joined = turns.join(turns.by_channel(texts, ["rep", "customer"]))
    assert [(t.speaker, t.text) for t in joined] == [("rep", "I will send"), ("customer", "Yes.")]


def test_a_word_of_a_mixed_recording_goes_to_the_voice_whose_span_it_lies_in_or_near():
    spans = (SpeakerSpan(0, 2, "A"), SpeakerSpan(2, 4, "B"))
    spoken = turns.by_spans([text(0, [(0.5, 1.8, "First."), (2.2, 3, "Other."), (4.5, 5, "after")])], spans)
    assert [s.speaker for s in spoken] == ["A", "B", "B"]


def test_without_any_span_all_words_are_one_speakers():
    assert {s.speaker for s in turns.by_spans([text(0, [(0, 1, "a"), (5, 6, "b")])], ())} == {"A"}


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 2), st.sampled_from(["rep", "customer"])), max_size=40))
def test_no_word_is_lost_or_doubled_and_turns_are_in_order(drawn):
    spoken = [SpokenWord(Word(a, a + d, f"w{i}", 1.0), who, "en") for i, (a, d, who) in enumerate(drawn)]
    joined = turns.join(spoken)
    assert sorted(w.text for t in joined for w in t.words) == sorted(s.word.text for s in spoken)
    assert [t.index for t in joined] == list(range(len(joined)))
    assert [t.start for t in joined] == sorted(t.start for t in joined)
    for t in joined:
        assert t.end == max(w.end for w in t.words) and t.words


# roles


@pytest.mark.parametrize("prefix", ["01", "02", "03", "04", "05", "06", "07", "08"])
def test_the_words_of_a_sample_call_tell_the_rep_whoever_is_called_a(prefix, sample_call):
    expected = sample_call(prefix).expected
    for names in ({"rep": "A", "customer": "B"}, {"rep": "B", "customer": "A"}):
        spoken = [
            turn(names[s["speaker"]], s["text"], expected["language"], i) for i, s in enumerate(expected["segments"])
        ]
        assigned = {s.label: s for s in roles.assign(spoken, {}, Roster())}
        assert assigned[names["rep"]].role is Role.REP
        assert assigned[names["customer"]].role is Role.CUSTOMER
        assert 0.75 <= assigned[names["rep"]].role_confidence <= 1
        assert assigned[names["rep"]].role_reason.startswith("talk")


def test_french_words_tell_the_rep_too():
    spoken = [turn("A", "Bonjour, comment puis-je vous aider ?", "fr"), turn("B", "J'ai un problème.", "fr")]
    assert [s.role for s in roles.assign(spoken, {}, Roster())] == [Role.REP, Role.CUSTOMER]


def test_who_speaks_first_is_not_enough():
    spoken = [turn("A", "Hello."), turn("B", "Hello."), turn("A", "It rains."), turn("B", "Indeed.")]
    assert {s.role for s in roles.assign(spoken, {}, Roster())} == {Role.UNKNOWN}


def test_two_who_talk_alike_stay_unknown():
    spoken = [turn("A", "How can I help you?"), turn("B", "How can I help you?")]
    assert {s.role for s in roles.assign(spoken, {}, Roster())} == {Role.UNKNOWN}


def test_a_language_without_phrases_leaves_roles_unknown():
    assert roles.assign([turn("A", "How can I help you?", "fi")], {}, Roster())[0].role is Role.UNKNOWN


def test_a_known_voice_tells_the_rep_before_any_word_does():
    voices = {"A": unit(1, 0, 0), "B": unit(0, 1, 0)}
    roster = Roster(voiceprints=(member("u1", unit(0, 1, 0.1)),))
    spoken = [turn("A", "How can I help you?"), turn("B", "I have a problem.")]
    customer, rep = roles.assign(spoken, voices, roster, options=CALIBRATED)
    assert {s.role for s in roles.assign(spoken[1:], voices, roster)} == {
        Role.UNKNOWN
    }  # no calibration for the embedder
    assert (rep.role, rep.role_reason, rep.user_id) == (Role.REP, "voiceprint", "u1")
    assert customer.role is Role.CUSTOMER and customer.user_id is None


def test_the_senders_user_is_the_rep_once_the_rep_is_known():
    spoken = [turn("A", "How can I help you?"), turn("B", "I have a problem.")]
    assert [s.user_id for s in roles.assign(spoken, {}, Roster(), user_id="u7")] == ["u7", None]


@pytest.mark.parametrize("code", ["en", "es", "de", "fr"])
def test_phrase_lists_hold_every_kind(code):
    spoken = {kind for kind in roles.WEIGHTS if kind not in name_evidence.KINDS.values()}
    around_names = {"introduces", "introduced", "addresses", "titles"}
    lists = pack(code).data["roles"]
    assert set(lists) == {*spoken, *roles.HABITS, *around_names}
    assert all(lists.values())


# voices


def test_a_voice_is_recognised_by_threshold_and_margin():
    candidates = {"u1": [unit(1, 0)], "u2": [unit(0, 1)]}
    assert match(unit(1, 0.2), candidates, MEASURED).name == "u1"
    assert match(unit(1, 1), candidates, MEASURED) is None  # as like the one as the other
    assert match(unit(-1, -1), candidates, MEASURED) is None  # like neither
    assert match(unit(1, 0.2), candidates, MEASURED.model_copy(update={"threshold": 0.99})) is None


def test_without_candidates_or_voice_nobody_is_recognised():
    assert match(unit(1, 0), {}, MEASURED) is None
    assert match(None, {"u1": [unit(1, 0)]}, MEASURED) is None


def test_voiceprints_of_different_models_are_never_compared():
    assert similarity(unit(1, 0), unit(1, 0, model="other")) is None
    assert match(unit(1, 0), {"u1": [unit(1, 0, model="other")]}, MEASURED) is None


# the transcript


def test_separated_channels_are_labelled_by_channel():
    texts = [text(0, [(0, 1, "Hello.")]), text(1, [(2, 3, "Hello.")])]
    transcript = attribute(heard(LayoutKind.STEREO), recognized(texts), None, None, Roster(), "u1")
    assert [(s.label, s.role, s.role_confidence, s.role_reason, s.user_id) for s in transcript.speakers] == [
        ("rep", Role.REP, 1.0, "channel", "u1"),
        ("customer", Role.CUSTOMER, 1.0, "channel", None),
    ]
    assert [t.speaker for t in transcript.turns] == ["rep", "customer"]
    assert (transcript.language, transcript.note, transcript.engine) == ("en", None, "engine")


def test_the_voice_of_the_rep_channel_tells_which_member_it_is():
    roster = Roster(voiceprints=(member("u1", unit(1, 0)), member("u2", unit(0, 1))))
    transcript = attribute(
        heard(LayoutKind.TWO_FILES), recognized([]), None, unit(0.1, 1), roster, None, role_options=CALIBRATED
    )
    assert transcript.speakers[0].user_id == "u2"


def test_the_transcript_of_a_mixed_recording_has_the_same_shape():
    texts = [text(0, [(0, 0.3, "How"), (0.3, 0.5, "can"), (0.5, 0.7, "I"), (0.7, 1, "help?"), (3, 4, "Hello.")])]
    spans = (SpeakerSpan(0, 2, "A"), SpeakerSpan(2.5, 5, "B"))
    transcript = attribute(heard(LayoutKind.MONO), recognized(texts), Diarization(spans, {}, "d"), None, Roster(), None)
    assert [(t.speaker, t.text) for t in transcript.turns] == [("A", "How can I help?"), ("B", "Hello.")]
    assert [(s.label, s.role) for s in transcript.speakers] == [("A", Role.REP), ("B", Role.CUSTOMER)]


@pytest.mark.parametrize("kind", list(LayoutKind))
def test_a_call_without_words_says_why(kind):
    silent = attribute(heard(kind, speech=((),)), recognized([]), None, None, Roster(), None)
    assert silent.turns == () and silent.language is None
    assert "No speech was found in 12.0 s" in silent.note
    mumbled = attribute(heard(kind), recognized([text(0, [])]), None, None, Roster(), None)
    assert "no words were recognized" in mumbled.note


def labelled(kind, *labels, speech=TALKED):
    """Return an analysis with `labels` of channel 0 as (start, end, kind)."""
    channel_labels = tuple(Label(start, end, LabelKind(name)) for start, end, name in labels)
    return replace(heard(kind, speech), labels=(channel_labels,))


GREETING = ((0, 2, "ringback"), (2, 6, "voicemail"), (6, 7, "beep"), (7, 12, "speech"))
SPOKEN = ((2.5, 3, "You"), (3, 4, "have"), (4, 5, "reached"), (7.2, 8, "Hi,"), (8, 9, "call"), (9, 10, "me."))


@pytest.mark.parametrize("kind", [LayoutKind.STEREO, LayoutKind.MONO])
def test_what_a_machine_says_is_in_turns_of_its_own_that_say_so(kind):
    transcript = attribute(labelled(kind, *GREETING), recognized([text(0, SPOKEN)]), None, None, Roster(), None)
    assert [(t.text, t.machine) for t in transcript.turns] == [("You have reached", True), ("Hi, call me.", False)]
    assert len({t.speaker for t in transcript.turns}) == 1
    assert transcript.note is None
    assert transcript.labels[0][1].kind is LabelKind.VOICEMAIL


def test_a_call_in_which_only_a_machine_speaks_says_so():
    texts = recognized([text(0, SPOKEN[:3])])
    transcript = attribute(
        labelled(LayoutKind.MONO, *GREETING[:3], speech=((Span(2.2, 6),),)), texts, None, None, Roster(), None
    )
    assert transcript.note == "No party speaks; the call contains only ringback, a voicemail greeting and a beep."
    assert transcript.language_note.startswith("No party speaks")
    ringing = labelled(LayoutKind.MONO, (0, 11, "ringback"), (11, 12, "silence"), speech=((),))
    assert attribute(ringing, recognized([]), None, None, Roster(), None).note == (
        "No speech was found in 12.0 s of audio, only ringback."
    )


def test_the_language_of_a_machine_is_not_that_of_the_call():
    texts = [text(0, SPOKEN[:3], "es"), replace(text(0, SPOKEN[3:]), chunk=Chunk(0, 7, 12, "en"))]
    texts[0] = replace(texts[0], chunk=Chunk(0, 2, 6, "es"))
    languages = (LanguageStretch(0, 2, 6, "es", 0.9), LanguageStretch(0, 7, 12, "en", 0.9))
    heard_ = labelled(LayoutKind.STEREO, *GREETING, speech=((Span(2, 6), Span(7, 12)), ()))
    transcript = attribute(heard_, recognized(texts, languages=languages), None, None, Roster(), None)
    assert (transcript.language, transcript.languages, transcript.language_note) == ("en", languages, None)


def test_where_all_words_were_taken_out_the_note_says_so():
    withheld = Doubt(0, 0, 3, ("no_sound",), "Thanks.", kept=False)
    transcript = attribute(heard(LayoutKind.MONO), recognized([text(0, [])], withheld), None, None, Roster(), None)
    assert transcript.turns == () and transcript.doubts == (withheld,)
    assert transcript.note == "All recognized words were rejected as implausible: see the doubts."


def test_a_doubtful_word_is_still_doubtful_in_its_turn():
    spoken = text(0, [(0, 1, "Thanks.")])
    spoken = replace(spoken, words=tuple(replace(word, doubtful=True) for word in spoken.words))
    transcript = attribute(heard(LayoutKind.MONO), recognized([spoken]), None, None, Roster(), None)
    assert [word.doubtful for word in transcript.turns[0].words] == [True]


@given(
    st.tuples(st.floats(0, 20), st.floats(0, 20)),
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20)), max_size=5),
)
def test_what_remains_of_a_span_and_what_was_taken_make_up_the_span(whole, taken):
    span, away = Span(min(whole), max(whole)), [Span(min(t), max(t)) for t in taken]
    rest = seconds.without(span, away)
    assert all(a.end <= b.start for a, b in pairwise(rest)) and all(piece.duration > 0 for piece in rest)
    assert all(span.start <= piece.start and piece.end <= span.end for piece in rest)
    for piece in rest:
        assert not any(min(piece.end, t.end) - max(piece.start, t.start) > 1e-9 for t in away)
    inside = [Span(max(t.start, span.start), min(t.end, span.end)) for t in away]
    covered = sum(s.duration for s in statistics.union([s for s in inside if s.duration > 0]))
    assert sum(piece.duration for piece in rest) == pytest.approx(span.duration - covered, abs=1e-6)
