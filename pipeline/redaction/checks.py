"""Check digits of cards, bank accounts and identity numbers: they raise the confidence, and settle a kind."""

import re

DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"


def luhn(digits: str) -> bool:
    """Return whether the check digit of a payment card is right (ISO/IEC 7812-1)."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 * (value > 9)
    return total % 10 == 0


def iban(symbols: str) -> bool:
    """Return whether the check digits of an IBAN are right (ISO 13616)."""
    text = symbols.upper()
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{10,30}", text):
        return False
    return int("".join(str(int(sign, 36)) for sign in text[4:] + text[:4])) % 97 == 1


def cpf(digits: str) -> bool:
    """Return whether both check digits of a Brazilian CPF are right."""
    if len(digits) != 11 or len(set(digits)) == 1:
        return False
    for size in (9, 10):
        total = sum(int(digit) * (size + 1 - place) for place, digit in enumerate(digits[:size]))
        if total * 10 % 11 % 10 != int(digits[size]):
            return False
    return True


def nir(digits: str) -> bool:
    """Return whether the key of a French NIR of 15 digits is right."""
    return len(digits) == 15 and digits[0] in "12" and 97 - int(digits[:13]) % 97 == int(digits[13:])


def dni(symbols: str) -> bool:
    """Return whether the letter of a Spanish DNI or NIE is right."""
    text = symbols.upper()
    if not re.fullmatch(r"[XYZ0-9]\d{7}[A-Z]", text):
        return False
    return DNI_LETTERS[int(text[:-1].translate(str.maketrans("XYZ", "012"))) % 23] == text[-1]


def nino(symbols: str) -> bool:
    """Return whether the symbols have the form of a British National Insurance number."""
    return bool(re.fullmatch(r"[A-CEGHJ-PR-TW-Z]{2}\d{6}[A-D]", symbols.upper()))
