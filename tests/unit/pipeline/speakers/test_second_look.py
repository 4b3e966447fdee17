"""A second look at mixed calls that one voice seems to dominate: similar voices are two, a monologue stays one."""

import random

import numpy as np
import pytest

from pipeline.domain.speech import Diarization, SpeakerSpan, Voiceprint
from pipeline.speakers.dialogue import answers, party_odds
from pipeline.speakers.reclustering import with_margin
from pipeline.speakers.second_look import spoken_pieces, two_voices
from tests.unit.pipeline.speakers.test_machines import said

MIN_COSINE = 0.45
DIMENSION = 64
CALLS = {  # the agent's turns and the customer's, in turn, the agent first
    "en": (
        "Harper Valley Bank, how can I help you?", "Hi, I would like to transfer some money.", "What is the amount?",
        "One hundred dollars.", "Which account do you want to use?", "My savings account.",
        "Is there anything else I can help you with?", "No, thank you.", "Thank you for calling, goodbye.", "Bye bye.",
    ),
    "de": (
        "Stadtwerke, wie kann ich Ihnen helfen?", "Guten Tag, ich möchte eine Rechnung bezahlen.",
        "Wie hoch ist der Betrag?", "Achtzig Euro.", "Welche Rechnung ist das?", "Die vom letzten Monat.",
        "Kann ich sonst noch etwas tun?", "Nein danke, das war alles.", "Vielen Dank für Ihren Anruf.",
        "Auf Wiederhören.",
    ),
    "es": (
        "Banco del Valle, ¿en qué puedo ayudarle?", "Hola, quería pedir una tarjeta nueva.",
        "¿Cuál es su dirección?", "La calle Mayor, número tres.", "¿Qué tarjeta necesita?", "La de débito.",
        "¿Puedo ayudarle en algo más?", "No, gracias, eso es todo.", "Gracias por llamar.", "Adiós.",
    ),
    "fr": (
        "Banque de la Vallée, en quoi puis-je vous aider ?", "Bonjour, je voudrais prendre rendez-vous.",
        "Quel jour vous convient ?", "Le mardi matin.", "À quelle heure ?", "À dix heures.",
        "Autre chose ?", "Non merci, c'est tout.", "Merci de votre appel.", "Au revoir.",
    ),
    "pt": (
        "Banco do Vale, em que posso ajudar?", "Olá, eu queria mudar a minha senha.", "Qual é o seu telefone?",
        "Nove oito sete seis.", "O senhor quer receber por mensagem?", "Sim, por mensagem.",
        "Posso ajudar em mais alguma coisa?", "Não, obrigado, era só isso.", "Obrigado por ligar.", "Tchau.",
    ),
}  # fmt: skip
VOICEMAIL = (
    "Hello, this is Anna Berg from Northwind Energy.", "I'm calling about your order.", "Did you get our letter?",
    "I would like to know when we can come.", "Could you call me back?", "My number is five five five, one two three.",
    "Thank you, bye.",
)  # fmt: skip
NOVEL = (
    "How can I help you? said the clerk.", "I would like a room, he answered.", "Which one do you want?",
    "The large one.",
    "Is there anything else?", "No, thank you.", "What is your name?", "John.", "Where are you from?",
    "From the north.",
)  # fmt: skip


def longer(turns):
    """Return the turns with the questions asked twice."""
    return (*turns[:2], *turns[2:6], *turns[2:6], *turns[6:])


def look(turns, is_second, alike, language="en", seed=1, diarized=None):
    """Return the voices of turns; cosines of the two voices are about `alike`, of one voice's pieces .7.

    `diarized`: the diarizer's voice of each turn; left out, "A" says all.
    """
    texts, at = [], 0.0
    for text in turns:
        texts.append(said(text, at, at + 0.4 * len(text.split()), code=language))
        at = texts[-1].words[-1].end + 2.0
    spans = [SpeakerSpan(0, at, "A")]
    if diarized:
        times = [(text.words[0].start, text.words[-1].end) for text in texts]
        spans = [SpeakerSpan(*time, label) for time, label in zip(times, diarized, strict=True)]
    pieces = spoken_pieces(texts, spans)
    rng = np.random.default_rng(seed)
    base, other = np.linalg.qr(rng.normal(size=(DIMENSION, 2)))[0].T
    second = alike * base + np.sqrt(1 - alike**2) * other
    prints = []
    for wide in with_margin([piece.span for piece in pieces]):
        turn = next(n for n, text in enumerate(texts) if text.words[-1].end >= wide.end - 0.2)
        noise = rng.normal(size=DIMENSION) / np.sqrt(DIMENSION)
        vector = (second if is_second[turn] else base) + 0.65 * noise
        prints.append(Voiceprint(tuple(vector / np.linalg.norm(vector)), "by hand", wide.duration))
    result = two_voices(Diarization(tuple(spans), {}, "by hand"), pieces, prints, MIN_COSINE)
    return [next(s.speaker for s in result.spans if s.start <= t.words[0].start + 0.01 < s.end) for t in texts]


@pytest.mark.parametrize("language", CALLS)
def test_a_dialogue_that_one_voice_reads_stays_one(language: str) -> None:
    turns = longer(CALLS[language])
    split = [len(set(look(turns, [False] * len(turns), 0.5, language, seed))) > 1 for seed in range(20)]
    assert sum(split) <= 2


def test_monologues_stay_one_voice_whatever_their_pieces_sound_like() -> None:
    for turns in (VOICEMAIL, NOVEL[:6]):
        for seed in range(10):
            parts = random.Random(seed).choices((False, True), k=len(turns))
            assert set(look(turns, [False] * len(turns), 0.5, seed=seed)) == {"A"}
            if turns is VOICEMAIL:
                assert set(look(turns, parts, 0.3, seed=seed)) == {"A"}, "no question is answered"


@pytest.mark.parametrize("language", CALLS)
def test_short_replies_that_the_diarizer_gives_to_the_other_voice_move(language: str) -> None:
    turns = longer(CALLS[language])
    right = ["AB"[turn % 2] for turn in range(len(turns))]
    short = sorted(range(1, len(turns), 2), key=lambda turn: len(turns[turn]))[:2]
    for alike in (0.1, 0.4):
        for seed in range(10):
            diarized = ["A" if turn in short else label for turn, label in enumerate(right)]
            found = look(turns, [label == "B" for label in right], alike, language, seed, diarized)
            assert found == right, (alike, seed)
            assert look(turns, [label == "B" for label in right], alike, language, seed, right) == right


def test_two_voices_stay_as_they_are_if_dialogue_and_voices_contradict_them() -> None:
    turns = longer(CALLS["en"])
    diarized = random.Random(1).choices("AB", k=len(turns))
    second = [turn % 2 == 1 for turn in range(len(turns))]
    assert look(turns, second, 0.1, diarized=diarized) == diarized


def test_voices_that_differ_outweigh_the_words_of_a_reading() -> None:
    for seed in range(10):
        diarized = ["A", *random.Random(seed).choices("AB", k=len(NOVEL) - 1)]
        assert look(NOVEL, [label == "B" for label in diarized], 0.1, seed=seed, diarized=diarized) == diarized


def test_a_voice_of_the_diarizer_with_few_pieces_does_not_disappear() -> None:
    turns, diarized = ["We talk about the weather."] * 10, list("AABAAABAAA")
    for seed in range(10):
        assert set(look(turns, [False] * 10, 0.5, seed=seed, diarized=diarized)) == {"A", "B"}


def test_three_voices_stay_as_they_are() -> None:
    diarized = list("ABABABCBAB")
    assert look(CALLS["en"], [label == "B" for label in diarized], 0.1, diarized=diarized) == diarized


@pytest.mark.parametrize("language", CALLS)
def test_words_alone_say_which_party_offers_and_which_asks(language: str) -> None:
    texts = [said(text, 4.0 * n, 4.0 * n + 2, code=language) for n, text in enumerate(CALLS[language])]
    pieces = spoken_pieces(texts, ())
    odds = party_odds(pieces)
    starts = {text.words[0].start: n for n, text in enumerate(texts)}
    by_turn = [(odds[at] > 0) for at, piece in enumerate(pieces) if piece.span.start in starts]
    assert [by_turn[turn] for turn in (0, 1, 6, 7)] == [True, False, True, False], "offer, request, offer, refusal"
    assert answers(pieces) >= 3
    assert party_odds([]) == []


def test_a_voicemail_has_no_answers() -> None:
    texts = [said(text, 4.0 * n, 4.0 * n + 2.5) for n, text in enumerate(VOICEMAIL)]
    pieces = spoken_pieces(texts, ())
    assert answers(pieces) < 3
