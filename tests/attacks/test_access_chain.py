"""Whoever changes the access log of a past hour is found out; erasures, retention and late writes break nothing."""

import asyncio
import csv
import json
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from typer.testing import CliRunner, Result

from db.core.database import EVERY_WORKSPACE, Reader
from db.records import correct, erase
from db.records.corrections import Editor
from db.secrets.encryption import Sealer
from db.workspace import access_chain, access_log, keys
from db.workspace.access_chain import Verified
from db.workspace.admin_log import Actor
from pipeline.domain.edits import EditKind
from pipeline.speakers.profile import Voices
from serve_app.cli import app
from serve_app.cli.ui.output import camel, moment
from serve_app.conductor.webhooks import WebhookDispatcher
from serve_app.webhooks.options import WebhookOptions
from tests.finished import finished
from tests.postgres import World, new_world
from tests.reading_api import served

HOURS = 5
BEGIN = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)


def tampered(url: str, statement: str, *values: object) -> int:
    """Run a statement as the owner of the database, without policies and triggers."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        return connection.execute(statement, values).rowcount


async def planted(world: World, url: str, calls: int = 3) -> list[UUID]:
    """Log reads of calls in each of `HOURS` hours two days ago; return the calls."""
    call_ids = [uuid4() for _ in range(calls)]
    statement = """
        INSERT INTO reads (workspace_id, call_id, key_id, what, detail, hour, first_at, last_at)
        SELECT %s, call_id, %s, 'transcript', detail, hour, hour + interval '1 min', hour + interval '2 min'
        FROM unnest(%s::uuid[]) AS call_id, unnest('{txt,srt}'::text[]) AS detail, unnest(%s::timestamptz[]) AS hour
    """
    hours = [hour_of(back) for back in range(1, HOURS + 1)]
    tampered(url, statement, world.workspace_id, world.wide.key_id, call_ids, hours)
    return call_ids


async def verified(world: World, contains: str | None = None) -> Verified:
    return await access_chain.verify(world.database, world.workspace_id, world.workspace_id, contains)


def hour_of(back: int) -> datetime:
    return BEGIN - timedelta(hours=back)


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seal an hour as soon as it ends, so that no test waits for it."""
    monkeypatch.setattr(access_chain, "GRACE", timedelta())


async def test_past_hours_are_sealed_once_and_the_present_one_is_not(world: World, postgres_url: str) -> None:
    await planted(world, postgres_url)
    await access_log.note(world.database, Reader(world.workspace_id), world.wide.key_id, [uuid4()], "record")
    assert await access_chain.seal(world.database) == HOURS
    assert await access_chain.seal(world.database) == 0
    state = await verified(world)
    assert (state.entries, state.rows, state.problem) == (HOURS, HOURS * 3, None), "formats are not part of it"
    assert state.sealed_until == BEGIN


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE reads SET count = count + 1 WHERE hour = %s",
        "UPDATE reads SET key_id = gen_random_uuid() WHERE hour = %s",
        "UPDATE reads SET what = 'search' WHERE hour = %s AND detail = 'txt'",
        "UPDATE reads SET last_at = last_at + interval '1 us' WHERE hour = %s",
        "UPDATE reads SET operator = 'somebody else' WHERE hour = %s",
        "DELETE FROM reads WHERE hour = %s AND detail = 'txt'",
        "DELETE FROM reads WHERE hour = %s",
        "INSERT INTO reads (workspace_id, call_id, key_id, what, hour)"
        " SELECT workspace_id, gen_random_uuid(), key_id, 'record', hour FROM reads WHERE hour = %s LIMIT 1",
        "UPDATE read_seals SET digest = sha256('x') WHERE hour = %s",
        "UPDATE read_seals SET rows = rows - 1 WHERE hour = %s",
        "UPDATE read_seals SET at = at - interval '1 day' WHERE hour = %s",
    ],
)
async def test_the_first_hour_that_was_changed_is_found(world: World, postgres_url: str, statement: str) -> None:
    await planted(world, postgres_url)
    await access_chain.seal(world.database)
    assert tampered(postgres_url, statement, hour_of(2)) > 0
    state = await verified(world)
    assert state.hour == hour_of(2)
    assert state.problem


async def test_an_entry_that_is_taken_out_is_found(world: World, postgres_url: str) -> None:
    await planted(world, postgres_url)
    await access_chain.seal(world.database)
    tampered(postgres_url, "DELETE FROM reads WHERE hour = %s", hour_of(3))
    tampered(postgres_url, "DELETE FROM read_seals WHERE hour = %s", hour_of(3))
    state = await verified(world)
    assert state.problem == "entry 3 of the chain is missing"
    assert state.hour == hour_of(2)


async def test_a_chain_that_is_written_anew_lacks_a_hash_of_the_former_one(world: World, postgres_url: str) -> None:
    await planted(world, postgres_url)
    await access_chain.seal(world.database)
    former = (await verified(world)).head
    tampered(postgres_url, "DELETE FROM read_seals")
    tampered(postgres_url, "DELETE FROM reads WHERE hour = %s", hour_of(1))
    await access_chain.seal(world.database)
    assert (await verified(world)).problem is None, "the chain alone cannot show it"
    assert (await verified(world, former)).problem == "the chain does not contain the given hash"


async def test_nothing_that_the_service_may_do_changes_a_past_hour(world: World, postgres_url: str) -> None:
    await planted(world, postgres_url)
    await access_chain.seal(world.database)
    changes = ("UPDATE reads SET count = 100", "UPDATE read_seals SET rows = 0", "DELETE FROM read_seals")
    for scope, change in product((world.workspace_id, EVERY_WORKSPACE), changes):
        with suppress(DBAPIError):
            await world.database.change(scope, sa.text(change))
    assert (await verified(world)).problem is None
    assert (await verified(world)).entries == HOURS


async def test_a_write_that_comes_late_goes_into_the_present_hour(world: World, postgres_url: str) -> None:
    (call_id, *_) = await planted(world, postgres_url)
    await access_chain.seal(world.database)
    reader = Reader(world.workspace_id)
    await access_log.note(world.database, reader, world.wide.key_id, [call_id], "transcript", "txt")
    latest, *others = await access_log.list_reads(world.database, reader, call_id)
    assert (latest.hour > BEGIN, latest.count) == (True, 1)
    assert len(others) == 2 * HOURS
    assert (await verified(world)).problem is None


async def test_the_erasure_of_a_call_leaves_the_chain_whole_and_its_changes_in_the_log(
    world: World, postgres_url: str
) -> None:
    call_id = await finished(world)
    reader, key = Reader(world.workspace_id), world.wide.key_id
    for editor, kind in ((Editor(key), EditKind.AGENT), (Editor(None, None, "ana"), EditKind.ROLES)):
        edit = correct.WantedEdit(kind, None if kind is EditKind.AGENT else False, kind is EditKind.ROLES or None)
        await correct.make(world.database, reader, editor, call_id, edit)
    await access_log.note(world.database, reader, key, [call_id], "transcript", "txt", "r-1")
    await access_log.note(world.database, reader, key, [call_id], "transcript", "srt", "r-2")
    tampered(postgres_url, "UPDATE reads SET hour = hour - interval '2 hours'")
    assert await access_chain.seal(world.database) == 1
    await erase.erase_call(world.database, world.workspace_id, call_id, Voices(), Actor("olga"))
    reads = await access_log.list_reads(world.database, EVERY_WORKSPACE, call_id)
    assert [(read.what, read.name, read.count) for read in reads[:1]] == [("erasure", "olga", 1)]
    assert {(read.what, read.key_id, read.count) for read in reads[1:]} == {
        ("correction", key, 1),
        ("correction", access_log.operator_id("ana"), 1),
        ("transcript", key, 2),
    }
    assert {read.detail for read in reads} == {""}
    assert (await verified(world)).problem is None


async def test_retention_leaves_the_chain_whole_and_hides_no_other_deletion(
    world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await planted(world, postgres_url)
    await access_chain.seal(world.database)
    half_an_hour = timedelta(minutes=30)
    monkeypatch.setattr(access_log, "RETENTION", datetime.now(UTC) - hour_of(3) - half_an_hour)
    monkeypatch.setattr(access_log, "SWEEP_ROWS", 4)
    swept = []
    while count := await access_log.sweep(world.database):
        swept.append(count)
        assert (await verified(world)).problem is None, "an hour may be half deleted at this moment"
    assert sum(swept) == 2 * 6
    state = await verified(world)
    assert (state.entries, state.rows, state.problem) == (HOURS + 1, 3 * 3, None)
    tampered(postgres_url, "DELETE FROM reads WHERE hour = %s", hour_of(3))
    assert (await verified(world)).hour == hour_of(3)


async def test_two_processes_that_seal_at_once_make_one_chain(world: World, postgres_url: str) -> None:
    await planted(world, postgres_url)
    await asyncio.gather(*(access_chain.seal(world.database) for _ in range(4)))
    state = await verified(world)
    assert (state.entries, state.problem) == (HOURS, None)


async def test_rows_of_other_workspaces_are_never_listed(world: World) -> None:
    other = await new_world(world.database)
    call_id = uuid4()
    for home, key in ((world.workspace_id, world.wide.key_id), (other.workspace_id, other.wide.key_id)):
        await access_log.note(world.database, Reader(home), key, [call_id, uuid4(), uuid4()], "record")
    for home, key in ((world.workspace_id, world.wide.key_id), (other.workspace_id, other.wide.key_id)):
        filter_ = access_log.ReadFilter()
        listed, cursor = [], None
        while True:
            page = await access_log.list_all(world.database, home, home, filter_, cursor, 1)
            listed += page.items
            if (cursor := page.next) is None:
                break
        assert [read.key_id for read in listed] == [key] * 3
        crossed = await access_log.list_all(world.database, other.workspace_id, world.workspace_id, filter_)
        assert crossed.items == ()
    by_call = access_log.ReadFilter(call_id=call_id, key_id=world.wide.key_id)
    page = await access_log.list_all(world.database, world.workspace_id, world.workspace_id, by_call)
    assert [read.call_id for read in page.items] == [call_id]
    later = access_log.ReadFilter(since=datetime.now(UTC) + timedelta(minutes=1))
    assert not (await access_log.list_all(world.database, world.workspace_id, world.workspace_id, later)).items
    earlier = access_log.ReadFilter(until=datetime.now(UTC) - timedelta(minutes=5))
    assert not (await access_log.list_all(world.database, world.workspace_id, world.workspace_id, earlier)).items


async def test_the_api_lists_the_log_to_administrators_of_the_workspace_only(world: World, postgres_url: str) -> None:
    other = await new_world(world.database)
    mine, theirs, erased = uuid4(), uuid4(), await finished(world)
    for home, key, call_id in ((world, world.wide, mine), (other, other.wide, theirs)):
        await access_log.note(world.database, Reader(home.workspace_id), key.key_id, [call_id], "audio", "mixed")
    await erase.erase_call(world.database, world.workspace_id, erased, Voices(), Actor("olga"))
    secrets = [
        (await keys.create(world.database, home.workspace_id, team, [scope], "Ana"))[1]
        for home, team, scope in (
            *((world, None, "admin"), (world, None, "read"), (other, None, "admin"), (world, world.team_id, "admin")),
        )
    ]
    with served(postgres_url) as base:
        async with httpx.AsyncClient(base_url=base, timeout=60) as client:

            async def listed(secret: str, **query: str) -> httpx.Response:
                return await client.get("/access-log", params=query, headers={"Authorization": f"Bearer {secret}"})

            admin, reader, stranger, team = secrets
            answer = (await listed(admin)).json()
            assert {(row["callId"], row["what"], row["name"]) for row in answer["items"]} == {
                (str(mine), "audio", "test"),
                (str(erased), "erasure", "olga"),
            }
            assert (await listed(reader)).status_code == 403
            assert [row["callId"] for row in (await listed(stranger)).json()["items"]] == [str(theirs)]
            assert (await listed(team)).json()["items"] == [], "no call of the team"
            assert (await listed(stranger, callId=str(mine))).json()["items"] == []
            first = (await listed(admin, limit="1")).json()
            second = (await listed(admin, limit="1", cursor=first["next"])).json()
            assert [*first["items"], *second["items"]] == answer["items"]
            assert second["next"] is None
            assert (await listed(admin, cursor=first["next"][:-4] + "AAAA")).status_code == 400
            assert (await listed(admin, cursor=first["next"], callId=str(mine))).status_code == 400
            by_key = await listed(admin, keyId=str(world.wide.key_id), since=BEGIN.isoformat())
            (row,) = by_key.json()["items"]
            assert row["callId"] == str(mine)
            earlier = await listed(admin, until=hour_of(1).isoformat())
            assert earlier.json().get("items") == [], earlier.text


async def test_the_commands_print_the_log_and_say_whether_it_holds(
    world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    monkeypatch.setattr("serve_app.cli.workspace.access_log.PAGE", 2)

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, ["access-log", *arguments], env={"COLUMNS": "200"})

    call_ids = await planted(world, postgres_url)
    assert "no sealed hour yet" in (await run("verify")).output
    await access_chain.seal(world.database)
    printed = await run("export")
    assert printed.exit_code == 0, printed.output
    *rows, last = map(json.loads, printed.stdout.splitlines())
    assert len(rows) == HOURS * 6
    assert {row["callId"] for row in rows} == set(map(str, call_ids))
    assert (last["chain"]["holds"], last["chain"]["rows"]) == (True, HOURS * 3)
    as_csv = await run("export", "--format", "csv", "--since", hour_of(2).isoformat())
    header, *lines = csv.reader(as_csv.stdout.splitlines())
    assert header == [camel(field.name) for field in fields(access_log.Read)]
    assert len(lines) == 2 * 6
    assert (await run("verify", "--contains", last["chain"]["head"])).exit_code == 0
    tampered(postgres_url, "UPDATE reads SET count = 7 WHERE hour = %s", hour_of(4))
    for command in (("verify",), ("export",), ("export", "--format", "csv")):
        failed = await run(*command)
        assert failed.exit_code == 1
        assert f"does not hold from {moment(hour_of(4))} on: its rows have changed." in failed.output
    *_, last = map(json.loads, (await run("export")).stdout.splitlines())
    assert datetime.fromisoformat(last["chain"]["hour"]) == hour_of(4)


async def test_a_conductor_seals_past_hours(world: World, postgres_url: str) -> None:
    await planted(world, postgres_url)
    dispatcher = WebhookDispatcher(world.database, WebhookOptions(), Sealer())
    await dispatcher.start()
    try:
        async with asyncio.timeout(20):
            while (await verified(world)).entries < HOURS:
                await asyncio.sleep(0.05)
    finally:
        await dispatcher.stop()
    assert (await verified(world)).problem is None
