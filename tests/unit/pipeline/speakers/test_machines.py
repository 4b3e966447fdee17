from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipeline.domain.speech import Chunk, ChunkText, Label, LabelKind, SpeakerSpan, Word
from pipeline.speakers.announcement_score import (
    FOLDER,
    MAX_COUNTS,
    WEIGHTS,
    evidence,
    log_odds,
    patterns_of,
    weights_of,
)
from pipeline.speakers.machines import refine
from pipeline.speakers.seconds import by_machine

SPEECH, SILENCE, BEEP = LabelKind.SPEECH, LabelKind.SILENCE, LabelKind.BEEP
RING, MUSIC, VOICEMAIL, ANNOUNCEMENT = LabelKind.RINGBACK, LabelKind.MUSIC, LabelKind.VOICEMAIL, LabelKind.ANNOUNCEMENT
GREETING = "I can't take your call, please leave a message after the tone"
BUSY = "all our agents are busy please hold"
NOTICE = "this call may be recorded"


def channel(*parts: tuple[LabelKind, float]) -> tuple[Label, ...]:
    """Return consecutive labels from (kind, seconds)."""
    labels, at = [], 0.0
    for kind, seconds in parts:
        labels.append(Label(at, at + seconds, kind))
        at += seconds
    return tuple(labels)


def said(text: str, start: float, end: float, number: int = 0, code: str = "en") -> ChunkText:
    tokens = text.split()
    step = (end - start) / len(tokens)
    words = tuple(Word(start + i * step, start + (i + 1) * step, token, 0.9) for i, token in enumerate(tokens))
    return ChunkText(Chunk(number, start, end), code, 1.0, words, -0.2, 0.0)


def kinds(labels: Sequence[Label]) -> list[LabelKind]:
    return [label.kind for label in labels if label.kind not in (SILENCE,)]


def test_a_greeting_before_a_beep_is_a_machines() -> None:
    labels = channel((RING, 8), (SILENCE, 1), (SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 15.5))
    rep = channel((SILENCE, 16), (SPEECH, 10), (SILENCE, 4))
    before = (rep, labels)
    rep_after, own_after = refine(before, [said(GREETING, 9, 13, 1), said("hello this is Anna", 16, 26)])
    assert kinds(own_after) == [RING, VOICEMAIL, BEEP]
    assert rep_after == rep
    voicemail = next(label for label in own_after if label.kind is VOICEMAIL)
    assert (voicemail.start, voicemail.end) == (9, 13)
    assert "after the tone" in (voicemail.detail or "")
    assert voicemail.confidence > 0.9
    assert [(label.start, label.end) for label in own_after] == [(label.start, label.end) for label in labels]


def test_what_a_machine_says_before_the_telling_words_belongs_to_it() -> None:
    labels = channel((RING, 8), (SPEECH, 2), (SILENCE, 2), (SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 5))
    rep = channel((SILENCE, 22.5))
    texts = [said("this is Anna Berg", 8, 10, 1), said(GREETING, 12, 16, 1)]
    assert kinds(refine((rep, labels), texts)[1]) == [RING, VOICEMAIL, VOICEMAIL, BEEP]


@pytest.mark.parametrize(
    "text",
    [
        "it says I can't take your call, please leave a message after the tone",
        "then you press one on your phone and it works",
        "all right, could you please hold while I look that up",
        "I'm not available on Monday, please try my colleague",
        NOTICE,
    ],
)
def test_a_person_who_speaks_of_machines_in_a_dialogue_stays_a_person(text: str) -> None:
    rep = channel((SPEECH, 3), (SILENCE, 17))
    customer = channel((SILENCE, 4), (SPEECH, 5), (SILENCE, 11))
    texts = [said("hello there", 0, 3), said(text, 4, 9, 1), said("I see", 9.5, 11)]
    assert refine((rep, customer), texts) == (rep, customer)


@pytest.mark.parametrize("text", [NOTICE, "please leave a message with my colleague", "please hold for me"])
def test_who_is_answered_at_once_is_a_person(text: str) -> None:
    rep = channel((SPEECH, 8), (SILENCE, 12))
    customer = channel((SILENCE, 9), (SPEECH, 5), (SILENCE, 6))
    texts = [said("good morning this is Tom", 0, 3), said(text, 3, 8), said("good morning", 9, 11, 1)]
    assert refine((rep, customer), texts) == (rep, customer)


def test_an_announcement_in_the_middle_of_a_call_is_a_machines() -> None:
    rep = channel((SPEECH, 3), (SILENCE, 4), (MUSIC, 10), (SPEECH, 4), (SILENCE, 1), (SPEECH, 4), (SILENCE, 4))
    customer = channel((SILENCE, 4), (SPEECH, 2), (SILENCE, 24))
    texts = [
        said("good morning this is Tom.", 0, 3),
        said("I have a question", 4, 6, 1),
        said("Your call will be answered by the next available agent.", 17.2, 21),
        said("So it was the invoice from May.", 22, 26),
    ]
    assert kinds(refine((rep, customer), texts)[0]) == [SPEECH, MUSIC, ANNOUNCEMENT, SPEECH]


def test_a_menu_that_a_caller_answers_by_voice_is_a_machines() -> None:
    menu = "For sales, press one. For support, press two. To hear this again, press star."
    rep = channel((SPEECH, 8), (SILENCE, 4), (SPEECH, 4), (SILENCE, 4))
    customer = channel((SILENCE, 8.5), (SPEECH, 2), (SILENCE, 9.5))
    texts = [said(menu, 0, 8), said("support please", 8.5, 10.5, 1), said("Hello, my name is Ann.", 12, 16)]
    refined = refine((rep, customer), texts)
    assert (kinds(refined[0]), refined[1]) == ([ANNOUNCEMENT, SPEECH], customer)


def test_a_label_that_a_machine_and_a_person_share_is_cut_in_their_pause() -> None:
    rep = channel((SPEECH, 9), (SILENCE, 11))
    customer = channel((SILENCE, 9.5), (SPEECH, 3), (SILENCE, 7.5))
    texts = [
        said("You are the next caller in line, please stay on the line.", 0, 4),
        said("Good morning, this is Tom from Northwind.", 4.8, 9),
        said("good morning", 9.5, 12, 1),
    ]
    refined = refine((rep, customer), texts)[0]
    assert kinds(refined) == [ANNOUNCEMENT, SPEECH]
    assert refined[0].end == refined[1].start == pytest.approx(4.4)
    assert (refined[0].start, refined[-1].end) == (0, 20)


@pytest.mark.parametrize(("text", "least"), [(BUSY, 0.7), (NOTICE, 0.5)])
def test_an_announcement_is_said_before_anybody_speaks_and_to_nobody(text: str, least: float) -> None:
    rep = channel((SPEECH, 4), (MUSIC, 20), (SPEECH, 3), (SILENCE, 10))
    customer = channel((SILENCE, 28), (SPEECH, 5), (SILENCE, 4))
    refined = refine((rep, customer), [said(text, 0, 4), said("good morning this is Tom", 24, 27)])[0]
    assert kinds(refined) == [ANNOUNCEMENT, MUSIC, SPEECH]
    assert refined[0].confidence >= least


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("en", "Good morning, this is Anna from Northwind Energy. This call may be recorded."),
        ("en", "This call is recorded for training purposes. How can I help you?"),
        ("de", "Hier ist Sabine von Nordwind Energie. Das Gespräch wird aufgezeichnet."),
        ("es", "Esta llamada puede ser grabada. ¿En qué puedo ayudarle?"),
        ("fr", "Cet appel est enregistré. En quoi puis-je vous aider ?"),
    ],
)
def test_a_rep_who_reads_the_notice_stays_a_person_also_where_the_answer_is_slow(code: str, text: str) -> None:
    rep = channel((RING, 4), (SPEECH, 6), (SILENCE, 15))
    customer = channel((SILENCE, 15), (SPEECH, 5), (SILENCE, 5))
    assert refine((rep, customer), [said(text, 4, 10, code=code), said("good morning", 15, 20, 1)]) == (rep, customer)


def test_a_rep_who_pauses_before_the_notice_stays_a_person() -> None:
    rep = channel((SPEECH, 3), (SILENCE, 2), (SPEECH, 3), (SILENCE, 12))
    customer = channel((SILENCE, 13), (SPEECH, 5), (SILENCE, 2))
    texts = [said("Hello, my name is Tom.", 0, 3), said(NOTICE, 5, 8), said("good morning", 13, 18, 1)]
    assert refine((rep, customer), texts) == (rep, customer)


def test_who_answers_in_the_pause_of_the_ring_answers_the_ring() -> None:
    """2 s of ring and 4 s of silence, as in North America: the label ends with the last ring."""
    labels = channel((RING, 2), (SILENCE, 5), (SPEECH, 4), (SILENCE, 1), (SPEECH, 9))
    texts = [said(BUSY, 7, 11), said("good morning this is Tom", 12, 21)]
    assert kinds(refine((labels,), texts)[0])[:2] == [RING, ANNOUNCEMENT]


def test_other_words_before_a_beep_stay_speech() -> None:
    channel_labels = channel((SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 5))
    labels = (channel((SILENCE, 10.5)), channel_labels)
    assert refine(labels, [said("I will call you back tomorrow", 0, 4, 1)]) == labels


def test_in_one_channel_for_both() -> None:
    rings = channel((RING, 8), (SILENCE, 1), (SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 1), (SPEECH, 9))
    texts = [said(GREETING, 9, 13), said("hello it is me", 15.5, 24.5)]
    assert kinds(refine((rings,), texts)[0]) == [RING, VOICEMAIL, BEEP, SPEECH]
    alone = channel((SPEECH, 4), (SILENCE, 2), (SPEECH, 9))
    assert refine((alone,), [said(NOTICE, 0, 4)]) == (alone,)
    labels = channel((SPEECH, 4), (MUSIC, 20), (SPEECH, 9))
    assert kinds(refine((labels,), [said(BUSY, 0, 4)])[0]) == [ANNOUNCEMENT, MUSIC, SPEECH]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("de", "Bitte hinterlassen Sie eine Nachricht nach dem Ton."),
        ("es", "Por favor, deje su mensaje después de la señal."),
        ("fr", "Veuillez laisser un message après le bip."),
        ("en", "Please leave your message after the beep."),
        ("it", "Si prega di lasciare un messaggio dopo il segnale acustico."),
        ("ru", "Пожалуйста, оставьте сообщение после сигнала."),
    ],
)
def test_greetings_are_known_in_six_languages(code: str, text: str) -> None:
    labels = channel((SPEECH, 4), (SILENCE, 1), (BEEP, 0.5), (SILENCE, 5))
    refined = refine((channel((SILENCE, 10.5)), labels), [said(text, 0, 4, 1, code)])[1]
    assert refined[0].kind is VOICEMAIL


@pytest.mark.parametrize("code", ["de", "en", "es", "fr", "it", "ru"])
def test_every_language_has_patterns_of_every_kind(code: str) -> None:
    assert (FOLDER / f"{code}.json").is_file()
    patterns = patterns_of(code)
    assert set(patterns) == set(WEIGHTS) == set(MAX_COUNTS)
    assert all(patterns.values())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("de", "Drücken Sie die Eins für Rechnungen."),
        ("en", "To speak to billing, press one."),
        ("es", "Para facturación, marque uno."),
        ("fr", "Pour la facturation, appuyez sur le un."),
        ("it", "Per la fatturazione, premere uno."),
        ("ru", "Для связи с бухгалтерией нажмите один."),
    ],
)
def test_a_menu_is_known_in_every_language(code: str, text: str) -> None:
    assert evidence(text, code).counts["sure"]


def test_a_language_without_patterns_says_nothing() -> None:
    assert evidence("press one for billing", "xx").score == 0.0


def test_a_voice_that_reads_a_menu_also_says_what_stands_beside_it() -> None:
    labels = channel((SPEECH, 20), (SILENCE, 1))
    texts = [
        said("The house is quiet today.", 0, 3),
        said("Press one for sales, press two for support.", 4, 9),
        said("Nothing else matters here.", 9.4, 11),
        said("Well, I had a question about it.", 13, 16),
    ]
    spans = (SpeakerSpan(0, 3.5, "A"), SpeakerSpan(3.8, 11.2, "B"), SpeakerSpan(12.8, 17, "A"))
    (refined,) = refine((labels,), texts, (spans,))
    assert kinds([label for label in refined if label.end - label.start > 0.5]) == [SPEECH, ANNOUNCEMENT, SPEECH]
    machine = next(label for label in refined if label.kind is ANNOUNCEMENT)
    assert machine.start < 4 < 10.9 < machine.end


MENU = "Press one for sales, press two for support, press three for billing."
TALK = ("So it was the invoice from May.", "The roof leaks again.", "It was blue, and then green.", "He paid in cash.")


def machines(*parts: tuple[str, str | None, str]) -> tuple[str, str]:
    """Return the machine's (M) and a person's (P) parts of a channel, with and without voices.

    A part is (speaker, voice, words) of three seconds, followed by a pause; the other party is silent.
    """
    texts = [said(text, 5.0 * at, 5.0 * at + 3) for at, (_, _, text) in enumerate(parts)]
    spans = tuple(SpeakerSpan(5.0 * at, 5.0 * at + 3, voice) for at, (_, voice, _) in enumerate(parts) if voice)
    labels = (channel(*[(SPEECH, 5.0)] * len(parts)), channel((SILENCE, 5.0 * len(parts))))
    letters = []
    for voices in ((spans, ()), ()):
        machine = by_machine(refine(labels, texts, voices))
        letters.append("".join("M" if machine(0, text.words[1]) else "P" for text in texts))
    assert letters[0] == "".join(who for who, _, _ in parts)
    return letters[0], letters[1]


def test_the_voice_of_a_menu_is_a_machines_whatever_else_it_says() -> None:
    odd = "They have been carried away."
    parts = (("M", "1", MENU), ("P", "2", TALK[0]), ("P", "2", TALK[1]), ("M", "1", odd), ("P", "2", TALK[2]))
    assert machines(*parts) == ("MPPMP", "MPPPP")


def test_a_person_who_once_speaks_as_a_menu_does_stays_a_person_by_the_voice() -> None:
    lines = (*TALK[:2], "Please stay on the line.", *TALK[2:])
    assert machines(*(("P", "1", text) for text in lines)) == ("PPPPP", "PPMPP")


def test_learned_words_tell_a_machine_only_where_voices_could_contradict_them() -> None:
    unknown = "Your request has been processed."
    assert not evidence(unknown, "en", learned=False).counts
    assert machines(("M", "1", unknown), ("P", "2", TALK[0]), ("M", "1", MENU)) == ("MPM", "PPM")
    assert machines(("P", "2", unknown), ("P", "2", TALK[0]), ("P", "2", TALK[1]), ("M", "1", MENU))[1] == "PPPM"


def test_a_word_far_from_every_voice_is_nobodys() -> None:
    machines(("M", "1", MENU), ("M", "1", "All alone."), ("P", "2", TALK[0]))
    machines(("M", "1", MENU), ("P", None, "All alone."), ("P", "2", TALK[0]))


def test_weights_are_there_for_some_languages_and_few_words_say_nothing() -> None:
    assert {path.stem for path in FOLDER.glob("*.json") if weights_of(path.stem)} == {"en", "es", "fr"}
    assert log_odds("please hold", weights_of("en")) == 0.0
    assert log_odds("please hold while your call is transferred", weights_of("en")) > 2
    assert log_odds("please hold while your call is transferred", {}) == 0.0


def test_nothing_said_and_nothing_labelled_change_nothing() -> None:
    assert refine((), []) == ()
    assert refine(((), ()), []) == ((), ())
    labels = channel((SPEECH, 4), (SILENCE, 4))
    empty = replace(said("x", 0, 4), words=())
    assert refine((labels, labels), [empty]) == (labels, labels)


@pytest.mark.parametrize(("last_words", "is_person"), [("say one second please", True), ("press one for sales", False)])
def test_an_agent_who_takes_turns_is_a_person(last_words: str, is_person: bool) -> None:
    """Three answered phrases of machines are a dialogue; with a certain phrase ("press one") they are a menu."""
    agent = channel((SPEECH, 3), (SILENCE, 7), (SPEECH, 3), (SILENCE, 7), (SPEECH, 3), (SILENCE, 7))
    customer = channel((SILENCE, 6), (SPEECH, 2), (SILENCE, 8), (SPEECH, 2), (SILENCE, 8), (SPEECH, 2), (SILENCE, 2))
    phrases = ["say one second please", "say one second please", last_words]
    texts = [said(text, 10 * at, 10 * at + 3, 0) for at, text in enumerate(phrases)]
    replies = [said("certainly thank you", 10 * at + 6, 10 * at + 8, 1) for at in range(3)]
    after, _ = refine((agent, customer), [*texts, *replies])
    assert (ANNOUNCEMENT not in kinds(after)) is is_person
