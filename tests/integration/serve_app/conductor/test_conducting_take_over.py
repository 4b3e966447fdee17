import asyncio
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from serve_app.conductor import claim_end
from tests.file_server import FileServer
from tests.postgres import World
from tests.support.conductors import Conduct, Line, WatchedWorkers, completed, ended, recognized, shown, until


async def test_what_was_recorded_is_not_done_again_after_a_take_over(
    world: World,
    workers: WatchedWorkers,
    line: Line,
    files: FileServer,
    short: Path,
    tmp_path: Path,
    conducting: Conduct,
) -> None:
    """Nor asked of the sender, who has deleted the recording by then."""
    sent = Path(shutil.copy(short, tmp_path / "sent.flac"))
    halt = workers.halt("voiceprint")
    async with conducting(line.database):
        await world.submit(recording_url=files.add(sent))
        await halt.wait()
        await until(lambda: recognized(world))
        line.cut()
        sent.unlink()
        async with conducting():
            record = await completed(world)
    assert workers.asked == {"transcribe": 1, "voiceprint": 1}
    (job,) = record.jobs
    assert (job.attempts, job.crashes, job.failures) == (2, 0, 0), "it got further than before"
    assert record.transcript is not None
    assert record.transcript.turns


async def test_a_lease_that_ran_out_is_taken_over_and_the_former_holder_can_write_nothing(
    world: World, workers: WatchedWorkers, line: Line, files: FileServer, short: Path, conducting: Conduct
) -> None:
    halt = workers.halt("transcribe")
    async with conducting(line.database) as former:
        await world.submit(recording_url=files.add(short))
        await halt.wait()
        line.cut()
        async with conducting():
            record = await completed(world)
        halt.go_on.set()  # the former holder is not dead at all, and wants to write
        await until(lambda: workers.asked["transcribe"] == 2)
        await asyncio.sleep(0.5)
        assert former._running.by_id
        line.restore()
        await until(lambda: not former._running.by_id)
    (job,) = record.jobs
    assert (job.state, job.attempts, job.crashes) == ("done", 2, 0)
    assert await shown(world) == record


async def test_a_conductor_that_leaves_in_the_middle_puts_the_job_back_at_once_and_the_next_one_completes_it(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    halt = workers.halt("transcribe")
    async with conducting(drain_seconds=0.2, lease_seconds=60) as leaving:
        await world.submit(recording_url=files.add(short))
        await halt.wait()
        await asyncio.wait_for(leaving.stop(), 30)
        (job,) = await world.rows("SELECT *, not_before <= now() AS due FROM jobs")
        assert (job["state"], job["due"], job["failures"], job["crashes"]) == ("queued", True, 0, 0)
    async with conducting():
        (done,) = (await completed(world)).jobs
    assert (done.attempts, done.failures, done.crashes) == (2, 0, 0)


async def test_a_call_that_took_its_worker_along_each_time_fails_as_worker_lost(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    await world.submit(recording_url=files.add(short))
    for _ in range(3):
        (_lease,) = await world.claim(worker="elsewhere:1:dead", ttl=0.05)
        await asyncio.sleep(0.1)
    async with conducting(max_crashes=3):
        record = await ended(world)
    assert record.call.state == "failed"
    assert record.call.failure is not None
    assert record.call.failure.code == "worker_lost"
    assert not workers.asked


async def test_a_job_of_a_process_of_this_machine_that_is_no_more_is_taken_over_at_once(
    world: World, files: FileServer, short: Path, conducting: Conduct
) -> None:
    name = "from serve_app.conductor.machine import worker_name; print(worker_name())"
    dead_worker = subprocess.run(
        [sys.executable, "-c", name], capture_output=True, text=True, check=True
    ).stdout.strip()
    await world.submit(recording_url=files.add(short))
    await world.claim(worker=dead_worker, ttl=600)
    async with conducting():
        (job,) = (await completed(world)).jobs
    assert (job.attempts, job.crashes) == (2, 0)


async def test_a_renewal_that_waits_for_the_end_of_a_claim_does_not_take_it_for_a_loss(
    world: World,
    workers: WatchedWorkers,
    files: FileServer,
    short: Path,
    conducting: Conduct,
    caplog: pytest.LogCaptureFixture,
) -> None:
    complete = claim_end.complete_call
    async with conducting() as conductor:

        async def and_renewed(*given: Any) -> Any:
            done = await complete(*given)
            await conductor._renew()
            await asyncio.sleep(0)
            return done

        with patch.object(claim_end, "complete_call", and_renewed), caplog.at_level(logging.INFO, "ray.serve"):
            await world.submit(recording_url=files.add(short))
            await completed(world)
            await until(lambda: not conductor._running.by_id)
    assert any("completed in" in line.getMessage() for line in caplog.records)
    assert not conductor._ends.unsettled
