"""A workspace whose recordings never arrive, or whose calls never end, does not delay the calls of others."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pipeline.fetch.options import FetchOptions
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.attacks.test_allowed_hosts import fate
from tests.postgres import World, new_world
from tests.recording_server import reply, serving
from tests.tuned import tuned

HELD = "SELECT count(*) AS n FROM jobs WHERE state = 'fetching' AND lease_until IS NOT NULL"


async def test_recordings_that_never_arrive_hold_no_place_of_others(world: World, tmp_path: Path) -> None:
    """Thirty of tenant A, with one place to work on a call and eight to fetch."""

    async def silence(_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(600)

    other = await new_world(world.database)
    options = ProcessOptions(storage=tmp_path.as_uri(), fetch=FetchOptions(allowed_hosts=("127.0.0.1",)))
    few = tuned(
        ProcessingOptions,
        concurrency=1,
        fetch_concurrency=8,
        workspace_share=0.75,
        poll_seconds=0.1,
        lease_seconds=5,
        drain_seconds=0,
    )
    conductor = ConductorLoop(world.database, LocalWorkers(None, None), few, options)
    async with serving(silence) as slow, serving(reply()) as good:
        for _ in range(30):
            world.call_id = uuid4()
            await world.submit(recording_url=slow.url() + f"?call={world.call_id}")
        await conductor.start()
        try:
            while (await world.rows(HELD))[0]["n"] < 4:
                await asyncio.sleep(0.05)
            for _ in range(5):
                other.call_id = uuid4()
                await other.submit(recording_url=good.url() + f"?call={other.call_id}")
                assert await asyncio.wait_for(fate(other), 20) == "fetched"
            (row,) = await world.rows(HELD)
            assert 4 <= row["n"] <= 6
        finally:
            await conductor.stop()


class Endless(LocalWorkers):
    """Every call is worked on without end."""

    async def recognition(self) -> Any:
        await asyncio.sleep(600)


async def test_calls_that_never_end_hold_no_place_of_those_who_have_none(world: World, tmp_path: Path) -> None:
    """Six of tenant A, with two places; B finds one, and no second one as long as A's have to wait."""
    other = await new_world(world.database)
    options = ProcessOptions(storage=tmp_path.as_uri(), fetch=FetchOptions(allowed_hosts=("127.0.0.1",)))
    few = tuned(ProcessingOptions, concurrency=2, poll_seconds=0.1, lease_seconds=5, drain_seconds=0)
    conductor = ConductorLoop(world.database, Endless(None, None), few, options)

    async def at_work() -> Counter[UUID]:
        rows = await world.rows(
            "SELECT c.workspace_id AS id FROM jobs j JOIN calls c ON c.id = j.call_pk WHERE j.state = 'running'"
        )
        return Counter(row["id"] for row in rows)

    async with serving(reply()) as good:
        await conductor.start()
        try:
            for workspace, calls, expected in (
                (world, 6, {world.workspace_id: 2}),
                (other, 3, {world.workspace_id: 2, other.workspace_id: 1}),
            ):
                for _ in range(calls):
                    workspace.call_id = uuid4()
                    await workspace.submit(recording_url=good.url() + f"?call={workspace.call_id}")
                    assert await asyncio.wait_for(fate(workspace), 20) == "fetched"
                async with asyncio.timeout(60):
                    while await at_work() != expected:
                        await asyncio.sleep(0.05)
            await asyncio.sleep(1)
            assert await at_work() == expected
        finally:
            await conductor.stop()
