import pytest

from pipeline.analysis.rules.people.agent import AgentStep, fit
from pipeline.analysis.rules.people.contacts import ContactsStep
from pipeline.domain.insight import Member, Roster
from pipeline.language.pack import pack
from pipeline.language.spoken.emails import emails
from tests.support.calls_by_hand import call

TEAM = (
    Member("gil", "Gillian Frost", ("Gil",)),
    Member("berg", "Edith Berg"),
    Member("wren", "Wren Ashby"),
)


def _agent(language: str, *lines: tuple[str, str]) -> str | None:
    return AgentStep().run(call(*lines, language=language, roster=Roster(members=TEAM))).value["user_id"]


SPOKEN_OF = """
en|Mill Practice, good afternoon.|I need a slot with Dr. Berg.|Edith Berg is on leave this week.
en|Mill Practice. Edith Berg will be late today.|Oh dear.|Sorry.
en|Mill Practice.|Hello. Dr. Berg, she said to ring today.|All right.
de|Praxis an der Mühle, guten Tag.|Ich habe einen Termin bei Frau Doktor Berg.|Edith Berg ist diese Woche nicht da.
es|Clínica del Molino, buenas tardes.|Tengo cita con la doctora Berg.|Edith Berg no está esta semana.
fr|Cabinet du Moulin, bonjour.|J'ai rendez-vous avec le docteur Berg.|Edith Berg est en congé cette semaine.
"""

SPEAKING = """
en|Mill Practice, Edith Berg speaking.|Hello.|berg
en|Good morning, this is Edith Berg.|Hello, Dr. Berg.|berg
de|Praxis an der Mühle, Edith Berg am Apparat.|Guten Tag, Frau Berg.|berg
fr|Cabinet du Moulin, Edith Berg à l'appareil.|Bonjour.|berg
"""


@pytest.mark.parametrize("row", SPOKEN_OF.strip().splitlines())
def test_a_member_spoken_of_is_not_the_agent(row):
    language, ours, theirs, again = row.split("|")
    assert _agent(language, ("rep", ours), ("customer", theirs), ("rep", again)) is None


@pytest.mark.parametrize("row", SPEAKING.strip().splitlines())
def test_a_member_who_says_so_is(row):
    language, ours, theirs, user_id = row.split("|")
    assert _agent(language, ("rep", ours), ("customer", theirs)) == user_id


def test_an_alias_with_the_last_name_is_the_whole_name():
    assert fit("Gil Frost", TEAM[0]) == fit("Gillian Frost", TEAM[0]) > fit("Gil", TEAM[0]) > 0


def test_an_alias_of_one_word_does_not_beat_a_first_name():
    sams = (Member("a", "Sam Rowe"), Member("b", "Samira Bell", ("Sam",)))
    assert fit("Sam", sams[0]) == fit("Sam", sams[1])
    finding = AgentStep().run(call(("rep", "Rowe and Bell, Sam speaking."), roster=Roster(members=sams)))
    assert finding.value["user_id"] is None and finding.value["candidates"] == ["a", "b"]


NO_NAMES = """
en|Happy Thanksgiving, is that the florist?
en|Merry Christmas! I'd like a wreath.
en|Lost And Found, I think it was.
de|Frohe Weihnachten, ich brauche einen Kranz.
es|Feliz Navidad, quería una corona.
fr|Joyeuses Pâques, je voudrais une couronne.
"""


@pytest.mark.parametrize("row", NO_NAMES.strip().splitlines())
def test_a_wish_or_a_phrase_with_capitals_is_no_name(row):
    language, text = row.split("|")
    ours = {"en": "Hello?", "de": "Ja bitte?", "es": "¿Diga?", "fr": "Allô ?"}[language]
    facts = ContactsStep().run(call(("rep", ours), ("customer", text), language=language)).value["heard"]
    assert facts["name"] is None


def test_behind_a_firm_said_without_a_pause_stands_the_name():
    line = ("customer", "Good morning. This is Northgate Credit Imani.")
    facts = ContactsStep().run(call(("rep", "Hello?"), line)).value["heard"]
    assert facts["name"]["value"] == "Imani"


MAIL = """
en|No, that was the old one. fern at ashby dot org|fern@ashby.org
en|We are in unit 7. Fern at ashby dot org|fern@ashby.org
en|fern seven. at ashby dot org|fern7@ashby.org
en|f dot ashby two at mail dot com. Two of us read it.|f.ashby2@mail.com
de|Das ist Nummer 7. Fern at ashby punkt org|fern@ashby.org
"""


@pytest.mark.parametrize("row", MAIL.strip().splitlines())
def test_an_address_does_not_reach_across_a_full_stop(row):
    language, text, address = row.split("|")
    assert [match.text for match in emails(text, pack(language))] == [address]
