"""What is hidden in a dialogue, and what must stay, in five languages."""

from dataclasses import replace

import pytest

from pipeline.domain.redaction import (
    NEEDS_ENGINE,
    Entity,
    EntityKind,
    EntityWords,
    Pattern,
    RedactionMode,
    RedactionPolicy,
    RedactionPreset,
    RedactionState,
)
from pipeline.redaction import runs
from pipeline.redaction.detect import find_entities
from tests.unit.pipeline.redaction.calls import EVERYTHING, call, kinds, masked

# Language, question, answer, answer after masking
ANSWERS = [
    ("en", "What's your card number?", "sure it's four one one one double one one one 1111 11 11",
     "sure it's [CARD]"),
    ("en", "and the three digits on the back", "one two three.", "[CARD_CODE]."),
    ("en", "When does it expire?", "oh five twenty-seven", "[CARD_EXPIRY]"),
    ("en", "can i have your social", "219 09 9999", "[NATIONAL_ID]"),
    ("en", "What is your date of birth?", "March fifth nineteen eighty.", "[BIRTH_DATE]."),
    ("en", "your email address?", "it's john dot miller at gmail dot com", "it's [EMAIL]"),
    ("en", "could you spell your last name", "m i double l e r", "[SPELLED_NAME]"),
    ("en", "What is the password on the account?", "It's blue elephant seven.", "It's [PASSWORD]."),
    ("en", "Your IBAN please?", "GB29 NWBK 6016 1331 9268 19", "[IBAN]"),
    ("en", "where do you live?", "at 24 maple street springfield 62704", "at [ADDRESS]"),
    ("en", "Which number can we call you back on?", "555 0199 234", "[PHONE]"),
    ("es", "¿Me da el número de la tarjeta?", "cuarenta y uno once once once 1111 1111", "[CARD]"),
    ("es", "¿Y el código de seguridad?", "es uno dos tres", "es [CARD_CODE]"),
    ("es", "¿Su DNI?", "12345678 Z", "[NATIONAL_ID]"),
    ("fr", "Quel est le numéro de votre carte ?", "quarante et un onze onze onze 1111 1111", "[CARD]"),
    ("fr", "Le cryptogramme ?", "cent vingt-trois", "[CARD_CODE]"),
    ("fr", "Votre date de naissance ?", "le cinq mars 1980", "le [BIRTH_DATE]"),
    ("de", "Ihre Kartennummer bitte", "einundvierzig elf elf elf doppel eins elf 1111", "[CARD]"),
    ("de", "Und die drei Zahlen hinten drauf?", "da steht acht zwei drei", "da steht [CARD_CODE]"),
    ("de", "Wie lautet Ihre Steuer-ID?", "86 095 742 719", "[NATIONAL_ID]"),
    ("pt", "Qual é o número do cartão?", "quarenta e um onze meia um onze 1111 1111", "[CARD]"),
    ("pt", "Seu CPF?", "529 982 247 25", "[NATIONAL_ID]"),
    ("pt", "A sua senha?", "é laranja quatro", "é [PASSWORD]"),
]  # fmt: skip

STAYS = {
    "en": """My password is not for sale. The password is good for 24 hours. My PIN is wrong for some reason. That's
        45 dollars and 50 cents, for 250 units. We met on the 5th of May at 10:30. In 2024 I paid
        1,200.50 twice. Your order number is 48213377. i forgot my password and cannot reset it. Two or
        three people waited twenty minutes. He got between 8 and 12 of them. Flight 7 4 5 leaves from
        gate 22.""",
    "es": """Cuesta 45 euros con 50. Abrimos a las 9:30. El número de pedido es 48213377. Mil gracias. Somos clientes
        desde 2009. olvidé mi contraseña. Esperé una hora y diez minutos.""",
    "fr": """Ça coûte 45 euros 50. On ouvre à 9 heures 30. Le numéro de commande est le 48213377. J'ai oublié mon mot
        de passe. Nous sommes clients depuis 2009. J'ai attendu dix minutes.""",
    "de": """Das kostet 45 Euro 50. Wir öffnen um 9:30 Uhr. Die Bestellnummer ist 48213377. Ich habe mein Passwort
        vergessen. Wir sind seit 2009 Kunden. Ich habe zehn Minuten gewartet. Er kommt zwischen 8 und 12.""",
    "pt": """Custa 45 reais e 50. Abrimos às 9:30. O número do pedido é 48213377. Esqueci a minha senha. Somos clientes
        desde 2009. Esperei dez minutos.""",
}


def test_answers_are_hidden_in_five_languages(subtests: pytest.Subtests) -> None:
    for language, question, answer, expected in ANSWERS:
        for asked in (question, question.lower().strip("?¿. ")):
            for channels in ((0, 1), (0, 0)):
                with subtests.test(language=language, question=asked, channels=channels):
                    turns = zip(channels, (asked, answer), strict=True)
                    assert masked(*turns, language=language)[0] == [asked, expected]


# Language, sentence with a code of a card, sentence with a password
STATED = [
    ("en", "The security code on the card is {}.", "My password is {} for the invoice."),
    ("en", "the code on the back of my credit card is {}", "my password is {} but it doesn't work"),
    ("es", "El CVV de mi tarjeta de crédito es {}.", "Mi contraseña es {} para la factura."),
    ("fr", "Le code de sécurité de la carte bancaire est {}.", "Mon mot de passe est {} pour la facture."),
    ("de", "Der Sicherheitscode auf der Kreditkarte lautet {}.", "Mein Passwort ist {} für die Rechnung."),
    ("pt", "O código de segurança do cartão de crédito é {}.", "A minha senha é {} para a fatura."),
]


def test_a_code_is_no_card_and_a_password_is_hidden_whatever_follows(subtests: pytest.Subtests) -> None:
    for language, code, password in STATED:
        for digits in ("7391", "7 3 9 1", "739"):
            with subtests.test(language=language, digits=digits):
                spoken = code.format(digits)
                (text,), redaction = masked((0, spoken), language=language)
                assert (text, kinds(redaction)) == (code.format("[CARD_CODE]"), [EntityKind.CARD_CODE])
        with subtests.test(language=language, sentence=password):
            (text,), redaction = masked((0, password.format("zqtulip77")), language=language)
            assert kinds(redaction) == [EntityKind.PASSWORD] and "zqtulip77" not in text
    assert masked((0, "My PIN is 4242 for the invoice."))[0] == ["My PIN is [PASSWORD] for the invoice."]
    assert kinds(masked((0, "My card number is 4111"))[1]) == [EntityKind.CARD]


def test_amounts_dates_and_order_numbers_stay(subtests: pytest.Subtests) -> None:
    for language, text in STAYS.items():
        for spoken in (" ".join(text.split()), " ".join(text.lower().replace(".", "").split())):
            with subtests.test(language=language, text=spoken):
                assert masked((0, spoken), language=language)[1].state is RedactionState.NOTHING_FOUND


def test_a_card_is_one_entity_over_turns_signals_and_corrections() -> None:
    turns, redaction = masked(
        (0, "go ahead with the card number"), (1, "4111 1111"), (0, "uh-huh go ahead"), (1, "1112 no wait 1111 1111"),
        (0, "and the security code"), (1, "one two three"), (0, "great"),
    )  # fmt: skip
    assert kinds(redaction) == [EntityKind.CARD, EntityKind.CARD_CODE]
    assert [turns[at] for at in (1, 3, 5)] == ["[CARD]", "[CARD]", "[CARD_CODE]"]
    assert len(redaction.entities[0].pieces) == 2
    first = redaction.entities[0].pieces[0]
    assert (first.text, first.first, first.last, first.channel) == (1, 0, 1, 1)
    assert first.start < first.end < redaction.entities[0].pieces[1].start


def test_digits_are_hidden_where_they_are_read_back() -> None:
    turns, _ = masked((0, "your card number"), (1, "4111 1111 1111 1111"), (0, "so that ends in 1 1 1 1 right"))
    assert turns[2] == "so that ends in [CARD] right"


def test_a_code_after_a_card_is_hidden_where_its_cue_is_garbled() -> None:
    card = (1, "it's 4111 1111 1111 1111")
    turns, _ = masked(
        (0, "the card number"), card, (0, "and the CBW."), (1, "I've got 7 0 1"), (0, "it is gate 204 on your left")
    )
    assert turns[3:] == ["I've got [CARD_CODE]", "it is gate 204 on your left"]
    assert masked((0, "and the sibby."), (1, "I've got 701"))[0][1] == "I've got 701"


GARBLED = [
    ("en", ((0, "please"), (1, "The free digit code is 7017")), "The free digit code is [CARD_CODE]"),
    ("de", ((0, "welches Ablaufmatum steht drauf"), (1, "null vier zwei acht")), "[CARD_EXPIRY]"),
    ("es", ((1, "La fecha de benzimiento es 04 27."),), "La fecha de benzimiento es [CARD_EXPIRY]."),
    ("en", ((0, "What expiry date is on it?"), (1, "It says make 28.")), "It says make [CARD_EXPIRY]."),
    ("es", ((0, "y el seure hube"), (1, "0, 4, 9")), "[CARD_CODE]"),
    ("en", ((0, "and the CBW."), (1, "I've got 701")), "I've got [CARD_CODE]"),
    ("pt", ((0, "tem um celular"), (1, "é 21 94 52 347 e sachos 29")), "é [PHONE] [PHONE] [PHONE]"),
    ("en", ((1, "Our email address is john.scofield.postio.com"),), "Our email address is [EMAIL]"),
    ("de", ((0, "bestätigen, die, die"), (1, "Game Center März 1982")), "Game Center [BIRTH_DATE]"),
]  # fmt: skip


def test_values_are_hidden_where_the_recognizer_garbles_the_words_around_them(subtests: pytest.Subtests) -> None:
    for language, turns, expected in GARBLED:
        with subtests.test(expected, language=language):
            assert masked(*turns, language=language)[0][-1] == expected


def test_a_cue_whose_value_is_known_announces_nothing_more(subtests: pytest.Subtests) -> None:
    card = (1, "My card expires zero five two nine")
    for later in ("I only get 40 megabits out of 250", "He bought 1,200 of them", "They moved in on the 14th"):
        with subtests.test(later):
            assert masked(card, (0, "Thanks a lot."), (0, later))[0] == [
                "My card expires [CARD_EXPIRY]", "Thanks a lot.", later
            ]  # fmt: skip
    turns = ((1, "my IBAN is GB29 NWBK 6016 1331 9268 19"), (1, "we got 12 of them"))
    assert masked(*turns)[0][1] == "we got 12 of them"
    assert masked((0, "con la extensión 1234. Y la contraseña 4242."), language="es")[0] == [
        "con la extensión 1234. Y la contraseña [PASSWORD]."
    ]


def test_organizations_and_places_need_an_engine() -> None:
    recognized = call((0, "this is about Acme"))
    policy = replace(EVERYTHING, kinds=NEEDS_ENGINE)
    redaction = find_entities(recognized, policy)
    assert (redaction.state, "organization and place" in redaction.reason) == (RedactionState.COULD_NOT_LOOK, True)
    acme = Entity(EntityKind.ORGANIZATION, (EntityWords(0, 3, 3, 0, 1.2, 1.55),), 0.9)
    assert find_entities(recognized, policy, lambda _: [acme]).entities == (acme,)
    assert all(NEEDS_ENGINE.isdisjoint(preset.kinds) for preset in RedactionPreset)


def test_a_word_without_a_length_is_hidden_with_the_times_of_its_neighbors() -> None:
    recognized = call((0, "the pin is 4 8 2 7 thanks"))
    words = list(recognized.texts[0].words)
    words[4] = replace(words[4], start=words[5].start, end=words[5].start)
    untimed = replace(recognized, texts=(replace(recognized.texts[0], words=tuple(words)),))
    assert find_entities(untimed, EVERYTHING).state is RedactionState.FOUND
    only = replace(call((0, "pin"), (0, "4827")), texts=())
    pin, value = call((0, "my pin is"), (0, "4827")).texts
    empty = replace(value, chunk=replace(value.chunk, end=value.chunk.start))
    flat = replace(empty, words=tuple(replace(word, end=word.start) for word in empty.words))
    redaction = find_entities(replace(only, texts=(pin, flat)), EVERYTHING)
    assert (redaction.state, "no times" in redaction.reason) == (RedactionState.COULD_NOT_LOOK, True)


def test_sixteen_digits_without_a_cue_are_a_card() -> None:
    valid, other = (masked((0, f"well {digits} then"))[1].entities[0] for digits in ("4111 1111 1111 1111", "4" * 16))
    assert (valid.kind, other.kind) == (EntityKind.CARD, EntityKind.CARD)
    assert valid.confidence > other.confidence


def test_only_kinds_of_the_policy_are_hidden() -> None:
    policy = replace(EVERYTHING, kinds=frozenset([EntityKind.CARD]))
    turns, _ = masked((0, "call me on 555 0199 234 or take 4111 1111 1111 1111"), policy=policy)
    assert turns == ["call me on 555 0199 234 or take [CARD]"]


def test_patterns_of_the_workspace(subtests: pytest.Subtests) -> None:
    policy = RedactionPolicy(RedactionMode.MASK, patterns=(Pattern("order", "AB-999999"), Pattern("member", "99999")))
    for text in ("it is AB-123456 here", "it is x b one two three four five six here", "it is xb123456 here"):
        with subtests.test(text=text):
            turns, redaction = masked((0, text), policy=policy)
            assert turns == ["it is [CUSTOM] here"]
            assert redaction.entities[0].pattern == "order"
    assert masked((0, "five figures 1 2 3 4 5 or seven figures 1 2 3 4 5 6 7"), policy=policy)[0] == [
        "five figures [CUSTOM] or seven figures 1 2 3 4 5 6 7"
    ]


def test_could_not_look(subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch) -> None:
    recognized = call((0, "my card number is 4111 1111 1111 1111"))
    text = recognized.texts[0]
    untimed = replace(text, words=tuple(replace(word, end=word.start) for word in text.words))
    foreign = replace(text, language="ja", words=text.words * 2)
    for name, broken, reason in (("times", untimed, "no times"), ("language", foreign, "ja")):
        with subtests.test(name):
            redaction = find_entities(replace(recognized, texts=(broken,)), EVERYTHING)
            assert redaction.state is RedactionState.COULD_NOT_LOOK
            assert reason in redaction.reason
    monkeypatch.setattr(runs, "number_at", lambda *_: 1 / 0)
    redaction = find_entities(recognized, EVERYTHING)
    assert (redaction.state, redaction.entities) == (RedactionState.COULD_NOT_LOOK, ())
    assert "4111" not in redaction.reason


def test_a_few_words_of_another_language_are_read_as_the_language_of_the_call() -> None:
    recognized = call((0, "what is your card number please tell me"), (1, "4111 1111 1111 1111"))
    foreign = replace(recognized.texts[1], language="ja")
    redaction = find_entities(replace(recognized, texts=(recognized.texts[0], foreign)), EVERYTHING)
    assert kinds(redaction) == [EntityKind.CARD]


def test_off_finds_nothing() -> None:
    assert find_entities(call((0, "4111 1111 1111 1111")), RedactionPolicy()).state is RedactionState.OFF


def test_work_grows_with_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of thousands of digits and calls of hours take linear work: counted, not timed."""
    counts: list[int] = []
    number_at = runs.number_at

    def counted(*args: object) -> object:
        counts[-1] += 1
        return number_at(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "number_at", counted)
    for pattern in ("7 4", "your card number is 4 1 1 1", "no wait 4 7"):
        for times in (200, 800):
            counts.append(0)
            find_entities(call((0, f"{pattern} " * times)), EVERYTHING)
        assert counts[-1] < 5 * counts[-2]
