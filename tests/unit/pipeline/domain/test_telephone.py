"""Numbers as carriers, exchanges and people write them. Every caller of the reader gets the same answer."""

import pytest

from pipeline.domain.telephone import e164


@pytest.mark.parametrize(
    ("number", "country", "expected"),
    [
        ("+49 30 1234567", None, "+49301234567"),
        ("030 1234567", "DE", "+49301234567"),
        ("0049 30 1234567", "DE", "+49301234567"),
        ("(202) 555-0143", "US", "+12025550143"),
        ("07700 900123", "GB", "+447700900123"),  # reserved for films: not "valid", dialed all the same
        ("+1 415 555 0123 ext. 7", None, "+14155550123"),
        ("sip:+14155550123@pbx.example;user=phone", None, "+14155550123"),
        ("sip:+14155550123;npdi=yes:secret@pbx.example:5060;transport=tls?Subject=x", None, "+14155550123"),
        ("sip:%2B14155550123@pbx.example", None, "+14155550123"),
        ("SIPS:01761234567@pbx.example.de", "DE", "+491761234567"),
        ('"Ana Ruiz" <sip:+34911234567@pbx.example;user=phone>;tag=a1', None, "+34911234567"),
        ("Paul <tel:+33-1-23-45-67-89>", None, "+33123456789"),
        ("<sip:1132341234@pbx.example>", "BR", "+551132341234"),
        ("+14155550123@pbx.example", None, "+14155550123"),
        ("tel:+1-415-555-0123;ext=12", None, "+14155550123"),
        ("tel:555-0123;phone-context=+1415", None, "+14155550123"),
    ],
)
def test_a_number_is_read_however_it_is_written(number: str, country: str | None, expected: str) -> None:
    assert e164(number, country) == expected


@pytest.mark.parametrize(
    ("number", "country"),
    [
        ("030 1234567", None),
        ("12", "DE"),
        ("201", "DE"),
        ("4321", "BR"),
        ("70123", "FR"),
        ("22158", "SH"),  # a telephone number of Saint Helena, but far more often an extension
        ("sip:201@pbx.example", "DE"),
        ("tel:7042;phone-context=pbx.example", "DE"),
        ("112", "ES"),
        ("0000000000", "US"),
        ("000000000", "GB"),
        ("+10000000000", None),
        ("+1 555 0123", None),  # without an area code
        ("1234567890", "US"),
        ("anonymous", "DE"),
        ("Unavailable", "US"),
        ("sip:anonymous@anonymous.invalid", "US"),
        ("Unknown <sip:unknown@192.0.2.1>", "US"),
        ("sip:c8oqz84zk7z@privacy.example", "US"),
        ("sip:alice@pbx.example", "DE"),
        ("+266696687", None),  # "anonymous" on a telephone's keys
        ("+86282452253", None),  # "unavailable"
        ("+7378742833", None),  # "restricted"
        ("+", None),
        ("", None),
    ],
)
def test_extensions_and_withheld_numbers_are_none(number: str, country: str | None) -> None:
    assert e164(number, country) is None
