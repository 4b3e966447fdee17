"""A Conductor that is frozen, or cut off without a word, for longer than its lease. Real processes, real TCP."""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from db.core.database import EVERY_WORKSPACE, OUTAGES, Database
from tests.chaos.deadly_conductor import OPTIONS, PAUSE, conducting
from tests.chaos.recordings import Recordings, noise
from tests.chaos.wire import Wire
from tests.cluster import ROOT
from tests.postgres import World

TABLES = ("calls", "jobs", "recordings", "stage_results", "transcripts", "findings", "tasks")


@pytest.fixture
async def wire(postgres_url: str) -> AsyncIterator[Wire]:
    strung = Wire(Path(postgres_url.partition("host=")[2]))
    async with strung.strung():
        yield strung


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["frozen", pytest.param("silent", marks=pytest.mark.slow)])
async def test_who_wakes_up_behind_its_successor_writes_nothing_and_works_on(
    fault: str, world: World, wire: Wire, tmp_path: Path
) -> None:
    recordings, rng = Recordings(), random.Random(1)
    with recordings.serving():
        async with conductor(wire.through(world.database.url), tmp_path, pause=0.5) as slow:
            await world.submit(recording_url=recordings.add("good", noise(rng)))
            await until(lambda: works_on(world, slow.pid))
            begin_fault(fault, slow.pid, wire)
            try:
                successor = conducting(world.database, tmp_path.as_uri())
                await successor.start()
                await until(lambda: is_completed(world))
                await successor.stop()
                before = await versions(world)
                assert [row["run"] for row in await world.rows("SELECT run FROM jobs")] == [2]
            finally:
                end_fault(fault, slow.pid, wire)
            world.call_id = uuid4()
            await world.submit(recording_url=recordings.add("good", noise(rng)))
            await until(lambda: is_completed(world))
            assert slow.returncode is None
    after = await versions(world)
    assert before == {table: [row for row in after[table] if row in before[table]] for table in TABLES}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("acknowledging", "answer_seconds"), [pytest.param(False, None, marks=pytest.mark.slow), (True, 2.0)]
)
async def test_a_silent_database_is_an_outage_and_is_used_again_when_it_answers(
    acknowledging: bool, answer_seconds: float | None, postgres_url: str, wire: Wire
) -> None:
    """Cover TCP without acknowledgments, and a database that only its deadline detects."""
    database = await Database.open(wire.through(postgres_url), pool_size=2, answer_seconds=answer_seconds)
    try:
        await ask(database)
        wire.silence([os.getpid()], acknowledging)
        with pytest.raises(OUTAGES):
            async with asyncio.timeout(30):
                await ask(database)
        wire.heal()
        started = time.monotonic()
        await ask(database)
        assert time.monotonic() - started < 60
    finally:
        await database.close()


async def ask(database: Database) -> None:
    async with database.transaction(EVERY_WORKSPACE) as connection:
        await connection.execute(sa.text("SELECT 1"))


def begin_fault(fault: str, pid: int, wire: Wire) -> None:
    os.kill(pid, signal.SIGSTOP) if fault == "frozen" else wire.silence([pid])


def end_fault(fault: str, pid: int, wire: Wire) -> None:
    os.kill(pid, signal.SIGCONT) if fault == "frozen" else wire.heal()


@asynccontextmanager
async def conductor(url: str, folder: Path, pause: float) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a Conductor process whose lease is `OPTIONS.lease_seconds`; each CPU task takes `pause` more seconds."""
    command = (sys.executable, "-m", "tests.chaos.deadly_conductor", url, folder.as_uri())
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=os.environ | {PAUSE: str(pause)})
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def works_on(world: World, pid: int) -> bool:
    query = "SELECT FROM jobs WHERE state = 'running' AND stage IS NOT NULL AND worker LIKE :worker"
    return bool(await world.rows(query, worker=f"%:{pid}@%"))


async def is_completed(world: World) -> bool:
    return bool((await world.row())["state"] == "completed")


async def versions(world: World) -> dict[str, list[tuple[Any, ...]]]:
    """Return the version of each row: any rewrite, also with equal values, changes it."""
    return {
        table: [
            tuple(row.values()) for row in await world.rows(f"SELECT ctid::text, xmin::text FROM {table} ORDER BY 1")
        ]
        for table in TABLES
    }


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60 * OPTIONS.lease_seconds):
        while not await condition():
            await asyncio.sleep(0.05)
