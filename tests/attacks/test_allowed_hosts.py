"""One tenant's internal host is no other tenant's."""

import asyncio
import time
from pathlib import Path
from typing import Any

from db.records import views
from db.workspace import settings
from pipeline.fetch.options import FetchOptions
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.postgres import World, new_world
from tests.recording_server import reply, serving
from tests.tuned import tuned


async def fate(world: World) -> Any:
    """Once the call failed, or its recording is stored."""
    deadline = time.monotonic() + 60
    while True:
        record = await views.show_call(world.database, world.call_id)
        assert record is not None
        if record.call.failure:
            return record.call.failure.code
        if await world.rows(
            "SELECT FROM recordings r JOIN calls c ON c.id = r.call_pk WHERE call_id = :id", id=world.call_id
        ):
            return "fetched"
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_host_of_one_workspace_is_fetched_from_for_that_workspace_alone(world: World, tmp_path: Path) -> None:
    other = await new_world(world.database)
    await settings.set_allowed_hosts(world.database, world.workspace_id, ["127.0.0.1"])
    assert await settings.allowed_hosts(world.database, world.workspace_id) == ("127.0.0.1",)
    options = ProcessOptions(storage=tmp_path.as_uri(), fetch=FetchOptions())
    fast = tuned(ProcessingOptions, lease_seconds=5, poll_seconds=0.1, drain_seconds=0)
    conductor = ConductorLoop(world.database, LocalWorkers(None, None), fast, options)
    async with serving(reply()) as server:
        await conductor.start()
        try:
            for workspace in (world, other):
                await workspace.submit(recording_url=server.url())
            assert await fate(other) == "address_forbidden"
            assert await fate(world) == "fetched"
        finally:
            await conductor.stop()
    assert len(server.requests) == 1
