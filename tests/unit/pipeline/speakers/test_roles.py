import pytest

from pipeline.domain.insight import Contact, Member, Roster
from pipeline.domain.speech import Role
from pipeline.speakers import name_evidence, roles
from tests.fixture_checkpoints import CALIBRATIONS
from tests.support.calls_by_hand import turn

ROSTER = Roster(
    members=(Member("u1", "Nasreen Latif"), Member("u2", "Benedikt Orth"), Member("u3", "Simon Vale")),
    contacts=(Contact("c1", "Simon Achebe"), Contact("c2", "Annegret Kirschbaum")),
)


def said(*lines, language="en"):
    return [turn(at, who, at * 4.0, at * 4.0 + 3, text, language) for at, (who, text) in enumerate(lines)]


def found(*lines, language="en", roster=ROSTER):
    return {s.label: s for s in roles.assign(said(*lines, language=language), {}, roster)}


@pytest.mark.parametrize(
    ("language", "rep", "customer"),
    [
        ("en", "Hello, it's Nasreen. Is now a good time?", "Yes, go on."),
        ("en", "Nasreen Latif speaking.", "Good morning."),
        ("de", "Guten Tag, Benedikt Orth vom Klavierhaus.", "Guten Tag."),
        ("es", "Buenas, soy Nasreen, del taller.", "Dígame."),
        ("fr", "Bonjour, Nasreen Latif à l'appareil.", "Bonjour."),
    ],
)
@pytest.mark.parametrize("rep_first", [True, False])
def test_who_gives_a_members_name_as_their_own_is_the_rep_whoever_speaks_first(language, rep, customer, rep_first):
    lines = [("A", rep), ("B", customer)]
    who = found(*(lines if rep_first else reversed(lines)), language=language)
    assert (who["A"].role, who["B"].role) == (Role.REP, Role.CUSTOMER)
    assert "member" in who["A"].role_reason
    assert who["A"].role_confidence >= 0.75


def test_who_gives_a_contacts_name_is_the_customer():
    who = found(("A", "Hello, this is Annegret Kirschbaum."), ("B", "Good morning."))
    assert (who["A"].role, who["B"].role) == (Role.CUSTOMER, Role.REP)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Hi Annegret, how are you?", ["addresses_contact"]),
        ("Could I speak to Nasreen, please?", ["addresses_member"]),
        ("Frau Kirschbaum, guten Tag.", []),  # German titles, English turn
        ("Good morning, Mr Orth.", ["addresses_member"]),
        ("I spoke with somebody, and Nasreen told me that it was done.", []),
        ("Simon, hello.", []),  # a member and a contact are called so
        ("This is Simon Vale from the office.", ["gives_members_name"]),
        ("", []),
    ],
)
def test_names_tell_by_what_stands_around_them(text, kinds):
    phrases = {"en": roles._words("en")}
    assert name_evidence.evidence(said(("A", text)), name_evidence.names_of(ROSTER), phrases) == kinds


def test_the_greeting_of_a_machine_gives_nobodys_name():
    from dataclasses import replace

    machine = replace(said(("A", "This is Nasreen Latif."))[0], machine=True)
    rest = said(("B", "Please call me."), ("A", "I see."))
    assert all("member" not in s.role_reason for s in roles.assign([machine, *rest], {}, ROSTER))


def test_whose_things_are_spoken_of_tells_where_nothing_else_does():
    who = found(
        ("A", "Your washing machine is ready and we will bring it to your house on Monday with your papers."),
        ("B", "I was away with my car and my phone and I lost my keys when I was out."),
        roster=Roster(),
    )
    assert (who["A"].role, who["B"].role) == (Role.REP, Role.CUSTOMER)
    assert who["A"].role_confidence < 0.99


def test_few_such_words_are_not_enough():
    who = found(("A", "Your turn."), ("B", "It rains."), roster=Roster())
    assert {s.role for s in who.values()} == {Role.UNKNOWN}


def test_one_voice_alone_is_not_judged_by_whose_things_it_speaks_of():
    assert found(("A", "Your car and your house and your dog."), roster=Roster())["A"].role is Role.UNKNOWN


def test_probabilities_of_the_two_parties_are_the_same_and_evidence_against_one_is_evidence_for_the_other():
    who = found(("A", "Thanks, Nasreen."), ("B", "Goodbye, Annegret."), ("A", "Goodbye, Nasreen."))
    assert who["A"].role_confidence == who["B"].role_confidence
    assert (who["A"].role, who["B"].role) == (Role.CUSTOMER, Role.REP)


def test_a_roster_of_thousands_of_contacts_is_no_slower_than_a_call():
    import time

    roster = Roster(contacts=tuple(Contact(str(n), f"Person{n} Family{n}") for n in range(2000)))
    lines = [("A" if n % 2 else "B", "We talk about this and that, Person7, and go on.") for n in range(300)]
    started = time.perf_counter()
    assert found(*lines, roster=roster)
    assert time.perf_counter() - started < 60


CALIBRATED = roles.RoleOptions(calibration=CALIBRATIONS)


def test_where_voice_and_words_disagree_the_stronger_decides_or_nobody_does():
    from pipeline.domain.insight import MemberVoiceprint
    from pipeline.domain.speech import Voiceprint

    voice = Voiceprint((1.0, 0.0), "m", 20.0)
    roster = Roster(members=ROSTER.members, voiceprints=(MemberVoiceprint("u1", voice),))
    lines = [("A", "Good morning, this is Nasreen Latif."), ("B", "Good morning.")]

    def who(*said_):
        return {s.label: s for s in roles.assign(said(*said_), {"B": voice}, roster, options=CALIBRATED)}

    assert {s.role for s in who(*lines).values()} == {Role.CUSTOMER, Role.REP}
    assert who(*lines)["B"].role is Role.REP and who(*lines)["B"].user_id == "u1"
    more = [*lines, ("A", "Nasreen Latif speaking. How can I help you? Thank you for calling, how may I help you?")]
    assert {s.role for s in who(*more).values()} == {Role.UNKNOWN} or who(*more)["A"].role is Role.REP
    assert all(s.user_id is None for s in who(*more).values())
