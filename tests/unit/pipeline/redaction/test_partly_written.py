"""Answers that a recognizer wrote only in part as numbers, or without a street's kind: hidden as a whole."""

import re

import pytest

from pipeline.domain.redaction import EntityKind
from pipeline.domain.speech import Chunk, ChunkText, Recognized, Word
from pipeline.redaction.detect import find_entities
from tests.unit.pipeline.redaction.calls import EVERYTHING, kinds, masked

# Language, question (or none), answer, kind, what of the answer stays
NUMBERS = [
    ("en", "", "The CVV is free to 7.", EntityKind.CARD_CODE, "The CVV is"),
    ("en", "What's the security code?", "it's ate six won", EntityKind.CARD_CODE, "it's"),
    ("en", "Your IBAN, please?", "Let me get it. G, B, Pi, W, W, A, B, 2, Pi, 0, 2.", EntityKind.IBAN, "Let me get it"),
    ("en", "Your card number, please?", "Sure, 4 1 fife nein sics 6 tree 1", EntityKind.CARD, "Sure,"),
    ("en", "", "My phone number is 21 to 84 to 2085.", EntityKind.PHONE, "My phone number is"),
    ("en", "", "My card expires 0.828.", EntityKind.CARD_EXPIRY, "My card expires"),
    ("es", "", "Mi tarjeta camuca en 0,4,3,0.", EntityKind.CARD_EXPIRY, "Mi tarjeta camuca en"),
    ("en", "What's your social?", "it's a B-3177700C.", EntityKind.NATIONAL_ID, "it's a"),
    ("es", "¿Y el código de seguridad?", "es 8 guev uno", EntityKind.CARD_CODE, "es"),
    ("es", "", "Mi número de teléfono es seis sinco ocho guev C 1.", EntityKind.PHONE, "Mi número de teléfono es"),
    ("fr", "Le cryptogramme ?", "c'est toi 4 neffe", EntityKind.CARD_CODE, "c'est"),
    ("fr", "", "Mon IBAN est F A 7 6 cet neffe 2 zéros 1.", EntityKind.IBAN, "Mon IBAN est"),
    ("de", "Und die Prüfziffer?", "Das ist Fün, Fie, sieben, Legs.", EntityKind.CARD_CODE, "Das ist"),
    ("de", "", "Meine Steuernummer ist 8 eintz 7 fie 4.", EntityKind.NATIONAL_ID, "Meine Steuernummer ist"),
    ("pt", "E o código de segurança?", "é nove boon seis", EntityKind.CARD_CODE, "é"),
    ("pt", "Qual é o seu CPF?", "é um dois novi cinco oito saci quato seto", EntityKind.NATIONAL_ID, "é"),
]  # fmt: skip
ADDRESSES = [
    ("en", "What's your address?", "It's 34 Mabel Treat Springfield 62704.", "It's"),
    ("en", "where do you live", "at 16 kings rode leeds 74415", "at"),
    ("en", "", "My address is 21 Orkavenue Bristol 61,456.", "My address is"),
    ("es", "¿Cuál es su dirección?", "Es a venir a América 34, 66785 Granada.", "Es a"),
    ("es", "", "Mi dirección es cae Goya 56 16478 Madrid.", "Mi dirección es"),
    ("fr", "Quelle est votre adresse ?", "C'est le 76 au Voltaire 31595 Nantes.", "C'est le"),
    ("fr", "", "Mon adresse c'est quarante où Lafayette 73217 Lyon.", "Mon adresse c'est"),
    ("de", "Wie ist Ihre Adresse?", "Das ist Lindenwerk 44, 76354 Köln.", "Das ist"),
    ("de", "", "Meine Anschrift ist Mergota Strasser 77 57573 Köln.", "Meine Anschrift ist"),
    ("de", "", "Wir sind in der Schillerstraße 44 58257 Köln.", "Wir sind in der"),
    ("de", "", "Unsere Anweser ist die Hauptstraße 53,189 München. Danke.", "Unsere Anweser ist die Danke"),
    ("pt", "Qual é o seu endereço?", "É Fua Maia 63, 64669 Recife.", "É"),
    ("pt", "", "O meu endereço é lua Augusta 16 78652 Porto.", "O meu endereço é"),
]  # fmt: skip
STAYS = {
    "en": [
        ("What's the security code?", "I don't have it here."), ("where do you live", "I have been here for 10 years"),
        ("What's your address?", "The one from 2019."), ("Your card number, please?", "Hold on 2 seconds."),
        ("Can I have your phone number?", "You have it already, and I have no other one."),
        ("Which address?", "The delivery comes in 3 boxes."), ("Can I call you back?", "My extension is 8500."),
        ("Can I have your phone number?", "My order number is 48213377."),
    ],
    "es": [("¿Cuál es su dirección?", "Llevo aquí 10 años."), ("¿Y el código de seguridad?", "No lo tengo aquí.")],
    "fr": [("Quelle est votre adresse ?", "Celle de 2019."), ("Le cryptogramme ?", "Je ne l'ai pas ici.")],
    "de": [("Wie ist Ihre Adresse?", "Die von 2019."), ("Und die Prüfziffer?", "Die habe ich nicht hier.")],
    "pt": [("Qual é o seu endereço?", "Estou aqui há 10 anos."), ("E o código de segurança?", "Não tenho aqui.")],
}  # fmt: skip


def answered(language: str, question: str, answer: str, channels: tuple[int, int]) -> tuple[str, list[EntityKind]]:
    turns = [(channels[0], question)] if question else []
    texts, redaction = masked(*turns, (channels[1], answer), language=language)
    return texts[-1], list(kinds(redaction))


@pytest.mark.parametrize("channels", [(0, 1), (0, 0)], ids=["separate", "mixed"])
def test_partly_written_values_are_hidden(channels: tuple[int, int], subtests: pytest.Subtests) -> None:
    addresses = [(*row[:3], EntityKind.ADDRESS, row[3]) for row in ADDRESSES]
    for language, question, answer, kind, stays in NUMBERS + addresses:
        with subtests.test(language=language, answer=answer):
            text, found = answered(language, question, answer, channels)
            assert kind in found, text
            left = re.findall(r"\w+", re.sub(r"\[\w+\]", "", text))
            assert set(left) <= set(re.findall(r"\w+", stays)), text


def test_answers_without_a_value_stay(subtests: pytest.Subtests) -> None:
    for language, pairs in STAYS.items():
        for question, answer in pairs:
            for channels in ((0, 1), (0, 0)):
                with subtests.test(language=language, answer=answer, channels=channels):
                    assert answered(language, question, answer, channels) == (answer, [])


# Start and end of the words before, of, and after "4111 1111 1111 1111", and of what is hidden, in a chunk of 10 s
UNCLAIMED = [
    ((2.0, 2.5), (2.5, 4.0), (4.2, 5.0), (2.5, 4.2)),
    ((2.0, 2.5), (2.5, 4.0), (8.0, 9.0), (2.5, 7.0)),
    ((1.0, 1.5), (2.5, 4.0), (4.0, 9.0), (1.5, 4.0)),
    ((0.0, 0.5), (5.0, 6.0), (9.5, 9.9), (2.0, 9.0)),
    ((2.0, 2.5), (8.0, 9.6), None, (5.0, 10.0)),
]


def test_sound_that_no_word_has_is_hidden_with_the_value_next_to_it(subtests: pytest.Subtests) -> None:
    for before, value, after, expected in UNCLAIMED:
        with subtests.test(before=before, value=value, after=after):
            spans = [(before, "number"), (value, "4111-1111-1111-1111"), *([(after, "thanks")] if after else [])]
            words = tuple(Word(start, end, text, 0.9) for (start, end), text in spans)
            text = ChunkText(Chunk(0, 0.0, 10.0), "en", 1.0, words, -0.2, 0.0)
            (entity,) = find_entities(Recognized((text,), "test"), EVERYTHING).entities
            assert [(piece.start, piece.end) for piece in entity.pieces] == [expected]
