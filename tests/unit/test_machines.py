"""Announcements and greetings are told from persons who say the same words."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipeline.domain.speech import Chunk, ChunkText, Label, LabelKind, Word
from pipeline.speakers.machines import KINDS, all_phrases, refine
from pipeline.speakers.plain import plain

SPEECH, SILENCE, BEEP = LabelKind.SPEECH, LabelKind.SILENCE, LabelKind.BEEP
RING, MUSIC, VOICEMAIL, ANNOUNCEMENT = LabelKind.RINGBACK, LabelKind.MUSIC, LabelKind.VOICEMAIL, LabelKind.ANNOUNCEMENT
GREETING = "I can't take your call, please leave a message after the tone"
BUSY = "all our agents are busy please hold"
NOTICE = "this call may be recorded"


def channel(*parts: tuple[LabelKind, float]) -> tuple[Label, ...]:
    """Labels that follow each other, from (kind, seconds)."""
    labels, at = [], 0.0
    for kind, seconds in parts:
        labels.append(Label(at, at + seconds, kind))
        at += seconds
    return tuple(labels)


def said(text: str, start: float, end: float, number: int = 0) -> ChunkText:
    tokens = text.split()
    step = (end - start) / len(tokens)
    words = tuple(Word(start + i * step, start + (i + 1) * step, token, 0.9) for i, token in enumerate(tokens))
    return ChunkText(Chunk(number, start, end), "en", 1.0, words, -0.2, 0.0)


def kinds(labels: Sequence[Label]) -> list[LabelKind]:
    return [label.kind for label in labels if label.kind not in (SILENCE,)]


def test_a_greeting_before_a_beep_is_a_machines() -> None:
    own = channel((RING, 8), (SILENCE, 1), (SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 15.5))
    rep = channel((SILENCE, 16), (SPEECH, 10), (SILENCE, 4))
    before = (rep, own)
    rep_after, own_after = refine(before, [said(GREETING, 9, 13, 1), said("hello this is Anna", 16, 26)])
    assert kinds(own_after) == [RING, VOICEMAIL, BEEP]
    assert rep_after == rep
    voicemail = next(label for label in own_after if label.kind is VOICEMAIL)
    assert (voicemail.start, voicemail.end) == (9, 13)
    assert "after the tone" in (voicemail.detail or "")
    assert voicemail.confidence > 0.9
    assert [(label.start, label.end) for label in own_after] == [(label.start, label.end) for label in own]


def test_what_a_machine_says_before_the_telling_words_belongs_to_it() -> None:
    own = channel((RING, 8), (SPEECH, 2), (SILENCE, 2), (SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 5))
    rep = channel((SILENCE, 22.5))
    texts = [said("this is Anna Berg", 8, 10, 1), said(GREETING, 12, 16, 1)]
    assert kinds(refine((rep, own), texts)[1]) == [RING, VOICEMAIL, VOICEMAIL, BEEP]


@pytest.mark.parametrize("text", [GREETING, BUSY, NOTICE])
def test_a_person_who_says_the_same_in_a_dialogue_stays_a_person(text: str) -> None:
    rep = channel((SPEECH, 3), (SILENCE, 17))
    customer = channel((SILENCE, 4), (SPEECH, 5), (SILENCE, 11))
    assert refine((rep, customer), [said("hello there", 0, 3), said(text, 4, 9, 1)]) == (rep, customer)


@pytest.mark.parametrize("text", [BUSY, NOTICE, "please leave a message with my colleague"])
def test_who_is_answered_at_once_is_a_person(text: str) -> None:
    rep = channel((SPEECH, 5), (SILENCE, 15))
    customer = channel((SILENCE, 6), (SPEECH, 5), (SILENCE, 9))
    assert refine((rep, customer), [said(text, 0, 5), said("good morning", 6, 11, 1)]) == (rep, customer)


@pytest.mark.parametrize(("text", "least"), [(BUSY, 0.7), (NOTICE, 0.5)])
def test_an_announcement_is_said_before_anybody_speaks_and_to_nobody(text: str, least: float) -> None:
    rep = channel((SPEECH, 4), (MUSIC, 20), (SPEECH, 3), (SILENCE, 10))
    customer = channel((SILENCE, 28), (SPEECH, 5), (SILENCE, 4))
    refined = refine((rep, customer), [said(text, 0, 4), said("good morning this is Tom", 24, 27)])[0]
    assert kinds(refined) == [ANNOUNCEMENT, MUSIC, SPEECH]
    assert refined[0].confidence >= least


@pytest.mark.parametrize(
    "text",
    [
        "Good morning, this is Anna from Northwind Energy. This call may be recorded.",
        "This call is recorded for training purposes. How can I help you?",
        "Hier ist Sabine von Nordwind Energie. Das Gespräch wird aufgezeichnet.",
        "Esta llamada puede ser grabada. ¿En qué puedo ayudarle?",
        "Cet appel est enregistré. En quoi puis-je vous aider ?",
    ],
)
def test_a_rep_who_reads_the_notice_stays_a_person_also_where_the_answer_is_slow(text: str) -> None:
    rep = channel((RING, 4), (SPEECH, 6), (SILENCE, 15))
    customer = channel((SILENCE, 15), (SPEECH, 5), (SILENCE, 5))
    assert refine((rep, customer), [said(text, 4, 10), said("good morning", 15, 20, 1)]) == (rep, customer)


def test_a_rep_who_pauses_before_the_notice_stays_a_person() -> None:
    rep = channel((SPEECH, 3), (SILENCE, 2), (SPEECH, 3), (SILENCE, 12))
    customer = channel((SILENCE, 13), (SPEECH, 5), (SILENCE, 2))
    texts = [said("Hello, my name is Tom.", 0, 3), said(NOTICE, 5, 8), said("good morning", 13, 18, 1)]
    assert refine((rep, customer), texts) == (rep, customer)


def test_who_answers_in_the_pause_of_the_ring_answers_the_ring() -> None:
    """2 s of ring and 4 s without, as in North America: the label ends with the last ring."""
    own = channel((RING, 2), (SILENCE, 5), (SPEECH, 4), (SILENCE, 1), (SPEECH, 9))
    texts = [said(BUSY, 7, 11), said("good morning this is Tom", 12, 21)]
    assert kinds(refine((own,), texts)[0])[:2] == [RING, ANNOUNCEMENT]


def test_other_words_before_a_beep_stay_speech() -> None:
    own = channel((SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 5))
    labels = (channel((SILENCE, 10.5)), own)
    assert refine(labels, [said("I will call you back tomorrow", 0, 4, 1)]) == labels


def test_in_one_channel_for_both_only_a_ring_or_a_beep_beside_tells() -> None:
    rings = channel((RING, 8), (SILENCE, 1), (SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 1), (SPEECH, 9))
    texts = [said(GREETING, 9, 13), said("hello it is me", 15.5, 24.5)]
    assert kinds(refine((rings,), texts)[0]) == [RING, VOICEMAIL, BEEP, SPEECH]
    alone = channel((SPEECH, 4), (SILENCE, 2), (SPEECH, 9))
    assert refine((alone,), [said(GREETING, 0, 4)]) == (alone,)
    held = channel((SPEECH, 4), (MUSIC, 20), (SPEECH, 9))
    assert kinds(refine((held,), [said(BUSY, 0, 4)])[0]) == [ANNOUNCEMENT, MUSIC, SPEECH]


@pytest.mark.parametrize(
    "text",
    [
        "Bitte hinterlassen Sie eine Nachricht nach dem Ton.",
        "Por favor, deje su mensaje después de la señal.",
        "Veuillez laisser un message après le bip.",
        "Please leave your message after the beep.",
    ],
)
def test_greetings_are_known_in_four_languages(text: str) -> None:
    own = channel((SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 5))
    refined = refine((channel((SILENCE, 10.5)), own), [said(text, 0, 4, 1)])[1]
    assert refined[0].kind is VOICEMAIL


def test_phrases_are_as_words_are_compared() -> None:
    for kind in KINDS:
        assert len(all_phrases()[kind]) >= 12
        assert all(phrase == plain(phrase) for phrase in all_phrases()[kind])


def test_nothing_said_and_nothing_labelled_change_nothing() -> None:
    assert refine((), []) == ()
    assert refine(((), ()), []) == ((), ())
    own = channel((SPEECH, 4), (SILENCE, 4))
    empty = replace(said("x", 0, 4), words=())
    assert refine((own, own), [empty]) == (own, own)
