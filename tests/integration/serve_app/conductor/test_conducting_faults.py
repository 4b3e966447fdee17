import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db.core.database import Database
from db.server import embedded, migrate
from pipeline.runtime.workers import LocalWorkers
from tests.file_server import FileServer
from tests.postgres import NOT_DURABLE, World, new_world
from tests.support.conductors import LEASE, Conduct, WatchedWorkers, completed, ended, until


async def test_an_unexpected_failure_is_retried_and_then_fails_with_a_code(
    world: World, diarizer: Any, files: FileServer, short: Path, conducting: Conduct
) -> None:
    async with conducting(workers=LocalWorkers(None, diarizer), max_failures=3):
        await world.submit(recording_url=files.add(short))
        record = await ended(world)
    assert record.call.failure is not None
    assert (record.call.failure.code, record.call.failure.retryable) == ("internal_error", True)
    assert record.jobs[0].attempts == 3


@pytest.fixture
def own_server() -> Iterator[Path]:
    """Yield the folder of a running PostgreSQL that the test may stop and start."""
    folder = Path(tempfile.mkdtemp(prefix="swb-own-"))
    try:
        migrate.migrate(embedded.start(folder, NOT_DURABLE))
        yield folder
    finally:
        embedded.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_a_database_that_is_restarted_in_the_middle_is_waited_for_and_is_no_failure_of_the_call(
    own_server: Path, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    database = await Database.open(embedded.start(own_server))
    world = await new_world(database)
    halt = workers.halt("transcribe")
    async with conducting(database, max_failures=1, max_crashes=1) as conductor:
        await world.submit(recording_url=files.add(short))
        await halt.wait()
        await asyncio.to_thread(embedded.stop, own_server)
        halt.go_on.set()
        await asyncio.sleep(LEASE + 0.5)
        assert conductor.alive
        await asyncio.to_thread(embedded.start, own_server, NOT_DURABLE)
        (job,) = (await completed(world)).jobs
    assert (job.attempts, job.failures, job.crashes) == (1, 0, 0)
    await database.close()


@pytest.mark.parametrize("loop", ["claim", "listen"])
async def test_a_conductor_with_a_dead_loop_is_not_alive(loop: str, conducting: Conduct) -> None:
    async with conducting() as conductor:
        assert conductor.alive
        next(task for task in conductor._loops if task.get_name() == f"conductor: {loop}").cancel()
        await until(lambda: not conductor.alive, timeout=30)


async def test_a_conductor_that_has_not_come_round_for_a_minute_is_not_alive(conducting: Conduct) -> None:
    async with conducting() as conductor:
        conductor.heartbeat = time.monotonic() - 61
        assert not conductor.alive
        await until(lambda: conductor.alive, timeout=30)
