import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any
from uuid import uuid4

from db.queue import jobs
from pipeline.errors import NotAudio
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers, Recognition
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ProcessingOptions
from tests.postgres import World
from tests.recording_server import AUDIO, reply, serving
from tests.recording_server import options as fetch_options
from tests.tuned import tuned


@asynccontextmanager
async def conducting(
    world: World, folder: Path, workers: LocalWorkers | None = None, **options: float
) -> AsyncIterator[ConductorLoop]:
    """Run a Conductor with short leases and without engines: its calls get no further than decoding."""
    chosen = tuned(ProcessingOptions, **({"lease_seconds": 1.5, "poll_seconds": 0.1} | options))
    process_options = ProcessOptions(storage=folder.as_uri(), fetch=fetch_options())
    conductor = ConductorLoop(world.database, workers or LocalWorkers(None, None), chosen, process_options)
    await conductor.start()
    try:
        yield conductor
    finally:
        await conductor.stop()


async def test_a_conductor_that_drains_keeps_its_calls_until_they_end(world: World, tmp_path: Path) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answer.wait()
        writer.write(reply(b"", "410 Gone"))

    async with serving(slow) as server, conducting(world, tmp_path, drain_seconds=600, lease_seconds=4) as conductor:
        await world.submit(recording_url=server.url())
        await asyncio.wait_for(asked.wait(), 60)
        leaving = asyncio.create_task(conductor.stop())
        await asyncio.sleep(0.1)
        (job,) = await world.rows("SELECT lease_until FROM jobs")
        longer = "SELECT FROM jobs WHERE lease_until > CAST(:at AS timestamptz) + interval '2 s'"
        await until(lambda: world.rows(longer, at=job["lease_until"]))  # it is renewed, and again
        assert await world.claim(worker="another") == []
        answer.set()
        await asyncio.wait_for(leaving, 60)
    (job,) = await world.rows("SELECT * FROM jobs")
    assert (job["state"], job["attempts"], job["crashes"]) == ("failed", 1, 0)


async def test_a_conductor_that_leaves_puts_back_what_did_not_end_and_takes_up_nothing_more(
    world: World, tmp_path: Path
) -> None:
    asked = asyncio.Event()

    async def silence(_writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.sleep(600)

    async with serving(silence) as server, conducting(world, tmp_path, drain_seconds=0.3) as conductor:
        await world.submit(recording_url=server.url())
        await asyncio.wait_for(asked.wait(), 60)
        await conductor.stop()
        (job,) = await world.rows("SELECT * FROM jobs")
        assert (job["state"], job["crashes"], job["failures"]) == ("fetching", 0, 0)
        assert job["lease_until"] is None


async def test_a_conductor_with_nothing_to_do_leaves_at_once_and_is_alive_until_then(
    world: World, tmp_path: Path
) -> None:
    async with conducting(world, tmp_path, drain_seconds=60) as conductor:
        await asyncio.sleep(0.3)
        assert conductor.alive
        await asyncio.wait_for(conductor.stop(), 30)


async def test_a_call_whose_job_is_superseded_is_stopped(world: World, tmp_path: Path) -> None:
    asked = asyncio.Queue[None]()

    async def silence(_writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(None)
        await asyncio.sleep(600)

    async with serving(silence) as server, conducting(world, tmp_path, drain_seconds=0) as conductor:
        await world.submit(recording_url=server.url())
        await asyncio.wait_for(asked.get(), 60)
        first = next(iter(conductor._running.by_id))
        second = await world.submit(recording_url=server.url() + "&part=2")
        await asyncio.wait_for(asked.get(), 60)
        await until(lambda: list(conductor._running.by_id) == [second.job_id] != [first])


async def test_a_job_that_may_kill_its_worker_is_begun_alone_and_nothing_beside_it(
    world: World, tmp_path: Path
) -> None:
    before, workers = Decoding(), Decoding()
    async with serving(reply(AUDIO + SUSPECT)) as first, serving(reply(AUDIO)) as second:
        await world.submit(recording_url=first.url())
        async with conducting(world, tmp_path, before, drain_seconds=0.1):
            await until(lambda: before.at_work == ["suspect"])
        await world.execute("UPDATE jobs SET crashes = 2, not_before = now() + interval '1 hour'")
        world.call_id = uuid4()
        await world.submit(recording_url=second.url())
        async with conducting(world, tmp_path, workers, drain_seconds=5):
            await until(lambda: workers.at_work == ["other"])
            await world.execute("UPDATE jobs SET not_before = now() WHERE crashes = 2")
            await until(lambda: world.rows(f"SELECT FROM jobs WHERE state = 'running' AND stage = '{jobs.QUARANTINE}'"))
            world.call_id = uuid4()
            await world.submit(recording_url=second.url())
            await asyncio.sleep(0.3)
            assert workers.seen == [["other"]], "the suspect waits, and nothing more is begun before it"
            workers.go_on.set()
            await until(lambda: len(workers.seen) == 3)
    assert workers.seen == [["other"], ["suspect"], ["other"]]


SUSPECT = b"more"  # bytes that identify its recording


class Decoding(LocalWorkers):
    """Blocks decoding until released; records which calls are decoding, and which were when each one arrived."""

    def __init__(self) -> None:
        super().__init__(None, None)
        self.at_work: list[str] = []
        self.seen: list[list[str]] = []
        self.go_on = asyncio.Event()

    async def recognition(self) -> Recognition:
        return Recognition("none", 30.0, packing=False)

    async def diarizer(self) -> str:
        return "none"

    async def hold(self, fn: Callable[..., Any], *args: Any) -> Any:
        (recording,) = args[0]
        name = "other" if recording.size_bytes == len(AUDIO) else "suspect"
        self.at_work.append(name)
        self.seen.append(list(self.at_work))
        await self.go_on.wait()
        self.at_work.remove(name)
        raise NotAudio("Nothing in it is looked at.")


async def submit_with_crashes(world: World, url: str, crashes: int) -> None:
    """Submit a call whose job has crashes before any Conductor can claim it."""
    world.call_id = uuid4()
    await world.submit()
    await world.execute(
        "WITH job AS (INSERT INTO jobs (call_pk, kind, crashes, state)"
        " SELECT id, 'process', :crashes, 'queued' FROM calls WHERE call_id = :call RETURNING id, call_pk)"
        " UPDATE calls SET state = 'transcribing', recording_url = :url, recording_identity = :url, job_id = job.id"
        " FROM job WHERE job.call_pk = calls.id",
        crashes=crashes,
        call=world.call_id,
        url=url,
    )


async def test_a_job_whose_worker_died_too_often_fails_and_says_so(world: World, tmp_path: Path) -> None:
    await submit_with_crashes(world, "http://127.0.0.1:9/x.wav", 5)
    async with conducting(world, tmp_path):
        await until(lambda: world.rows("SELECT * FROM calls WHERE state = 'failed'"))
    row = await world.row()
    assert row["failure_code"] == "worker_lost"
    assert (
        "died 5 times in a row at the same stage, 3 of them in quarantine (no other call running)"
        in row["failure_message"]
    )


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not (await met if isawaitable(met := condition()) else met):
            await asyncio.sleep(0.05)
