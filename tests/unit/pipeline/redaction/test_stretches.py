"""The stretch that answers a request is hidden, also where no digit, or no word, was recognized."""

import re

import pytest

from pipeline.domain.redaction import EntityKind, RedactionMode, RedactionPolicy
from pipeline.domain.speech import Chunk, ChunkText, Recognized, Span, Word
from pipeline.redaction.detect import find_entities
from tests.unit.pipeline.redaction.calls import EVERYTHING, masked

CARD, CODE, ID, IBAN = EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.NATIONAL_ID, EntityKind.IBAN
# Language, request, answer as a recognizer garbles it, kind, what may stay
GARBLED = [
    ("en", "Can I have your card number, please?", "Fortune stakes forever.", CARD, ""),
    ("en", "And the CVV?", "Heat ate soon.", CODE, ""),
    ("en", "Could you read me the security code on the back?", "Sure, it's sick heaven.", CODE, "Sure it's"),
    ("en", "What's your social?", "Free forest evening.", ID, ""),
    ("en", "Which IBAN should I use?", "Gee bee fort wander.", IBAN, ""),
    ("es", "¿Me dice el número de su tarjeta?", "Quarto seso navaja.", CARD, ""),
    ("es", "¿Y el CVV?", "Torso sacho.", CODE, ""),
    ("es", "¿Cuál es su DNI?", "Claro, ojo vente.", ID, "Claro"),
    ("es", "¿Qué IBAN tiene?", "Heces trampa cielo.", IBAN, ""),
    ("es", "Dígame el código de seguridad, por favor.", "Sede nube.", CODE, ""),
    ("fr", "Quel est le numéro de votre carte ?", "Carton sixième oeuf.", CARD, ""),
    ("fr", "Et le cryptogramme ?", "Cette ombre.", CODE, ""),
    ("fr", "Quel est votre numéro de sécurité sociale ?", "Vieille ceinture.", ID, ""),
    ("fr", "Quel est votre IBAN ?", "Effet ailleurs toit.", IBAN, ""),
    ("fr", "Donnez-moi le code de sécurité.", "Oui, trésor nef.", CODE, "Oui"),
    ("de", "Wie ist Ihre Kartennummer?", "Fliegen lieben Vieh.", CARD, ""),
    ("de", "Und die Prüfziffer?", "Lieben Drall.", CODE, ""),
    ("de", "Wie lautet Ihre Steuer-ID?", "Ja, Leinen Zwerg.", ID, "Ja"),
    ("de", "Welche IBAN haben Sie?", "Deich Fund Lachs.", IBAN, ""),
    ("de", "Nennen Sie mir bitte den Sicherheitscode.", "Macht Hühner.", CODE, ""),
    ("pt", "Pode me dizer o número do cartão?", "Quadro saci névoa.", CARD, ""),
    ("pt", "E o CVV?", "Sede novelo.", CODE, ""),
    ("pt", "Qual é o seu CPF?", "Claro, oitão trem.", ID, "Claro"),
    ("pt", "Qual é o IBAN?", "Peteca cinza.", IBAN, ""),
    ("pt", "Me diga o código de segurança.", "Meia dose.", CODE, ""),
]  # fmt: skip
STAYS = {
    "en": [
        ("Can I have your card number, please?", "I don't have it with me."),
        ("And the CVV?", "Why do you need that?"), ("And the CVV?", "One moment please."),
        ("What's your social?", "I would rather talk to my husband about this first."),
        ("I even did that.", "Lovely weather today."), ("Your card number is on the letter.", "Lovely, cheers."),
        ("I got it in the mail.", "Lovely weather today."), ("We blocked the card number.", "Lovely, cheers."),
        ("And the CVV?", "It costs 20 dollars."), ("What is your account?", "Checking."),
    ],
    "es": [
        ("¿Me dice el número de su tarjeta?", "No la tengo aquí."), ("¿Y el CVV?", "¿Para qué lo quiere?"),
        ("¿Y el CVV?", "Un momento."), ("¿Cuál es su DNI?", "Pues mire, eso lo lleva siempre mi marido en persona."),
    ],
    "fr": [
        ("Quel est le numéro de votre carte ?", "Je ne l'ai pas ici."), ("Et le cryptogramme ?", "Pourquoi donc ?"),
        ("Et le cryptogramme ?", "Un instant."), ("Quel est votre IBAN ?", "Mon mari garde toujours tous ces papiers."),
    ],
    "de": [
        ("Wie ist Ihre Kartennummer?", "Die habe ich nicht hier."), ("Und die Prüfziffer?", "Wozu brauchen Sie die?"),
        ("Und die Prüfziffer?", "Einen Moment bitte."), ("Das war eben.", "Schönes Wetter heute."),
        ("Wie lautet Ihre Steuer-ID?", "Darum kümmert sich immer mein Mann daheim."),
    ],
    "pt": [
        ("Pode me dizer o número do cartão?", "Não tenho aqui."), ("E o CVV?", "Para que quer isso?"),
        ("E o CVV?", "Um momento."), ("Qual é o seu CPF?", "Meu marido guarda sempre todos esses papéis."),
    ],
}  # fmt: skip


def test_answers_without_digits_are_hidden(subtests: pytest.Subtests) -> None:
    for language, request, answer, kind, stays in GARBLED:
        for channels in ((0, 1), (1, 0), (0, 0)):
            with subtests.test(language=language, answer=answer, channels=channels):
                (_, text), redaction = masked((channels[0], request), (channels[1], answer), language=language)
                assert kind in {entity.kind for entity in redaction.entities}, text
                assert re.findall(r"[\w']+", re.sub(r"\[\w+\]", "", text)) == re.findall(r"[\w']+", stays)


def test_other_kinds_of_answers_stay(subtests: pytest.Subtests) -> None:
    for language, pairs in STAYS.items():
        for request, answer in pairs:
            for channels in ((0, 1), (0, 0)):
                with subtests.test(language=language, answer=answer, channels=channels):
                    (_, text), _ = masked((channels[0], request), (channels[1], answer), language=language)
                    assert text == answer


def test_a_signal_continues_a_stretch_and_a_move_ends_it() -> None:
    texts, _ = masked((0, "Your card number, please?"), (1, "Fort wonder."), (0, "Mm."), (1, "Heaven gate."))
    assert texts == ["Your card number, please?", "[CARD].", "Mm.", "[CARD]."]
    texts, _ = masked((0, "Your card number, please?"), (1, "Fort wonder."), (0, "Anything else today?"), (1, "Bread."))
    assert texts == ["Your card number, please?", "[CARD].", "Anything else today?", "Bread."]


def _text(channel: int, sound: list[tuple[float, float]], *words: tuple[float, float, str]) -> ChunkText:
    """Return one packed chunk, as the service recognizes a channel: `sound` is its speech."""
    spans = tuple(Span(*each) for each in sound)
    chunk = Chunk(channel, sound[0][0], sound[-1][1], "en", spans if len(spans) > 1 else ())
    return ChunkText(chunk, "en", 1.0, tuple(Word(*word, 0.9) for word in words), -0.2, 0.0)


def _said(start: float, text: str) -> list[tuple[float, float, str]]:
    return [(start + 0.3 * at, start + 0.3 * at + 0.25, word) for at, word in enumerate(text.split())]


ASKED = [*_said(0.0, "And the security code, please?"), *_said(9.0, "Thank you, that is all done now.")]
# What the caller's channel has, and which seconds are hidden in it
SILENT = [
    ([(2.0, 4.0)], [], [(2.0, 4.0)]),  # not a word was written
    ([(2.0, 6.0)], _said(2.0, "I have it right here"), [(3.45, 6.0)]),  # the code after a sentence was not
    ([(2.0, 4.0), (5.0, 7.0)], _said(2.0, "Yes, sure, one moment"), [(3.15, 4.0), (5.0, 7.0)]),  # in the next piece
    ([(2.0, 3.5), (11.0, 13.0)], _said(2.0, "I don't have it"), [(3.15, 3.5)][:0]),  # after the move
]


def test_sound_without_words_is_hidden_in_a_stretch(subtests: pytest.Subtests) -> None:
    for sound, words, expected in SILENT:
        with subtests.test(sound=sound):
            asking = _text(0, [(0.0, 1.5), (9.0, 11.2)], *ASKED)
            call = Recognized((asking, _text(1, sound, *words)), "test")
            entities = find_entities(call, EVERYTHING).entities
            spans = [(round(p.start, 2), round(p.end, 2)) for entity in entities for p in entity.pieces]
            assert spans == expected
            assert all(p.channel == 1 and p.last < p.first for entity in entities for p in entity.pieces)


def test_only_kinds_of_the_policy_are_hidden() -> None:
    policy = RedactionPolicy(RedactionMode.MASK, (EntityKind.PHONE,))
    texts, redaction = masked((0, "And the CVV?"), (1, "Heat ate soon."), policy=policy)
    assert texts[1] == "Heat ate soon."
    assert not redaction.entities
    policy = RedactionPolicy(RedactionMode.MASK, (CODE,))
    texts, _ = masked((0, "And the CVV?"), (1, "5 4 2 7 8 4 7 4 4"), policy=policy)
    assert texts[1] == "[CARD_CODE]"


def test_an_announced_value_without_words_is_hidden() -> None:
    words = [*_said(0.0, "My card number is"), *_said(6.0, "and that is all")]
    call = Recognized((_text(0, [(0.0, 7.3)], *words), _text(1, [(9.0, 9.4)], *_said(9.0, "Okay"))), "test")
    ((piece,),) = (entity.pieces for entity in find_entities(call, EVERYTHING).entities)
    assert (round(piece.start, 2), round(piece.end, 2)) == (1.15, 6.0)
    words = [*_said(0.0, "I lost my card"), *_said(3.0, "and that is all")]
    call = Recognized((_text(0, [(0.0, 4.3)], *words), _text(1, [(9.0, 9.4)], *_said(9.0, "Okay"))), "test")
    assert not find_entities(call, EVERYTHING).entities
