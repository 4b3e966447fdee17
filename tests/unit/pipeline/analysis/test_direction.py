from dataclasses import replace
from uuid import UUID

import pytest

from pipeline.analysis.rules.direction.direction import DirectionStep
from pipeline.analysis.rules.people.agent import AgentStep, fit
from pipeline.domain.insight import Contact, Member, Roster
from tests.support.calls_by_hand import ROSTER, call
from tests.support.spoken_facts import CALLS

UNKNOWN = ("+15550000000", "+12025550100")
CONTACT = "+12025550143"


@pytest.mark.parametrize("small", CALLS, ids=str)
def test_the_talk_shows_who_placed_the_call(small):
    finding = DirectionStep().run(small.material)
    assert finding.value["outgoing"] is small.outgoing, finding.value["cues"]
    assert bool(finding.evidence) is (small.outgoing is not None)


@pytest.mark.parametrize("small", [small for small in CALLS if small.agent != ""], ids=str)
def test_the_talk_shows_who_of_ours_handled_the_call(small):
    assert AgentStep().run(small.material).value["user_id"] == small.agent


def direction(*lines, **given):
    return DirectionStep().run(call(*lines, **given))


def test_what_the_sender_said_is_never_overwritten():
    finding = direction(("rep", "Thank you for calling Northwind, how can I help?"), outgoing=True)
    assert (finding.value["outgoing"], finding.value["source"]) == (True, "sender")
    user = UUID(int=7)
    value = AgentStep().run(call(("rep", "This is Anna."), user_id=user)).value
    assert (value["user_id"], value["source"]) == (str(user), "sender")


def test_a_contacts_number_on_one_side_shows_the_direction():
    lines = (("rep", "Okay."), ("customer", "Fine."))
    placed = direction(*lines, numbers=(CONTACT, "+12025550100"))
    assert (placed.value["outgoing"], placed.value["source"]) == (False, "numbers")
    received = direction(*lines, numbers=("+12025550100", CONTACT))
    assert (received.value["outgoing"], received.value["source"]) == (True, "numbers")
    assert direction(*lines, numbers=(CONTACT, CONTACT)).value["outgoing"] is None


def test_a_contact_that_an_inferred_direction_made_does_not_bear_that_direction_out():
    """One wrong inference would make our own number a contact's, and every later call of that line an inbound one."""
    roster = Roster(contacts=(Contact("c", "Bob", phone=CONTACT, inferred=True),))
    lines = (("rep", "Okay."), ("customer", "Fine."))
    assert direction(*lines, numbers=(CONTACT, "+12025550100"), roster=roster).value["outgoing"] is None


def test_a_call_that_goes_on_after_a_break_does_not_show_who_placed_it():
    finding = direction(("rep", "Simon, hi, it's Anna. Can you hear me now?"), ("customer", "Yes."), numbers=UNKNOWN)
    assert finding.value["outgoing"] is None


@pytest.mark.parametrize(("speaker", "outgoing"), [("customer", True), ("rep", False)])
def test_a_machine_that_answers_was_called(speaker, outgoing):
    other = {"customer": "rep", "rep": "customer"}[speaker]
    material = call((speaker, "The line is busy, please hold."), (other, "Hello."), numbers=UNKNOWN)
    turns = (replace(material.transcript.turns[0], machine=True), material.transcript.turns[1])
    finding = DirectionStep().run(replace(material, transcript=replace(material.transcript, turns=turns)))
    assert finding.value["outgoing"] is outgoing


def test_a_machine_is_no_agent():
    material = call(("rep", "This is Anna. I am not in, leave a message."), ("customer", "Hello."))
    turns = (replace(material.transcript.turns[0], machine=True), material.transcript.turns[1])
    finding = AgentStep().run(replace(material, transcript=replace(material.transcript, turns=turns)))
    assert finding.value["user_id"] is None


@pytest.mark.parametrize(
    ("spoken", "name", "fits"),
    [("Jon", "John Smith", True), ("Katherine", "Catherine Doyle", True), ("Dan", "Dana White", False),
     ("Vera", "Verity Ashdown", False), ("Jo Hargrove", "Jo Beth Hargrove", True), ("Ole", "Olaf Janssen", False)],
)  # fmt: skip
def test_a_name_fits_a_member_by_spelling_or_sound(spoken, name, fits):
    assert bool(fit(spoken, Member("u", name), "en")) is fits


def test_the_exact_name_goes_before_the_one_that_sounds_like_it():
    roster = replace(ROSTER, members=(Member("u1", "John Hall"), Member("u2", "Jon Reed")))
    assert AgentStep().run(call(("rep", "Hello, this is Jon."), roster=roster)).value["user_id"] == "u2"


def test_a_name_that_sounds_like_two_members_is_left_open():
    roster = replace(ROSTER, members=(Member("u1", "Catherine Hall"), Member("u2", "Kathryne Reed")))
    value = AgentStep().run(call(("rep", "Hello, this is Katherine."), roster=roster)).value
    assert value["user_id"] is None
    assert len(value["candidates"]) in (0, 2)


def test_the_other_party_calling_our_name_tells_the_agent():
    value = AgentStep().run(call(("rep", "Yes?"), ("customer", "Thanks, Anna."))).value
    assert (value["user_id"], value["source"]) == ("u1", "talk")
