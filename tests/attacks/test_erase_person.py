"""Nothing of an erased person remains, and the calls of others do not change: not after a race, not after a crash."""

import asyncio
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from typer.testing import CliRunner

from db.core.database import Reader
from db.core.rows import columns as plain
from db.core.tables import metadata
from db.events import endpoints
from db.experiments import runs
from db.records import erase, erasures, ledger
from db.records.complete import complete
from db.records.erasures import ErasureKind, ErasureLost, Target
from db.search import saved_views
from db.workspace import directory, keys
from db.workspace.admin_log import Actor
from pipeline.domain.insight import Finding
from pipeline.domain.stage import Stage
from pipeline.speakers.profile import Voices
from serve_app.backup.ledger_copies import LedgerCopies
from serve_app.cli import app
from serve_app.conductor.erasure import ErasureLoop
from serve_app.conductor.options import ErasureOptions
from serve_app.console.app import build_console
from serve_app.settings import Settings
from tests import serving
from tests.attacks.test_erase import every_row_of
from tests.erased import created, erased
from tests.finished import TALK, claimed, findings, finished, received, transcript
from tests.integration.db.voices import test_voiceprints as voices
from tests.paths import ROOT
from tests.planted import leftovers
from tests.postgres import World, new_world
from tests.reading_api import Api

NUMBER, SPOKEN = "+498999887766", "089 99887766"
NAME, MAIL, WORD = "Zqbert Zqmann", "zqbert@zq.example", "zqtalkzq"
PLANTED = (NAME, MAIL, WORD, NUMBER, NUMBER.removeprefix("+49"), SPOKEN)
PERSON = Target(ErasureKind.NUMBER, number="089 / 99 88 77 66")
HEARD = {"name": NAME, "email": MAIL, "number": NUMBER}
TALKS = (("rep", "Good morning, this is Ana."), ("customer", f"Hello, I am {NAME}, it is about {WORD}."))


def eraser(world: World) -> ErasureLoop:
    return ErasureLoop(world.database, ErasureOptions(), LedgerCopies("memory://", ()), None, Voices())


async def persons_calls(world: World) -> list[UUID]:
    """Plant a person in calls of two teams: incoming, outgoing, unfinished, failed to be read as a number."""
    found = findings(heard=HEARD)
    first = await finished(world, *TALKS, found=found, from_number=SPOKEN)
    second = await finished(
        world, *TALKS, found=found, sender=world.other_scoped, to_number=NUMBER, from_number="+4930555", outgoing=True
    )
    third = await received(world, from_number=NUMBER)
    fourth = await finished(world, *TALKS, from_number=SPOKEN, minutes=9)
    await world.execute("UPDATE calls SET from_e164 = NULL WHERE call_id = :call", call=fourth)
    return [first, second, third, fourth]


async def others_rows(world: World, calls: list[UUID]) -> dict[UUID, Any]:
    numbers = await world.rows("SELECT id, call_id FROM calls WHERE call_id = ANY (:calls)", calls=calls)
    others = {row["call_id"]: await every_row_of(world, row["id"]) for row in numbers}
    stored = await world.rows(
        "SELECT CAST(c AS text) AS row, call_id FROM calls c WHERE call_id = ANY (:calls)", calls=calls
    )
    return {row["call_id"]: (row["row"], others[row["call_id"]]) for row in stored}


async def everything(world: World) -> dict[str, list[str]]:
    tables = metadata.tables
    return {
        name: [row["t"] for row in await world.rows(f"SELECT CAST(t AS text) AS t FROM {name} t ORDER BY 1")]
        for name in tables
    }


async def call_ids(world: World) -> set[UUID]:
    return {row["call_id"] for row in await world.rows("SELECT call_id FROM calls")}


async def test_a_person_is_erased_by_number(world: World) -> None:
    await endpoints.add(world.database, world.workspace_id, "https://crm.example/", "sealed", include=["record"])
    others = [await finished(world), await finished(world, sender=world.other_scoped)]
    known = await directory.add_contact(world.database, world.workspace_id, NAME, "Zq", MAIL, NUMBER)
    calls = await persons_calls(world)
    before = await others_rows(world, others)
    assert {string for _, string in leftovers(world.database.url, PLANTED)} == set(PLANTED)
    unchanged = await everything(world)
    target = await erasures.resolve(world.database, Reader(world.workspace_id), PERSON)
    assert target.number == NUMBER
    assert await erasures.matches(world.database, world.workspace_id, target) == {"calls": 4, "contacts": 1}
    assert await everything(world) == unchanged
    erasure = await erased(world, PERSON)
    assert erasure is not None and (erasure.state, erasure.matched["calls"]) == ("done", 4)
    assert (erasure.counts["calls"], erasure.counts["contacts"]) == (4, 1)
    assert leftovers(world.database.url, PLANTED) == []
    assert await others_rows(world, others) == before
    assert await call_ids(world) == set(others)
    (row,) = await world.rows("SELECT * FROM erasures")
    assert row["target"] is row["number"] is None and row["digest"] == target.digest(world.workspace_id)
    deleted = await world.rows("SELECT data ->> 'callId' AS id FROM events WHERE type = 'call.deleted'")
    assert {UUID(event["id"]) for event in deleted} == set(calls)
    async with world.database.transaction(world.workspace_id) as connection:
        entries = await ledger.entries(connection, world.workspace_id)
    assert [entry.kind for entry in entries] == ["call"] * 4 + ["number"]
    assert {entry.erasure_id for entry in entries} == {erasure.erasure_id}
    assert entries[-1].digests == [erasures.digest_of(world.workspace_id, UUID(known.contact_id))]


async def test_a_contact_with_calls_of_other_numbers_loses_only_the_number(world: World) -> None:
    heard = {"name": "Eve", "number": "+4989111"}
    other = await finished(world, found=findings(heard=heard | {"number": NUMBER}), from_number="+4930777")
    call = await finished(world, found=findings(heard={"name": "Eve", "number": NUMBER}), from_number=NUMBER)
    await world.execute("UPDATE findings SET value = value - 'number' WHERE step = 'contacts'")
    erasure = await erased(world, PERSON)
    assert erasure is not None and (erasure.counts["calls"], erasure.counts["numbers"]) == (1, 1)
    (contact,) = await world.rows("SELECT * FROM contacts")
    assert (contact["name"], contact["phone"]) == ("Eve", None)
    assert await call_ids(world) == {other} and call != other
    assert leftovers(world.database.url, [NUMBER]) == []


async def test_a_contact_is_erased_with_unlinked_calls_of_its_number(world: World) -> None:
    home = world.workspace_id
    contact = await directory.add_contact(world.database, home, NAME, None, MAIL, NUMBER)
    colleague = await directory.add_contact(world.database, home, "Colleague")
    matched = {"match": "matched", "contact_id": contact.contact_id}
    linked = await finished(world, found=[Finding("contacts", 1, matched)], from_number="+4930888")
    unfinished = await received(world, from_number=NUMBER)
    of_colleague = [Finding("contacts", 1, {"match": "matched", "contact_id": colleague.contact_id})]
    same_number = await finished(world, found=of_colleague, from_number=NUMBER)
    target = Target(ErasureKind.CONTACT, UUID(contact.contact_id))
    erasure = await erased(world, target)
    assert erasure is not None and (erasure.counts["calls"], erasure.counts["contacts"]) == (2, 1)
    assert await call_ids(world) == {same_number} and {linked, unfinished}.isdisjoint({same_number})
    assert leftovers(world.database.url, [NAME, MAIL]) == []
    with pytest.raises(erasures.NoSuchTarget):
        await created(world, target)


SUMMARY = "Zqana Zqkess: I will send it. Customer: Fine. Zqana Zqkess: Bye."


def of_agent(user_id: UUID, name: str) -> list[Finding]:
    agent = {"user_id": str(user_id), "name": name, "spoken_name": "Zqana", "source": "greeting", "candidates": []}
    sentence = {"part": "open", "text": f"{name}: send it", "evidence": {"quote": "I will send it", "turn": 0}}
    value = {"text": SUMMARY.replace("Zqana Zqkess", name), "sentences": [sentence]}
    return [Finding("agent", 2, agent), Finding("summary", 3, value)]


async def test_a_member_is_erased_and_the_calls_stay(world: World) -> None:
    home, name = world.workspace_id, "Zqana Zqkess"
    await endpoints.add(world.database, home, "https://crm.example/", "sealed", include=["record"])
    member = await directory.add_member(world.database, home, name, aliases=["Zqannie"])
    bo = await voices.member(world, "Bo")
    for seed in range(3):
        await voices.call(world, voices.voice(voices.ANA, seed), member.user_id)
    other = await voices.call(world, voices.voice(voices.BO, 9), bo)
    by_greeting = await finished(world, found=of_agent(member.user_id, name))
    by_sender = await finished(world, found=of_agent(member.user_id, "Zqana Zqborn"), user_id=member.user_id)
    await runs.create(world.database, home, "trial", {}, [by_greeting])
    stored = [plain(finding) | {"evidence": []} for finding in of_agent(member.user_id, name)]
    await world.execute(
        "UPDATE run_calls SET state = 'done', findings = CAST(:stored AS jsonb),"
        " former = jsonb_build_object('findings', CAST(:stored AS jsonb))",
        stored=json.dumps(stored),
    )
    assert len({table for table, _ in leftovers(world.database.url, ["Zqana"])}) >= 6
    before, kept = await others_rows(world, [other]), await call_ids(world)
    erasure = await erased(world, Target(ErasureKind.MEMBER, member.user_id), policy=voices.VOICES)
    assert erasure is not None and (erasure.counts["members"], erasure.counts["voiceprints"]) == (1, 3)
    assert erasure.counts["records"] == 2
    assert leftovers(world.database.url, ["Zqana", "Zqkess", "Zqannie", "Zqborn"]) == []
    assert await call_ids(world) == kept
    assert await others_rows(world, [other]) == before
    assert await world.rows("SELECT 1 FROM voice_centroids WHERE user_id = :m", m=member.user_id) == []
    assert [row["user_id"] for row in await world.rows("SELECT user_id FROM voiceprints")] == [bo]
    (summary,) = await world.rows(
        "SELECT value FROM findings JOIN calls ON id = call_pk WHERE step = 'summary' AND call_id = :call",
        call=by_sender,
    )
    assert summary["value"]["text"] == SUMMARY.replace("Zqana Zqkess", "rep")
    assert await ledger_kinds(world) == ["member"]


async def ledger_kinds(world: World) -> list[str]:
    async with world.database.transaction(world.workspace_id) as connection:
        return [entry.kind for entry in await ledger.entries(connection, world.workspace_id)]


async def test_a_voice_of_an_erased_member_is_not_stored_again(world: World) -> None:
    member = await voices.member(world, "Ana")
    await voices.call(world, voices.voice(voices.ANA, 1), member)
    await erased(world, Target(ErasureKind.MEMBER, member), policy=voices.VOICES)
    await voices.call(world, voices.voice(voices.ANA, 2), member)
    for table in ("voiceprints", "voice_centroids"):
        assert await world.rows(f"SELECT 1 FROM {table}") == []
    assert await world.rows("SELECT 1 FROM stage_results WHERE stage = :stage", stage=Stage.VOICEPRINT) == []
    await directory.add_member(world.database, world.workspace_id, "Ana", member)
    await voices.call(world, voices.voice(voices.ANA, 3), member)
    assert len(await world.rows("SELECT 1 FROM voiceprints")) == 1


async def test_results_that_were_being_computed_lose_the_name_as_well(world: World) -> None:
    member = await directory.add_member(world.database, world.workspace_id, "Zqana Zqkess")
    call_id = uuid4()
    await world.submit(call_id=call_id, recording_url="https://s.example/a", user_id=member.user_id)
    lease = await claimed(world, call_id)
    erasing_member = asyncio.create_task(erased(world, Target(ErasureKind.MEMBER, member.user_id)))
    async with asyncio.timeout(30):
        while await world.rows("SELECT 1 FROM members"):
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        assert not erasing_member.done()
        found = of_agent(member.user_id, "Zqana Zqkess")
        assert await complete(world.database, lease, transcript(*TALK), found, voices.voice(voices.ANA, 1)) is None
        assert leftovers(world.database.url, ["Zqana"])
        erasure = await erasing_member
    assert erasure is not None and erasure.state == "done"
    assert leftovers(world.database.url, ["Zqana", "Zqkess"]) == []
    assert await world.rows("SELECT 1 FROM voiceprints") == []


async def test_a_team_is_erased_with_its_calls(world: World) -> None:
    calls = await persons_calls(world)
    view = await saved_views.save(world.database, Reader(world.workspace_id, world.team_id), "mine", "status=completed")
    erasure = await erased(world, Target(ErasureKind.TEAM, world.team_id))
    assert erasure is not None and (erasure.counts["calls"], erasure.counts["teams"]) == (3, 1)
    assert await call_ids(world) == {calls[1]} and view is not None
    assert await world.rows("SELECT 1 FROM saved_views") == []
    assert [row["id"] for row in await world.rows("SELECT id FROM teams")] == [world.other_team_id]
    assert (await ledger_kinds(world)).count("call") == 3


async def test_a_workspace_is_erased_with_entries_for_its_calls(world: World) -> None:
    stranger = await new_world(world.database)
    other = await finished(stranger)
    await persons_calls(world)
    await erased(world, Target(ErasureKind.WORKSPACE, world.workspace_id))
    assert leftovers(world.database.url, PLANTED) == []
    assert await call_ids(world) == {other}
    assert await ledger_kinds(world) == ["call"] * 4 + ["workspace"]


async def test_two_erasures_and_a_resubmission_at_once(world: World) -> None:
    calls = await persons_calls(world) + [await finished(world, from_number=NUMBER) for _ in range(4)]
    contact = await directory.add_contact(world.database, world.workspace_id, NAME, None, MAIL, NUMBER)

    async def resubmit() -> None:
        for call_id in calls:
            await world.submit(world.wide, call_id=call_id, from_number=NUMBER, team_id=await team_of(world, call_id))

    targets = (PERSON, PERSON, Target(ErasureKind.CONTACT, UUID(contact.contact_id)))
    async with asyncio.timeout(60):
        *results, _ = await asyncio.gather(*(erased(world, target) for target in targets), resubmit())
    assert {result.state for result in results if result} == {"done"}
    assert sum(result.counts.get("calls", 0) for result in results if result) == len(calls)
    assert leftovers(world.database.url, PLANTED) == []
    assert await call_ids(world) == set()


async def team_of(world: World, call_id: UUID) -> UUID:
    query = "SELECT team_id FROM calls WHERE call_id = :call"
    return next((row["team_id"] for row in await world.rows(query, call=call_id)), world.team_id)


async def test_calls_that_arrive_in_the_meantime_are_erased(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await persons_calls(world)
    erase_call, arrived = erase.erase_call, []

    async def erase_and_receive(*args: Any) -> Any:
        result = await erase_call(*args)
        if not arrived:
            arrived.append(await received(world, from_number=NUMBER))
        return result

    monkeypatch.setattr(erase, "erase_call", erase_and_receive)
    erasure = await erased(world, PERSON)
    assert erasure is not None and erasure.counts["calls"] == 4 + len(arrived)
    assert await call_ids(world) == set()


async def test_held_calls_are_counted_and_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = await persons_calls(world)
    erase_call = erase.erase_call

    async def refuse(database: Any, workspace: UUID, call_id: UUID, *args: Any) -> Any:
        if call_id == calls[0]:
            raise erase.CallHeld
        return await erase_call(database, workspace, call_id, *args)

    monkeypatch.setattr(erase, "erase_call", refuse)
    for target in (PERSON, Target(ErasureKind.TEAM, world.team_id), Target(ErasureKind.WORKSPACE, world.workspace_id)):
        erasure = await erased(world, target)
        assert erasure is not None and (erasure.state, erasure.counts["held"]) == ("done", 1)
        assert await call_ids(world) == {calls[0]}
    assert len(await world.rows("SELECT 1 FROM contacts")) == 1


async def test_another_process_takes_over_and_the_first_one_stops(world: World) -> None:
    await persons_calls(world)
    erasure = await created(world, PERSON)
    lease = await erasures.claim(world.database)
    assert lease is not None and await erasures.claim(world.database) is None
    await world.execute("UPDATE erasures SET lease_until = now()")
    second = await erasures.claim(world.database)
    assert second is not None and second.run == lease.run + 1
    with pytest.raises(ErasureLost):
        await erase.work(world.database, lease, Voices())
    assert len(await call_ids(world)) == 4
    await erase.work(world.database, second, Voices())
    with pytest.raises(ErasureLost):
        await erasures.renew(world.database, second)
    assert await call_ids(world) == set() and erasure.state == "running"


async def test_it_continues_without_the_key_that_started_it(world: World) -> None:
    await persons_calls(world)
    key, _ = await keys.create(world.database, world.workspace_id, None, ["admin"], "dpo")
    await created(world, PERSON, Actor("", key.key_id))
    await keys.create(world.database, world.workspace_id, None, ["admin"], "second")
    await keys.revoke(world.database, key.key_id, world.workspace_id)
    assert await ErasureLoop(
        world.database, ErasureOptions(), LedgerCopies("memory://", ()), None, Voices()
    ).erase_next()
    assert await call_ids(world) == set()
    (change,) = await world.rows("SELECT * FROM admin_changes WHERE kind = 'number'")
    assert (change["who"], change["key_id"], change["object_id"]) == ("dpo", key.key_id, "")


KILLED = """
import asyncio, importlib, sys
from uuid import UUID
from db.core.database import Database
from db.records import erasures
from db.records import erase
from pipeline.speakers.profile import Voices

async def main():
    url, erasure_id, module_name, name, number = sys.argv[1:]
    module, calls = importlib.import_module(module_name), 0
    step = getattr(module, name)

    async def block(*args, **options):
        nonlocal calls
        calls += 1
        if calls == int(number):
            print("blocked", flush=True)
            await asyncio.sleep(600)
        return await step(*args, **options)

    setattr(module, name, block)
    async with await Database.open(url) as database:
        lease = await erasures.claim(database, UUID(erasure_id))
        await erase.work(database, lease, Voices())

asyncio.run(main())
"""
STEPS = {
    "before the first call": ("db.records.erase", "erase_call", 1),
    "inside the first call": ("db.records.erasures", "count", 2),
    "between two calls": ("db.records.erase", "erase_call", 3),
    "after the calls": ("db.records.erase", "_end", 1),
    "inside the end": ("db.records.erasures", "finish", 1),
    "before the commit": ("db.records.ledger", "append", 5),
}
MEMBER_STEPS = {
    "before the member": ("db.records.forget_member", "_remove", 1),
    "inside the member": ("db.records.erasures", "count", 1),
    "before the records": ("db.records.forget_member", "_forget_in_calls", 1),
    "inside a record": ("db.records.forget_member", "_in_events", 1),
    "before the second pass": ("db.records.forget_member", "_running", 1),
    "inside the end": ("db.records.erasures", "finish", 1),
}


async def killed(world: World, erasure_id: UUID, step: tuple[str, str, int]) -> None:
    """Run an erasure in a process of its own, and kill it at a step."""
    assert callable(getattr(importlib.import_module(step[0]), step[1]))
    arguments = [world.database.url, str(erasure_id), *map(str, step)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, *arguments, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"blocked\n"
    process.kill()
    await process.wait()
    await world.execute("UPDATE erasures SET lease_until = now()")


@pytest.mark.cases(3)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
async def test_a_killed_erasure_is_resumed(world: World, step: tuple[str, str, int]) -> None:
    other = await finished(world)
    calls = await persons_calls(world)
    await directory.add_contact(world.database, world.workspace_id, NAME, None, MAIL, NUMBER)
    erasure = await created(world, PERSON)
    before = await others_rows(world, [other])
    await killed(world, erasure.erasure_id, step)
    tables = [name for name, table in metadata.tables.items() if "call_pk" in table.c and name != "webhook_deliveries"]
    for table in tables:  # nothing is half there
        query = (
            f"SELECT 1 FROM {table} t WHERE call_pk IS NOT NULL AND NOT EXISTS (SELECT FROM calls WHERE id = call_pk)"
        )
        assert await world.rows(query) == []
    left = await call_ids(world) & set(calls)
    stored = await erasures.find(world.database, Reader(world.workspace_id), erasure.erasure_id)
    assert stored is not None and (stored.state, stored.counts.get("calls", 0)) == ("running", 4 - len(left))
    assert await ErasureLoop(
        world.database, ErasureOptions(), LedgerCopies("memory://", ()), None, Voices()
    ).erase_next()
    done = await erasures.find(world.database, Reader(world.workspace_id), erasure.erasure_id)
    assert done is not None and (done.state, done.counts["calls"]) == ("done", 4)
    assert leftovers(world.database.url, PLANTED) == []
    assert await others_rows(world, [other]) == before
    assert await ledger_kinds(world) == ["call"] * 4 + ["number"]


@pytest.mark.cases(3)
@pytest.mark.parametrize("step", MEMBER_STEPS.values(), ids=MEMBER_STEPS)
async def test_a_killed_erasure_of_a_member_is_resumed(world: World, step: tuple[str, str, int]) -> None:
    member = await directory.add_member(world.database, world.workspace_id, "Zqana Zqkess")
    for _ in range(2):
        await finished(world, found=of_agent(member.user_id, "Zqana Zqkess"))
    erasure = await created(world, Target(ErasureKind.MEMBER, member.user_id))
    await killed(world, erasure.erasure_id, step)
    assert await ErasureLoop(
        world.database, ErasureOptions(), LedgerCopies("memory://", ()), None, Voices()
    ).erase_next()
    assert leftovers(world.database.url, ["Zqana", "Zqkess"]) == []
    done = await erasures.find(world.database, Reader(world.workspace_id), erasure.erasure_id)
    assert done is not None and (done.state, done.counts["members"], done.counts["records"]) == ("done", 1, 2)
    assert await ledger_kinds(world) == ["member"]


async def test_the_api_erases_persons(api: Api) -> None:
    world = api.world
    calls = await persons_calls(world)
    member = await directory.add_member(world.database, world.workspace_id, "Ana", team_id=world.team_id)
    secrets = {}
    for name, team, scopes in (("wide", None, ["admin"]), ("team", world.team_id, ["admin"]), ("edit", None, ["edit"])):
        _, secrets[name] = await keys.create(world.database, world.workspace_id, team, scopes, name)

    def send(key: str, method: str, path: str = "", **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {secrets[key]}"}
        content = body if method == "POST" else None
        return api.client.request(method, f"{api.base}/erasures{path}", json=content, headers=headers)

    assert send("edit", "POST", number=NUMBER).status_code == 403
    for faulty in ({}, {"number": NUMBER, "callId": str(calls[0])}, {"dryRun": True}, {"contactId": str(uuid4())}):
        assert send("wide", "POST", **faulty).status_code == 400
    before = await everything(world)
    answer = send("wide", "POST", number=SPOKEN, dryRun=True)
    assert (answer.status_code, answer.json()) == (200, {"matched": {"calls": 4, "contacts": 1}, "erasure": None})
    assert await everything(world) == before
    # A key of a team erases only calls of its team, and neither members nor teams.
    assert send("team", "POST", callId=str(calls[1])).status_code == 400
    assert send("team", "POST", memberId=str(member.user_id)).status_code == 403
    assert send("team", "POST", teamId=str(world.team_id)).status_code == 403
    answer = send("team", "POST", number=NUMBER)
    assert (answer.status_code, answer.json()["matched"]) == (202, {"calls": 3})
    loop = eraser(world)
    assert await loop.erase_next() and not await loop.erase_next()
    assert await call_ids(world) == {calls[1]}
    shown = send("team", "GET", f"/{answer.json()['erasure']['erasureId']}").json()
    assert (shown["status"], shown["counts"]["calls"], shown["kind"]) == ("done", 3, "number")
    assert send("wide", "POST", callId=str(calls[1])).status_code == 202
    assert await loop.erase_next()
    assert await call_ids(world) == set() and leftovers(world.database.url, PLANTED) == []
    page = send("wide", "GET", "?limit=1").json()
    assert [item["kind"] for item in page["items"]] == ["call"]
    assert [item["kind"] for item in send("wide", "GET", f"?cursor={page['next']}").json()["items"]] == ["number"]
    assert [item["kind"] for item in send("team", "GET").json()["items"]] == ["number"]
    assert send("team", "GET", f"/{page['items'][0]['erasureId']}").status_code == 404


async def test_the_command_erases_persons(world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    calls = await persons_calls(world)
    await directory.add_member(world.database, world.workspace_id, "Ana")

    async def run(*arguments: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, app, ["erase", *arguments])

    for unclear in ([], ["--number", ""], ["--number", NUMBER, "--call", str(calls[0])]):
        result = await run(*unclear, "--yes")
        assert result.exit_code == 2 and "exactly one" in result.stderr, result.output
    assert (await run("--number", NUMBER)).exit_code == 2
    before = await everything(world)
    result = await run("--number", SPOKEN, "--dry-run", "--json")
    assert json.loads(result.stdout) == {"matched": {"calls": 4, "contacts": 1}}
    assert await everything(world) == before
    result = await run("--number", SPOKEN, "--yes", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["counts"]["calls"] == 4, result.output
    assert leftovers(world.database.url, PLANTED) == []
    result = await run("--member", "Ana", "--yes")
    assert result.exit_code == 0 and "Deleted member Ana." in result.stdout, result.output
    assert await world.rows("SELECT 1 FROM members") == []
    result = await run("--workspace", "Acme", "--yes", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["status"] == "done", result.output
    assert await world.rows("SELECT 1 FROM workspaces") == []


async def test_the_console_deletes_contacts(world: World, postgres_url: str, tmp_path: Path) -> None:
    call_id = (await persons_calls(world))[0]
    (contact,) = await world.rows("SELECT id FROM contacts")
    path = f"/contacts/{contact['id']}/delete"
    with serving.served(build_console(Settings(database_url=postgres_url, data_dir=tmp_path))) as base:
        for team, scopes, deletes in (
            (None, ["read", "edit"], False),
            (world.team_id, ["read", "admin"], False),
            (None, ["read", "admin"], True),
        ):
            _, secret = await keys.create(world.database, world.workspace_id, team, scopes, "user")
            async with httpx.AsyncClient(base_url=base, headers={"Sec-Fetch-Site": "same-origin"}) as client:
                await client.post("/sign-in", data={"key": secret})
                assert (path in (await client.get(f"/calls/{call_id}")).text) is deletes
                form = {"Content-Type": "application/x-www-form-urlencoded"}
                assert (await client.post(path, headers=form)).status_code == (303 if deletes else 403)
                unknown = await client.post(f"/contacts/{uuid4()}/delete", headers=form)
                assert unknown.status_code == (404 if deletes else 403)
    assert await ErasureLoop(
        world.database, ErasureOptions(), LedgerCopies("memory://", ()), None, Voices()
    ).erase_next()
    assert leftovers(world.database.url, PLANTED) == []


def test_a_name_of_one_word_is_replaced_only_as_a_speaker() -> None:
    from db.records.forget_member import nameless

    user_id = str(uuid4())
    stored = [
        {"step": "agent", "value": {"user_id": user_id, "name": "Will", "spoken_name": "Will"}, "evidence": [1]},
        {"step": "summary", "value": {"text": "Will: I will. Will you call? Willow: no.", "quote": "Will: x"}},
        {"step": "tasks", "value": {"tasks": [{"title": "Will: x"}]}},
    ]
    agent, summary, tasks = nameless(stored, user_id)
    assert agent["value"]["name"] is None and agent["evidence"] == []
    assert summary["value"] == {"text": "rep: I will. Will you call? Willow: no.", "quote": "Will: x"}
    assert tasks == stored[2]
    assert nameless(stored, str(uuid4())) == stored
