import asyncio
import io
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import soundfile

from db.core.database import Database
from db.queue import backlog
from db.queue.backlog import MeasuredRtfx
from serve_app.conductor.loop import ConductorLoop
from tests.chaos.deadly_conductor import OPTIONS, PAUSE, conducting
from tests.chaos.wire import WAYS, Wire
from tests.cluster import ROOT
from tests.file_server import FileServer
from tests.postgres import World

SPEED = 100.0  # seconds of audio that other calls get done in a second: what a second of a place is worth
ALONE = OPTIONS.model_copy(update={"concurrency": 1, "guests": 0, "drain_seconds": 0})


@asynccontextmanager
async def conductor(world: World, folder: Path, fetches_only: bool = False) -> AsyncIterator[ConductorLoop]:
    loop = conducting(world.database, folder.as_uri(), ALONE)
    if fetches_only:
        loop._running.suspect = uuid4()  # as if a quarantined job ran: no other call begins
    await loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


async def until(world: World, query: str, count: int = 1) -> list[Any]:
    async with asyncio.timeout(180):
        while len(rows := await world.rows(query)) < count:
            await asyncio.sleep(0.05)
        return rows


@pytest.fixture
async def fetched(world: World, tmp_path: Path) -> AsyncIterator[Path]:
    """Submit a fetched call of each of two teams; return the folder of their recordings."""
    await backlog.record_rtfx(world.database, [MeasuredRtfx("call", 2, 10, 60.0 * SPEED, 60.0)])
    sound = io.BytesIO()
    soundfile.write(sound, np.zeros((16000, 2)) + 0.01, 8000, format="WAV", subtype="PCM_16")
    recording = tmp_path / "call.wav"
    recording.write_bytes(sound.getvalue())
    with FileServer() as files:
        for sender in (world.scoped, world.other_scoped):
            await world.submit(sender, call_id=uuid4(), recording_url=files.add(recording), duration=2)
        async with conductor(world, tmp_path, fetches_only=True):
            await until(world, "SELECT FROM jobs WHERE state = 'queued'", 2)
        yield tmp_path


async def killed(world: World, folder: Path, moment: str) -> None:
    """Run a Conductor's process that is killed around the commit that ends its first call."""
    command = (sys.executable, "-m", "tests.chaos.dies_at_the_end", world.database.url, folder.as_uri(), moment)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    try:
        assert await asyncio.wait_for(process.wait(), 180) == -signal.SIGKILL
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


CHARGED = """
    SELECT j.team_id, t.ended - t.began AS charged, extract(epoch FROM j.finished_at - j.started_at)::float AS held,
        j.attempts
    FROM jobs j JOIN turns t ON t.team_id = j.team_id AND t.live = j.live
    WHERE j.state = 'done' AND t.generation = (SELECT max(generation) FROM turns) ORDER BY j.finished_at LIMIT 1
"""


async def charged_once(world: World) -> Any:
    """Check that the first finished call's team pays for its seconds, and no other team."""
    (row,) = await until(world, CHARGED)
    share = row["charged"] / (SPEED * row["held"])  # in seconds of audio; the claim comes a little before the work
    assert 0.5 < share < 1.25
    return row


@pytest.mark.slow
async def test_a_process_that_is_killed_after_a_call_has_ended_has_charged_for_it(world: World, fetched: Path) -> None:
    await killed(world, fetched, "after")
    row = await charged_once(world)
    async with conductor(world, fetched):
        await until(world, "SELECT FROM calls WHERE state = 'completed'", 2)
    assert await charged_once(world) == row, "not once more by others"


@pytest.mark.slow
async def test_a_process_that_is_killed_before_a_call_has_ended_leaves_it_to_the_next_which_charges_for_it(
    world: World, fetched: Path
) -> None:
    await killed(world, fetched, "before")
    (job,) = await world.rows("SELECT id FROM jobs WHERE state = 'running'")
    async with conductor(world, fetched):
        await until(world, "SELECT FROM jobs WHERE state = 'done'")
        row = await charged_once(world)
        await until(world, "SELECT FROM calls WHERE state = 'completed'", 2)
    (first,) = await world.rows("SELECT id FROM jobs ORDER BY finished_at LIMIT 1")
    assert (first["id"], row["attempts"]) == (job["id"], 2)


async def test_a_process_that_leaves_in_the_middle_of_a_call_has_charged_for_it(world: World, fetched: Path) -> None:
    async with conductor(world, fetched):
        (job,) = await until(world, "SELECT team_id FROM jobs WHERE state = 'running'")
        await asyncio.sleep(0.5)
    turns = "SELECT ended - began AS charged FROM turns WHERE team_id = :team ORDER BY generation DESC LIMIT 1"
    (row,) = await world.rows(turns, team=job["team_id"])
    assert row["charged"] > 0.4 * SPEED


@pytest.fixture
async def wire(world: World) -> AsyncIterator[Wire]:
    strung = Wire(Path(world.database.url.partition("host=")[2]))
    async with strung.strung():
        yield strung


@asynccontextmanager
async def cut_off(world: World, folder: Path, wire: Wire, way: str) -> AsyncIterator[ConductorLoop]:
    """Run a Conductor whose connection is cut around the commit of its next charge."""
    database = await Database.open(wire.through(world.database.url))
    loop = conducting(database, folder.as_uri(), ALONE)
    try:
        await loop.start()
        wire.arm(way, b"settle_turns")
        yield loop
    finally:
        await loop.stop()
        await database.close()


@pytest.mark.parametrize(
    "way", ["after", *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS if way != "after")]
)
async def test_an_outage_while_a_call_ends_leaves_its_charge_made_once(
    world: World, fetched: Path, wire: Wire, way: str
) -> None:
    async with cut_off(world, fetched, wire, way):
        row = await charged_once(world)
    assert await charged_once(world) == row, "an unconfirmed charge is settled when it stops"
    assert wire.cuts.total() == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_an_outage_while_a_lost_call_is_charged_for_leaves_the_charge_made_once(
    world: World, fetched: Path, wire: Wire, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PAUSE, "1.5")  # the other team's call lasts until the charge: a single lane is not charged
    charged = "SELECT ended - began AS seconds FROM turns WHERE ended - began > 50 AND team_id = "
    async with cut_off(world, fetched, wire, way):
        (job,) = await until(world, "SELECT id, team_id FROM jobs WHERE state = 'running'")
        await asyncio.sleep(2)
        await world.execute("UPDATE jobs SET state = 'superseded', lease_until = NULL WHERE id = :id", id=job["id"])
        before = await until(world, f"{charged} '{job['team_id']}'")
    assert await until(world, f"{charged} '{job['team_id']}'") == before, "an unconfirmed charge is settled at the end"
    assert before[0]["seconds"] > 1.5 * SPEED
    assert wire.cuts.total() == 1
