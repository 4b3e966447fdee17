"""Which names and terms recognition listens for, and in what order."""

from dataclasses import replace
from uuid import UUID

from pipeline.domain.insight import Contact, Member, Roster
from pipeline.vocabulary import vocabulary
from tests.unit.calls_by_hand import call

USER = UUID(int=7)
ROSTER = Roster(
    members=(Member("other", "Jon Lindqvist", ("Johnny",)), Member(str(USER), "Anna Berg", ("Anna",))),
    contacts=(
        Contact("c1", "Peter Miller", "Miller & Sons", phone="+12025550143"),
        Contact("c2", "Eve Adams", phone="+12025550199"),
        Contact("c3", None, "Depot Ltd", phone="+12025550100"),
    ),
    default_country="US",
    terms=("Gigabox", "anna"),
)
FROM, TO = "(202) 555-0143", "+1 202 555 0100"


def heard(outgoing: bool | None) -> tuple[str, ...]:
    of_call = call(("rep", "Hello."), numbers=(FROM, TO), outgoing=outgoing, user_id=USER).call
    return vocabulary(of_call, ROSTER)


def test_the_most_relevant_come_first_and_nothing_comes_twice() -> None:
    words = ("Anna Berg", "Anna", "Peter Miller", "Miller & Sons", "Gigabox", "Jon Lindqvist", "Johnny")
    assert heard(outgoing=False) == words


def test_the_contact_is_that_of_the_other_number() -> None:
    assert "Depot Ltd" in heard(outgoing=True)
    assert "Peter Miller" not in heard(outgoing=True)
    assert {"Depot Ltd", "Peter Miller"} <= set(heard(outgoing=None))


def test_contacts_whose_number_is_not_the_calls_are_not_listened_for() -> None:
    assert "Eve Adams" not in {*heard(True), *heard(False), *heard(None)}


def test_a_withheld_number_names_nobody() -> None:
    withheld = replace(call(("rep", "Hello.")).call, from_number="anonymous", to_number="")
    unnumbered = replace(ROSTER, contacts=(Contact("c4", "Nobody"),))
    assert "Nobody" not in vocabulary(withheld, unnumbered)
    assert vocabulary(withheld, Roster()) == ()
