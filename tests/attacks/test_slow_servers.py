"""A tenant whose recording server never finishes keeps nobody else's call from being fetched and worked on."""

import asyncio
from pathlib import Path
from uuid import uuid4

from pipeline.audio.fetch import FetchOptions
from pipeline.process import ProcessOptions
from pipeline.workers import LocalWorkers
from serve_app.conductor.loop import Conducting
from serve_app.conductor.retry import ProcessingOptions
from tests.attacks.test_allowed_hosts import fate
from tests.postgres import World, new_world
from tests.unit.test_fetch import reply, serving

HELD = "SELECT count(*) AS n FROM jobs WHERE state = 'fetching' AND lease_until IS NOT NULL"


async def test_recordings_that_never_arrive_hold_no_place_of_others(world: World, tmp_path: Path) -> None:
    """Thirty of tenant A, with one place to work on a call and eight to fetch."""

    async def silence(_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(600)

    other = await new_world(world.database)
    options = ProcessOptions(storage=tmp_path.as_uri(), fetch=FetchOptions(allowed_hosts=("127.0.0.1",)))
    few = ProcessingOptions(
        concurrency=1, fetch_concurrency=8, fetch_per_workspace=6, poll_seconds=0.1, lease_seconds=5, drain_seconds=0
    )
    conductor = Conducting(world.database, LocalWorkers(None, None), few, options)
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
