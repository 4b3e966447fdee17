"""Numbers and e-mail addresses that are repeated, corrected, described or spelled with an alphabet."""

import pytest

from pipeline.language.pack import pack
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.numbers import digit_runs

FOUR_ONE_FIVE = "four one five five five five oh one two three"
GERMAN = "null eins sieben sechs, zwölf, vierunddreißig, acht"
SPANISH = "seis dos dos, cinco cinco cinco, cero cuarenta y uno"
FRENCH = "zéro six, douze, trente-quatre, cinquante-six, dix-huit"
PORTUGUESE = "onze, nove nove nove, oito oito oito, sete sete sete sete"
NUMBERS = f"""
en | It's 415-555-0123. 415-555-0123. | 4155550123 4155550123
en | {FOUR_ONE_FIVE}, that's {FOUR_ONE_FIVE} | 4155550123 4155550123
en | {FOUR_ONE_FIVE} {FOUR_ONE_FIVE} | 4155550123 4155550123
en | 415, 555, 0123, again 415, 555, 0123 | 4155550123 4155550123
en | 415 555 0123. 415 555 0123. 415 555 0123. | 4155550123 4155550123 4155550123
en | My cell is 415-555-0123, and 415-555-0199. | 4155550123 4155550199
en | 555-0123. 555-0199. | 5550123 5550199
en | +44 7400 123456, 07400 123456 | +447400123456 07400123456
en | +14155550123 +14155550199 | +14155550123 +14155550199
en | 415 555 0123, no, 0124. So 415 555 0124. | 4155550124 4155550124
en | 415 555 0123, that's 555 0123 | 4155550123 5550123
en | It is four one five. Five five five. Oh one nine nine. | 4155550199
en | plus four nine, one seven six, one two three four five six seven eight | +4917612345678
de | {GERMAN}, also {GERMAN} | 017612348 017612348
de | 0176 12345678. 0176 12345678. | 017612345678 017612345678
es | {SPANISH}, {SPANISH} | 622555041 622555041
fr | {FRENCH}. {FRENCH}. | 0612345618 0612345618
pt | {PORTUGUESE}. {PORTUGUESE} | 119998887777 119998887777
"""
MAILS = """
en | November Oscar Romeo Alpha at gmail dot com | nora@gmail.com
en | Mike, Alpha, Romeo, Charlie, seven two at gmail dot com | marc72@gmail.com
en | Alpha double November Alpha at gmail dot com | anna@gmail.com
en | it's Lima Alpha Uniform Romeo Alpha dot Hall at gmail dot com | laura.hall@gmail.com
en | It's Oscar dot Hall at gmail dot com | oscar.hall@gmail.com
en | mike at acme dot com | mike@acme.com
en | bob at Sierra Tango dot com | bob@sierratango.com
de | Nordpol Otto Richard Anton at web Punkt de | nora@web.de
de | Berta Emil Richard Theodor Anton Punkt Huber at gmx Punkt at | berta.huber@gmx.at
de | martha at web Punkt de | martha@web.de
es | Madrid Antonio Ramón Carmen arroba gmail punto com | marc@gmail.com
fr | Marcel Anatole Raoul Célestin arobase orange point fr | marc@orange.fr
pt | Mike Alfa Romeu Charlie arroba gmail ponto com | marc@gmail.com
en | it's just my last name at hall dot com |
en | firstname.lastname@hall.com |
en | my initials at hall dot com |
en | laura at my company name dot com |
de | Vorname Punkt Nachname at web Punkt de |
es | es mi nombre punto apellido arroba gmail punto com |
fr | c'est prénom point nom arobase orange point fr |
pt | é meu nome ponto sobrenome arroba gmail ponto com |
en | nora at gmail dot com, sorry, at outlook dot com | nora@outlook.com
en | nora at gmail dot com, I mean outlook dot com | nora@outlook.com
en | nora at gmail, no, yahoo dot com | nora@yahoo.com
en | nora at gmail dot com, no, dot net | nora@gmail.net
en | nora at yahoo dot com, no, it's at yahoo dot co dot uk | nora@yahoo.co.uk
en | laura at gmail dot com, no wait, lara | lara@gmail.com
en | nora dot hall at gmail dot com, no, nora dot h at gmail dot com | nora.hall@gmail.com nora.h@gmail.com
de | nora at web Punkt de, nein Moment, at gmx Punkt de | nora@gmx.de
es | nora arroba gmail punto com, no, perdón, arroba hotmail punto com | nora@hotmail.com
fr | nora arobase orange point fr, non attendez, arobase free point fr | nora@free.fr
pt | nora arroba gmail ponto com, não, desculpe, arroba uol ponto com ponto br | nora@uol.com.br
en | nora at gmail dot com, no thanks | nora@gmail.com
en | nora at gmail dot com, sorry about that | nora@gmail.com
en | nora at gmail dot com, no spaces | nora@gmail.com
en | you can reach me at gmail dot com |
"""


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


@pytest.mark.parametrize(("language", "text", "numbers"), rows(NUMBERS))
def test_each_number_is_read_as_often_as_it_is_said(language: str, text: str, numbers: str) -> None:
    assert [run.text for run in digit_runs(text, pack(language))] == numbers.split()


@pytest.mark.parametrize(("language", "text", "addresses"), rows(MAILS))
def test_an_address_is_what_was_meant_or_none(language: str, text: str, addresses: str) -> None:
    assert [match.text for match in emails(text, pack(language))] == addresses.split()
