"""Where the recognizer is in doubt about the cue, or about the value, the form of what follows decides."""

import re
from dataclasses import replace

import pytest

from pipeline.domain.redaction import EntityKind, Redaction
from pipeline.domain.speech import Recognized
from pipeline.redaction.detect import find_entities
from pipeline.redaction.mask import mask_words
from tests.unit.pipeline.redaction.calls import EVERYTHING, call, kinds, texts

CODE, EXPIRY, BIRTH, ID = EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY, EntityKind.BIRTH_DATE, EntityKind.NATIONAL_ID
PASSWORD, EMAIL, NAME, CARD = EntityKind.PASSWORD, EntityKind.EMAIL, EntityKind.SPELLED_NAME, EntityKind.CARD
# Language, request (or none), answer, its kind; the recognizer is in doubt about words with a ~
HIDDEN = [
    ("en", "Please tell me your ~pain.", "It's Rocket Falcon 7-8.", PASSWORD),
    ("en", "Can you read me the ~seabee?", "Sure, 4 1 7.", CODE),
    ("en", "", "The ~Expo is April 32.", EXPIRY),
    ("en", "", "~Look ~of is 997.", CODE),
    ("en", "What's your ~mail?", "It's ~tomato.postal.net", EMAIL),
    ("en", "", "Clio ~304-2", CODE),
    ("en", "Could you spell your last name?", "Sure, ~WLKR.", NAME),
    ("en", "", "My account number is GB 57WNW 396904 275 8634", EntityKind.ACCOUNT),
    ("en", "", "And the ~CVC678.", CODE),
    ("en", "Can you read me your ~Ivan?", "Yes, it's ~GB-79 ~liters W-W-A-080-1 560-1 17 82 21 94.", EntityKind.IBAN),
    ("en", "", "The ~may is ~kevin.71-mail.com", EMAIL),
    ("en", "What's your email address?", "It's John ~Dotspo field at mail.com.", EMAIL),
    ("es", "", "Mi ~DNA ~estrés ~274121-8M.", ID),
    ("es", "Perdone, deletrea el apellido letra por letra.", "Claro, de ~OMNGU.", NAME),
    ("es", "¿Me dice su ~peyene?", "Es naranja naranja 9 6.", PASSWORD),
    ("es", "", "Creo que mi ~Payne es 49.46.", CODE),
    ("es", "", "El ~verso es 5 6 2.", CODE),
    ("es", "", "~Venza es abril 32.", EXPIRY),
    ("es", "", "el ~3056.", CODE),
    ("es", "¿Cuándo nació?", "El 7 de septiembre de 19.76.", BIRTH),
    ("es", "¿Me deletrea el apellido?", "Sí, de ~OMNGU.", NAME),
    ("fr", "Vous êtes ~mécan ?", "Le 23 le 19 mai 50.", BIRTH),
    ("fr", "Quel est votre ~pine ?", "C'est citron tigre 4 2.", PASSWORD),
    ("fr", "", "Le ~civet est 6 4 2.", CODE),
    ("fr", "", "Ma date de naissance est le 9.970.", BIRTH),
    ("fr", "", "~Le ~204-2", CODE),
    ("fr", "Vous pouvez épeler ?", "Oui, c'est ~achevé à ~l'IR.", NAME),
    ("de", "An welche ~Emil darf ich das schicken?", "~Anpieter ~posteo.punkt.net", EMAIL),
    ("de", "Wie ist Ihre ~Ebene?", "Das ist Tiger Anker 8 8.", PASSWORD),
    ("de", "", "Das Ablaufdatum ist ~lang ~nur 28.", EXPIRY),
    ("de", "", "Die ~Prinzessin ist 5 6 2.", CODE),
    ("de", "Können Sie das Buch ~stabilieren?", "Ja, ~NEMMANN.", NAME),
    ("de", "Für die Erstattung bräuchte ich die ~Iran.", "Schreiben Sie auf, die ~EU32626161 852602900 14561.", CARD),
    ("de", "Wie schreibt man Ihren Nachnamen?", "Das ist ~NEMMANN.", NAME),
    ("pt", "Qual é a sua ~cena?", "É laranja tigre 4 7.", PASSWORD),
    ("pt", "", "O ~severo é 6 4 2.", CODE),
    ("pt", "", "A ~varíola é abril 32.", EXPIRY),
    ("pt", "Pode soletrar o sobrenome?", "Claro, ~SLVRA.", NAME),
]  # fmt: skip
# The same doubt before another answer, and the same answer without doubt
STAYS = {
    "en": [
        ("When is your ~trip?", "April 12."), ("When is your ~trip?", "In April."),
        ("How many ~wheels do you want?", "Twenty five."), ("Where is your ~parcel?", "It took 340 miles."),
        ("Please tell me your ~pain.", "I don't remember 7-8."), ("", "The ~Expo is in 2026."),
        ("Please tell me your plan.", "It's Rocket Falcon 7-8."), ("", "The expo is April 28."), ("", "Clio 304-2"),
        ("", "The ~Expo is a long way from here in hall 305."), ("What's your ~order number?", "It's 3042."),
        ("", "The ~battle of is 350 dollars."), ("Where do you work?", "At ~NASA."),
        ("", "It is ~350km from here."), ("", "We use ~COVID19 tests."), ("", "The ~1990s were fine."),
        ("", "And the CVC678."),
    ],
    "es": [
        ("¿Cuándo es su ~viaje?", "El 12 de abril."),
        ("¿Cuántas ~cajas quiere?", "Veinticinco."), ("", "El ~verso es de 1976."), ("", "el 3056."),
        ("", "El verso es 5 6 2 euros."), ("¿Dónde trabaja?", "En ~OMNGU."),
    ],
    "fr": [
        ("Quand est votre ~voyage ?", "Le 12 avril."),
        ("Combien de ~boîtes ?", "Vingt-cinq."), ("", "Le ~civet est de 1976."),
        ("Où travaillez-vous ?", "À la ~WLKR."), ("", "Le ~civet est à 642 euros."),
    ],
    "de": [
        ("Wann ist Ihre ~Reise?", "Am 12. April."),
        ("Wie viele ~Kisten?", "Fünfundzwanzig."), ("", "Die ~Prinzessin ist von 1976."),
        ("", "Die ~Prinzessin ist 562 Meter weg."), ("Wo arbeiten Sie?", "Bei ~NEMMANN."),
    ],
    "pt": [
        ("Quando é a sua ~viagem?", "Em 12 de abril."),
        ("Quantas ~caixas?", "Vinte e cinco."), ("", "O ~severo é de 1976."), ("", "O ~severo é 642 euros."),
        ("Onde trabalha?", "Na ~SLVRA."),
    ],
}  # fmt: skip
CARD_REQUESTS = {
    "en": "Can I have your card number, please?", "es": "¿Me dice el número de su tarjeta?",
    "fr": "Quel est le numéro de votre carte ?", "de": "Wie ist Ihre Kartennummer?",
    "pt": "Pode me dizer o número do cartão?",
}  # fmt: skip
CARD_FORMS = [
    "1-1-1-2-2-2-2-3-3-3.", "4.1.1.2.3.4.5.6.7.8.9.0.", "4,111,222,233,334,444.", "4 -1 -1 -1 -2 -2 -2 -2 -3.",
    "41 -11 -22 -22 33.33", "4111 2222 3333, 444", "4111-2222-3333-44444", "4.111.222.233.334.444", "4/1/1/1/2/2/2",
    "4.1 1.2 3.4 5.6", "4111222233334.", "4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4",
]  # fmt: skip


def _with_doubts(recognized: Recognized) -> Recognized:
    """Return words with a ~ as recognized with little confidence."""
    return replace(
        recognized,
        texts=tuple(
            replace(
                text,
                words=tuple(
                    replace(word, text=word.text.removeprefix("~"), confidence=0.2 if word.text[0] == "~" else 0.9)
                    for word in text.words
                ),
            )
            for text in recognized.texts
        ),
    )


def _masked(language: str, request: str, answer: str) -> tuple[str, Redaction]:
    turns = [(0, request)] if request else []
    recognized = _with_doubts(call(*turns, (1, answer), language=language))
    redaction = find_entities(recognized, EVERYTHING)
    return texts(mask_words(recognized, redaction, EVERYTHING))[-1], redaction


def test_what_follows_a_doubt_is_hidden_by_its_form(subtests: pytest.Subtests) -> None:
    for language, request, answer, kind in HIDDEN:
        with subtests.test(language=language, request=request, answer=answer):
            text, redaction = _masked(language, request, answer)
            assert kind in kinds(redaction), text
            assert not re.search(r"\d|[A-Z]{4}", re.sub(r"\[\w+\]", "", text)), text


def test_other_answers_stay_also_after_a_doubt(subtests: pytest.Subtests) -> None:
    for language, pairs in STAYS.items():
        for request, answer in pairs:
            with subtests.test(language=language, request=request, answer=answer):
                text, _ = _masked(language, request, answer)
                assert text == answer.replace("~", "")


def test_card_digits_are_hidden_in_any_form_and_number(subtests: pytest.Subtests) -> None:
    for language, request in CARD_REQUESTS.items():
        for digits in CARD_FORMS:
            with subtests.test(language=language, digits=digits):
                text, redaction = _masked(language, request, digits)
                assert set(kinds(redaction)) == {CARD}
                assert not re.search(r"\d", text)
