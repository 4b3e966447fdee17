from uuid import UUID, uuid4

import pytest

from db.records import roster, views
from db.workspace import directory, settings
from pipeline.domain.insight import Contact, Finding
from tests.integration.db.records.test_complete import VOICE, complete, taken
from tests.postgres import World


async def test_the_voice_of_a_member_is_known_to_the_next_call_once_three_have_taught_it(world: World) -> None:
    user = uuid4()
    for _ in range(3):
        world.call_id = uuid4()
        await complete(world, await taken(world, user_id=user), voice=VOICE)
    await directory.add_member(world.database, world.workspace_id, "Ana", user, world.team_id, ["Anita"])
    await directory.add_member(world.database, world.workspace_id, "Bo", None, world.other_team_id)
    world.call_id = uuid4()
    call_roster = await roster.load(world.database, await taken(world))
    assert [(member.user_id, member.name, member.aliases) for member in call_roster.members] == [
        (str(user), "Ana", ("Anita",))
    ]
    (print_,) = call_roster.voiceprints
    assert print_.user_id == str(user)
    assert print_.voiceprint.model == VOICE.model
    assert print_.voiceprint.vector == pytest.approx(VOICE.vector)
    assert (call_roster.default_country, call_roster.time_zone) == ("DE", "Europe/Berlin")


async def test_a_user_learned_later_gets_the_voiceprint_that_was_kept_without_a_member(world: World) -> None:
    await complete(world, await taken(world), voice=VOICE)
    assert [row["user_id"] for row in await world.rows("SELECT user_id FROM voiceprints")] == [None]
    user = uuid4()
    await world.submit(user_id=user)
    await complete(world, await world.claim_one())
    assert [row["user_id"] for row in await world.rows("SELECT user_id FROM voiceprints")] == [user]


async def test_the_roster_holds_the_workspaces_own_terms(world: World) -> None:
    await settings.set_terms(world.database, world.workspace_id, ["Gigabox", " Metro  Cable ", "", "Gigabox"])
    assert (await roster.load(world.database, await taken(world))).terms == ("Gigabox", "Metro Cable")
    with pytest.raises(directory.NotInDirectory):
        await settings.set_terms(world.database, uuid4(), ["Gigabox"])


async def test_the_roster_holds_the_contacts_of_the_workspace_those_of_the_call_first(world: World) -> None:
    party = await directory.add_contact(world.database, world.workspace_id, "Eve", phone="+1 415 555 0123")
    await directory.add_contact(world.database, world.workspace_id, "Zoe", email="zoe@x.example")
    elsewhere = await directory.create_workspace(world.database, "Umbrella")
    await directory.add_contact(world.database, elsewhere.workspace_id, "Mallory")
    call_roster = await roster.load(world.database, await taken(world))
    assert [contact.name for contact in call_roster.contacts] == ["Eve", "Zoe"]
    assert call_roster.contacts[0] == party


def contacts_finding(match: str, contact_id: str | None = None, number: str | None = None, **spoken: str) -> Finding:
    facts = {field: {"value": text, "evidence": None} for field, text in spoken.items()} | {"address": None}
    value = {"match": match, "contact_id": contact_id, "number": number, "heard_number": None, "heard": facts}
    return Finding("contacts", 1, value)


async def test_a_contact_is_inferred_until_a_sender_says_who_placed_a_call_with_them(world: World) -> None:
    number, neo = "+14155550199", contacts_finding("new", None, "+14155550199", name="Neo")

    async def contact_after_call(call_id: UUID, **fields: object) -> Contact:
        world.call_id = call_id
        lease = await taken(world, **{"from_number": number} | fields)
        await complete(world, lease, neo)
        return (await roster.load(world.database, lease)).contacts[0]

    assert (await contact_after_call(uuid4(), outgoing=None)).inferred
    assert (await contact_after_call(uuid4(), outgoing=None)).inferred
    assert not (await contact_after_call(uuid4(), outgoing=False)).inferred
    entered = await directory.add_contact(world.database, world.workspace_id, "Eve", phone="+14155550123")
    world.call_id = uuid4()
    lease = await taken(world, from_number="+14155550123", outgoing=None)
    assert (await roster.load(world.database, lease)).contacts[0] == entered


async def test_the_contact_that_was_matched_is_linked_to_the_call(world: World) -> None:
    eve = await directory.add_contact(world.database, world.workspace_id, "Eve", phone="+14155550123")
    await complete(world, await taken(world), contacts_finding("matched", eve.contact_id))
    record = await views.show_call(world.database, world.call_id)
    assert record is not None
    assert record.contacts == (eve,)


async def test_a_new_contact_is_kept_once_when_a_number_tells_who_it_is(world: World) -> None:
    for _ in range(2):
        await complete(world, await taken(world), contacts_finding("new", None, "+14155550199", name="Neo"))
        await world.submit(duration=1)
        await complete(world, await world.claim_one(), contacts_finding("new", None, "+14155550199", name="Neo"))
        world.call_id = uuid4()
    (neo,) = await directory.list_contacts(world.database, world.workspace_id)
    assert (neo.name, neo.phone) == ("Neo", "+14155550199")
    assert len(await world.rows("SELECT FROM call_contacts")) == 2


async def test_a_call_fills_what_is_empty_in_a_contact_that_calls_made_and_changes_nothing_else(world: World) -> None:
    await complete(world, await taken(world), contacts_finding("new", None, "+14155550199", name="Neo"))
    world.call_id = uuid4()
    finding = contacts_finding("new", None, "+14155550199", name="Trinity", email="neo@zion.example")
    await complete(world, await taken(world), finding)
    (neo,) = await directory.list_contacts(world.database, world.workspace_id)
    assert (neo.name, neo.email, neo.company) == ("Neo", "neo@zion.example", None)


async def test_a_contact_that_a_person_entered_stays_as_it_is_whatever_was_heard(world: World) -> None:
    eve = await directory.add_contact(world.database, world.workspace_id, "Eve", phone="+14155550123")
    finding = contacts_finding("matched", eve.contact_id, "+14155550123", name="Eva", email="eve@x.example")
    await complete(world, await taken(world), finding)
    assert await directory.list_contacts(world.database, world.workspace_id) == [eve]


async def test_nobody_is_linked_where_nothing_tells_who_it_is(world: World, subtests: pytest.Subtests) -> None:
    for finding in [
        contacts_finding("new", name="Only a name"),
        contacts_finding("none", number="+14155550199"),
        contacts_finding("ambiguous", number="+14155550199"),
        contacts_finding("matched", "00000000-0000-4000-8000-000000000001"),
        contacts_finding("matched", "no id"),
        Finding("contacts", 1, {}, note="the step failed"),
    ]:
        world.call_id = uuid4()
        with subtests.test(str(finding.value)):
            await complete(world, await taken(world), finding)
            record = await views.show_call(world.database, world.call_id)
            assert record is not None
            assert (record.call.state, record.contacts) == ("completed", ())
            assert await directory.list_contacts(world.database) == []
