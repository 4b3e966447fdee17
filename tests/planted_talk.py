"""What callers say who give away every kind of personal data, in five languages. All values are invented."""

from pipeline.domain.redaction import EntityKind

CODE, DOUBTFUL_CODE = "7391", "8264"  # the second is taken for a card
SAID: tuple[tuple[EntityKind, str, str, str], ...] = (
    (EntityKind.CARD, "en", "My card number is {}", "4111111111111111"),
    (EntityKind.CARD_CODE, "en", "The security code on the card is {}", CODE),
    (EntityKind.CARD, "en", "The number on my card is {}", DOUBTFUL_CODE),
    (EntityKind.CARD_EXPIRY, "en", "The card expires {}", "05/27"),
    (EntityKind.IBAN, "en", "My IBAN is {}", "GB29NWBK60161331926819"),
    (EntityKind.NATIONAL_ID, "en", "My social security number is {}", "219-09-9999"),
    (EntityKind.PHONE, "en", "Please call me back on {}", "202-555-0147"),
    (EntityKind.BIRTH_DATE, "en", "My date of birth is {}", "03/17/1962"),
    (EntityKind.PASSWORD, "en", "My password is {} for the invoice", "zqtulip77"),
    (EntityKind.EMAIL, "en", "My email address is {}", "zqbert@zqmann.example"),
    (EntityKind.SPELLED_NAME, "en", "My last name is spelled {}", "Z-Q-B-E-R-T"),
    (EntityKind.ADDRESS, "en", "I live at {}", "24 Zqmaple Street, Springfield 62704"),
    (EntityKind.CARD, "es", "Mi número de tarjeta es {}", "4012888888881881"),
    (EntityKind.PASSWORD, "fr", "Mon mot de passe est {}", "zqlavande"),
    (EntityKind.IBAN, "de", "Meine IBAN ist {}", "DE89370400440532013000"),
    (EntityKind.NATIONAL_ID, "pt", "Meu CPF é {}", "529.982.247-25"),
)  # fmt: skip

SENTENCES = tuple((language, f"The invoice. {sentence.format(value)}.") for _, language, sentence, value in SAID)
KINDS = frozenset(kind for kind, *_ in SAID)
CODES = tuple(
    f"{sign}{code}" for code in (CODE, DOUBTFUL_CODE) for sign in ('"', " ")
)  # as a word of a transcript, and in a text: its digits alone are also in ids
VALUES = [value.lower() for _, _, _, value in SAID if len(value) > 5] + ["zqbert", "zqmaple"]
PLANTED = [*VALUES, *CODES, '"05/27', " 05/27"]
