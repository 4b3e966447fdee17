"""Languages, turns, roles, voices and the transcript that comes of them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.domain.insight import MemberVoiceprint, Roster
from pipeline.domain.speech import (
    Chunk,
    ChunkText,
    Diarization,
    Heard,
    Layout,
    LayoutKind,
    Role,
    Span,
    SpeakerSpan,
    Turn,
    Voiceprint,
    Word,
)
from pipeline.speakers import attribute, language, roles, turns
from pipeline.speakers.turns import Spoken, TurnOptions
from pipeline.speakers.voiceprint import MatchOptions, match, similarity


def layout(kind):
    return Layout(kind, 2 if kind.separated else 1, 2, 1.0, {}, "test")


TALKED = ((Span(0, 10),),)


def heard(kind, speech=TALKED):
    return Heard(layout(kind), 12.0, speech, ())


def text(channel, words, code="en"):
    """`words` as (start, end, text)."""
    made = tuple(Word(start, end, said, 0.9) for start, end, said in words)
    return ChunkText(Chunk(channel, 0.0, 12.0), code, 0.9, made, -0.3, 0.01)


def turn(speaker, said, code="en", index=0):
    words = tuple(Word(i * 0.3, i * 0.3 + 0.2, w, 0.9) for i, w in enumerate(said.split()))
    return Turn(index, speaker, 0.0, 1.0, words, code)


def unit(*values, model="m", seconds=10.0):
    vector = np.array(values) / np.linalg.norm(values)
    return Voiceprint(tuple(vector.tolist()), model, seconds)


def member(user_id, voiceprint):
    return MemberVoiceprint(user_id, voiceprint)


# language


def test_the_language_of_a_channel_is_weighed_by_seconds():
    chunks = [Chunk(0, 0, 1), Chunk(0, 1, 9), Chunk(1, 0, 3)]
    decided = language.decide(chunks, [{"en": 0.9, "es": 0.1}, {"en": 0.2, "es": 0.8}, {"de": 1.0}])
    assert decided[0].code == "es"
    assert decided[0].probability == pytest.approx((0.1 + 8 * 0.8) / 9)
    assert decided[1].code == "de"


def test_a_channel_without_chunks_has_no_language():
    assert language.decide([], []) == {}


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
    joined = turns.join(turns.by_channel([text(0, words)], ["rep"]), TurnOptions(pause_seconds=2.0))
    assert [t.text for t in joined] == ["one two", "three"]


def test_a_word_thrown_in_over_another_word_does_not_cut_the_running_turn():
    texts = [text(0, [(0, 1, "I"), (1, 2, "will"), (2, 3, "send")]), text(1, [(1.2, 1.6, "Yes.")])]
    joined = turns.join(turns.by_channel(texts, ["rep", "customer"]))
    assert [(t.speaker, t.text) for t in joined] == [("rep", "I will send"), ("customer", "Yes.")]


def test_a_word_of_a_mixed_recording_goes_to_the_span_that_it_overlaps_most_else_to_the_nearest():
    spans = (SpeakerSpan(0, 2, "A"), SpeakerSpan(2, 4, "B"))
    said = turns.by_spans([text(0, [(1.5, 2.2, "mostly"), (1.9, 3, "other"), (4.5, 5, "after")])], spans)
    assert [s.speaker for s in said] == ["A", "B", "B"]


def test_without_any_span_all_words_are_one_speakers():
    assert {s.speaker for s in turns.by_spans([text(0, [(0, 1, "a"), (5, 6, "b")])], ())} == {"A"}


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 2), st.sampled_from(["rep", "customer"])), max_size=40))
def test_no_word_is_lost_or_doubled_and_turns_are_in_order(made):
    spoken = [Spoken(Word(a, a + d, f"w{i}", 1.0), who, "en") for i, (a, d, who) in enumerate(made)]
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
        said = [
            turn(names[s["speaker"]], s["text"], expected["language"], i) for i, s in enumerate(expected["segments"])
        ]
        found = {s.label: s for s in roles.assign(said, {}, Roster())}
        assert found[names["rep"]].role is Role.REP
        assert found[names["customer"]].role is Role.CUSTOMER
        assert 0.75 <= found[names["rep"]].role_confidence <= 1
        assert found[names["rep"]].role_reason.startswith("talk")


def test_french_words_tell_the_rep_too():
    said = [turn("A", "Bonjour, comment puis-je vous aider ?", "fr"), turn("B", "J'ai un problème.", "fr")]
    assert [s.role for s in roles.assign(said, {}, Roster())] == [Role.REP, Role.CUSTOMER]


def test_who_speaks_first_is_not_enough():
    said = [turn("A", "Hello."), turn("B", "Hello."), turn("A", "It rains."), turn("B", "Indeed.")]
    assert {s.role for s in roles.assign(said, {}, Roster())} == {Role.UNKNOWN}


def test_two_who_talk_alike_stay_unknown():
    said = [turn("A", "How can I help you?"), turn("B", "How can I help you?")]
    assert {s.role for s in roles.assign(said, {}, Roster())} == {Role.UNKNOWN}


def test_a_language_without_phrases_leaves_roles_unknown():
    assert roles.assign([turn("A", "How can I help you?", "fi")], {}, Roster())[0].role is Role.UNKNOWN


def test_a_known_voice_tells_the_rep_before_any_word_does():
    voices = {"A": unit(1, 0, 0), "B": unit(0, 1, 0)}
    roster = Roster(voiceprints=(member("u1", unit(0, 1, 0.1)),))
    said = [turn("A", "How can I help you?"), turn("B", "I have a problem.")]
    customer, rep = roles.assign(said, voices, roster)
    assert (rep.role, rep.role_reason, rep.user_id) == (Role.REP, "voiceprint", "u1")
    assert customer.role is Role.CUSTOMER and customer.user_id is None


def test_the_senders_user_is_the_rep_once_the_rep_is_known():
    said = [turn("A", "How can I help you?"), turn("B", "I have a problem.")]
    assert [s.user_id for s in roles.assign(said, {}, Roster(), user_id="u7")] == ["u7", None]


@pytest.mark.parametrize("code", ["en", "es", "de", "fr"])
def test_phrase_lists_hold_every_kind(code):
    assert set(json.loads((roles.PHRASES / f"{code}.json").read_text())) == set(roles.WEIGHTS)


# voices


def test_a_voice_is_recognised_by_threshold_and_margin():
    known = {"u1": [unit(1, 0)], "u2": [unit(0, 1)]}
    assert match(unit(1, 0.2), known).name == "u1"
    assert match(unit(1, 1), known) is None  # as like the one as the other
    assert match(unit(-1, -1), known) is None  # like neither
    assert match(unit(1, 0.2), known, MatchOptions(threshold=0.99)) is None


def test_without_candidates_or_voice_nobody_is_recognised():
    assert match(unit(1, 0), {}) is None
    assert match(None, {"u1": [unit(1, 0)]}) is None


def test_voiceprints_of_different_models_are_never_compared():
    assert similarity(unit(1, 0), unit(1, 0, model="other")) is None
    assert match(unit(1, 0), {"u1": [unit(1, 0, model="other")]}) is None


# the transcript


def test_separated_channels_are_labelled_by_channel():
    texts = [text(0, [(0, 1, "Hello.")]), text(1, [(2, 3, "Hello.")])]
    made = attribute(heard(LayoutKind.STEREO), texts, None, None, Roster(), "u1", "engine")
    assert [(s.label, s.role, s.role_confidence, s.role_reason, s.user_id) for s in made.speakers] == [
        ("rep", Role.REP, 1.0, "channel", "u1"),
        ("customer", Role.CUSTOMER, 1.0, "channel", None),
    ]
    assert [t.speaker for t in made.turns] == ["rep", "customer"]
    assert (made.language, made.note, made.engine) == ("en", None, "engine")


def test_the_voice_of_the_rep_channel_tells_which_member_it_is():
    roster = Roster(voiceprints=(member("u1", unit(1, 0)), member("u2", unit(0, 1))))
    made = attribute(heard(LayoutKind.TWO_FILES), [], None, unit(0.1, 1), roster, None, "engine")
    assert made.speakers[0].user_id == "u2"


def test_the_transcript_of_a_mixed_recording_has_the_same_shape():
    texts = [text(0, [(0, 0.3, "How"), (0.3, 0.5, "can"), (0.5, 0.7, "I"), (0.7, 1, "help?"), (3, 4, "Hello.")])]
    spans = (SpeakerSpan(0, 2, "A"), SpeakerSpan(2.5, 5, "B"))
    made = attribute(heard(LayoutKind.MONO), texts, Diarization(spans, {}, "d"), None, Roster(), None, "engine")
    assert [(t.speaker, t.text) for t in made.turns] == [("A", "How can I help?"), ("B", "Hello.")]
    assert [(s.label, s.role) for s in made.speakers] == [("A", Role.REP), ("B", Role.CUSTOMER)]


@pytest.mark.parametrize("kind", list(LayoutKind))
def test_a_call_without_words_says_why(kind):
    silent = attribute(heard(kind, speech=((),)), [], None, None, Roster(), None, "engine")
    assert silent.turns == () and silent.language is None
    assert "No speech was found in 12.0 s" in silent.note
    mumbled = attribute(heard(kind), [text(0, [])], None, None, Roster(), None, "engine")
    assert "heard no words" in mumbled.note
