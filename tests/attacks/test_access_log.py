"""A key that reads as fast as it may fills no disk and delays no other reader; no read is returned unlogged."""

import asyncio
import time
from collections import Counter
from datetime import timedelta
from uuid import uuid4

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from db.core.database import EVERY_WORKSPACE, OUTAGES, Reader
from db.secrets.encryption import Sealer
from db.workspace import access_log
from serve_app.conductor.webhooks import WebhookDispatcher
from serve_app.webhooks.options import WebhookOptions
from tests.finished import finished, received
from tests.postgres import World
from tests.reading_api import reading_key, served

COUNT = "SELECT count(*) AS n FROM reads"


async def test_many_reads_of_a_key_leave_a_row_for_each_part_of_a_call(world: World, postgres_url: str) -> None:
    call_ids = [await finished(world, minutes=minutes) for minutes in range(3)]
    key = await reading_key(world)
    paths = [f"/calls/{call_id}{part}" for call_id in call_ids for part in ("", "/transcript.txt")]
    paths += ["/calls?text=invoice", "/export?include=transcript"]
    with served(postgres_url) as base:
        async with httpx.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            for _ in range(5):
                responses = await asyncio.gather(*(client.get(path) for path in paths))
                assert {response.status_code for response in responses} == {200}
    (row,) = await world.rows(COUNT)
    assert row["n"] <= 2 * 3 * 4  # the hour may end during the test
    reads = [read for call in call_ids for read in await access_log.list_reads(world.database, EVERY_WORKSPACE, call)]
    counts: Counter[tuple[str, str]] = Counter()
    for read in reads:
        counts[read.what, read.detail] += read.count
        assert read.first_at <= read.last_at
    parts = (("record", ""), ("transcript", "txt"), ("search", ""), ("export", "transcript"))
    assert counts == dict.fromkeys(parts, 5 * len(call_ids))


async def test_reads_that_wait_for_the_log_share_a_transaction(world: World) -> None:
    reader, key = Reader(world.workspace_id), world.wide.key_id
    calls = [uuid4() for _ in range(64)]
    notes = (access_log.note(world.database, reader, key, [call], "record", request_id=str(call)) for call in calls)
    await asyncio.gather(*notes)
    (row,) = await world.rows("SELECT count(*) AS n, count(DISTINCT xmin::text) AS commits FROM reads")
    assert row["n"] == 64
    assert row["commits"] <= 2
    for call in calls:
        (read,) = await access_log.list_reads(world.database, reader, call)
        assert (read.request_id, read.count) == (str(call), 1)


async def test_a_log_that_cannot_be_written_refuses_reads_soon_and_returns_no_words(
    world: World, postgres_url: str
) -> None:
    call_id = await finished(world)
    key = await reading_key(world)
    with served(postgres_url) as base:
        async with httpx.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            assert (await client.get("/calls")).status_code == 200
            async with world.database.transaction(EVERY_WORKSPACE) as connection:
                await connection.execute(sa.text("LOCK TABLE reads IN EXCLUSIVE MODE"))
                begin = time.monotonic()
                refused = await client.get(f"/calls/{call_id}")
                assert time.monotonic() - begin < access_log.MAX_WAIT_SECONDS + 1.5
                assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
                assert "invoice" not in refused.text
                assert (await client.get("/calls")).status_code == 200, "without words: not logged"
            assert (await client.get(f"/calls/{call_id}")).status_code == 200
    (read,) = await access_log.list_reads(world.database, EVERY_WORKSPACE, call_id)
    assert read.count <= 2


async def test_a_read_that_may_not_be_logged_fails_alone(world: World) -> None:
    mine, theirs = await received(world), await received(world, sender=world.other_scoped)
    team, key = Reader(world.workspace_id, world.team_id), world.scoped.key_id
    outcomes = await asyncio.gather(
        *(access_log.note(world.database, team, key, [call], "audio") for call in (mine, theirs, mine)),
        return_exceptions=True,
    )
    assert [isinstance(outcome, DBAPIError) for outcome in outcomes] == [False, True, False]
    (read,) = await access_log.list_reads(world.database, EVERY_WORKSPACE, mine)
    assert read.count == 2
    assert await access_log.list_reads(world.database, EVERY_WORKSPACE, theirs) == []


async def test_reads_that_gave_up_are_not_logged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "MAX_WAIT_SECONDS", 0.3)
    reader, key = Reader(world.workspace_id), world.wide.key_id
    begun, waiting = uuid4(), uuid4()
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("LOCK TABLE reads IN EXCLUSIVE MODE"))
        first = asyncio.create_task(access_log.note(world.database, reader, key, [begun], "record"))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(access_log.note(world.database, reader, key, [waiting], "record"))
        await asyncio.sleep(0.1)
        second.cancel()
        with pytest.raises(OUTAGES, match="access log"):
            await first
    await access_log.note(world.database, reader, key, [uuid4()], "record")
    assert await access_log.list_reads(world.database, reader, waiting) == []


async def test_rows_are_deleted_after_a_year(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "SWEEP_ROWS", 10)
    reader, key = Reader(world.workspace_id), world.wide.key_id
    recent = [uuid4() for _ in range(3)]
    await access_log.note(world.database, reader, key, [uuid4() for _ in range(25)], "record")
    await world.execute("UPDATE reads SET hour = hour - :age", age=access_log.RETENTION + timedelta(hours=2))
    await access_log.note(world.database, reader, key, recent, "record")
    dispatcher = WebhookDispatcher(world.database, WebhookOptions(), Sealer())
    await dispatcher.start()
    try:
        async with asyncio.timeout(10):
            while (await world.rows(COUNT))[0]["n"] > 3:
                await asyncio.sleep(0.05)
    finally:
        await dispatcher.stop()
    assert [len(await access_log.list_reads(world.database, reader, call)) for call in recent] == [1, 1, 1]
