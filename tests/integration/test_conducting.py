"""A Conductor at work: a real queue, the real engines, recordings from 127.0.0.1. Ray alone is left out.

Faults come at an exact moment here, while an engine is about to be asked; tests/acceptance kills processes.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import soundfile

from db import embedded, migrate, queue, views
from db.database import Database
from db.views import CallRecord
from pipeline.analysis import analyze
from pipeline.domain.insight import Finding
from pipeline.fetch.fetcher import FetchOptions
from pipeline.options import ProcessOptions
from pipeline.runtime.deadlines import DeadlineOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.cli.file_server import FileServer
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.retry import ProcessingOptions
from serve_app.demo.compare import compare, turns_by_role
from serve_app.demo.samples import Sample
from tests.postgres import NOTHING_DURABLE, World, new_world
from tests.synthetic_calls import FOLDER, synthetic_calls
from tests.tuned import tuned

STEREO = "08_flite_voices_stereo"
OTHER = "01_invoice_stereo"
MOST_WRONG = 0.35  # of the words of a call; the synthetic checkpoint is small
ANALYSIS = {"statistics", "tone", "summary", "tasks", "contacts", "direction", "agent"}
LEASE = 1.5  # seconds
DEADLINES = DeadlineOptions(seconds=10, per_audio_second=0)  # of what takes a second


@dataclass
class Halt:
    """Where somebody about to ask an engine waits until told to go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        await asyncio.wait_for(self.reached.wait(), 90)


class WatchedWorkers(LocalWorkers):
    """`LocalWorkers` that counts how often each engine was asked, and can stop whoever asks next just before it."""

    def __init__(self, transcriber: Any, diarizer: Any) -> None:
        super().__init__(transcriber, diarizer)
        self.asked: Counter[str] = Counter()
        self.endless_analysis = False
        self._halts: dict[str, Halt] = {}

    def halt(self, method: str) -> Halt:
        """Stop the next who calls `method`, and nobody after them."""
        self._halts[method] = Halt()
        return self._halts[method]

    async def transcribe(self, audio: Any, chunks: Any, vocabulary: Any = (), with_fallback: bool = False) -> Any:
        await self._asked("transcribe again" if with_fallback else "transcribe")
        return await super().transcribe(audio, chunks, vocabulary, with_fallback)

    async def diarize(self, *args: Any) -> Any:
        await self._asked("diarize")
        return await super().diarize(*args)

    async def voiceprint(self, *args: Any) -> Any:
        await self._asked("voiceprint")
        return await super().voiceprint(*args)

    async def compute(self, function: Any, *args: Any) -> Any:
        if function is analyze and self.endless_analysis:
            await asyncio.sleep(60)
        return await super().compute(function, *args)

    async def _asked(self, method: str) -> None:
        if halt := self._halts.pop(method, None):
            halt.reached.set()
            await halt.go_on.wait()
        self.asked[method] += 1


@pytest.fixture
def workers(transcriber: Any, diarizer: Any) -> WatchedWorkers:
    return WatchedWorkers(transcriber, diarizer)


@pytest.fixture(scope="module")
def files() -> Iterator[FileServer]:
    """A server of recordings."""
    with FileServer() as server:
        yield server


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first sentence of either party of a sample call: seconds matter where every word is recognised anew."""
    samples, rate = soundfile.read(FOLDER / STEREO / "call.flac")
    path = tmp_path_factory.mktemp("recordings") / "short.flac"
    soundfile.write(path, samples[: round(6.6 * rate)], rate)
    return path


def sample(name: str) -> Sample:
    return next(sample for sample in synthetic_calls() if sample.name == name)


Conduct = Callable[..., Any]


@pytest.fixture
def conducting(world: World, workers: WatchedWorkers, tmp_path: Path) -> Conduct:
    """Run a Conductor on `world`'s queue, or on that of another `database`; its leases and pauses are short."""

    @asynccontextmanager
    async def run(
        database: Database | None = None, workers: LocalWorkers = workers, **options: float
    ) -> AsyncIterator[ConductorLoop]:
        plain = {"lease_seconds": LEASE, "poll_seconds": 0.1, "backoff_seconds": 0.1, "drain_seconds": 0}
        conductor = ConductorLoop(
            database or world.database,
            workers,
            tuned(ProcessingOptions, **(plain | options)),
            ProcessOptions(
                storage=tmp_path.as_uri(), fetch=FetchOptions(allowed_hosts=("127.0.0.1",)), deadlines=DEADLINES
            ),
        )
        await conductor.start()
        try:
            yield conductor
        finally:
            await conductor.stop()

    return run


async def until(condition: Callable[[], Any], timeout: float = 90.0) -> None:
    """`condition` is a function or a coroutine function."""
    deadline = time.monotonic() + timeout
    while not (await met if isawaitable(met := condition()) else met):
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.05)


async def shown(world: World, call_id: UUID | None = None) -> CallRecord:
    record = await views.show_call(world.database, call_id or world.call_id)
    assert record is not None
    return record


async def ended(world: World, call_id: UUID | None = None) -> CallRecord:
    """The record once the call is completed or failed."""
    record: list[CallRecord] = []

    async def it_ended() -> bool:
        record[:] = [await shown(world, call_id)]
        return record[0].call.state in ("completed", "failed")

    await until(it_ended, timeout=180)
    return record[0]


async def completed(world: World, call_id: UUID | None = None) -> CallRecord:
    record = await ended(world, call_id)
    assert record.call.state == "completed", record.call.failure
    return record


async def recognised(world: World) -> bool:
    return bool(await world.rows("SELECT stage FROM stage_results WHERE stage = 'asr'"))


def finding(record: CallRecord, step: str) -> Finding:
    return next(found for found in record.findings if found.step == step)


def share_wrong(record: CallRecord, name: str) -> float:
    assert record.transcript is not None
    layout = record.transcript.layout.kind
    return compare(sample(name).expected, turns_by_role(record.transcript), layout.separated).rate


@dataclass
class Line:
    """A connection to the database that can be cut, as the network between two machines is."""

    database: Database
    _admin: psycopg.Connection[Any]
    _role: str

    def cut(self) -> None:
        self._admin.execute(f"ALTER ROLE {self._role} NOLOGIN")
        self._admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [self._role])

    def mend(self) -> None:
        self._admin.execute(f"ALTER ROLE {self._role} LOGIN")


@pytest.fixture
async def line(postgres_url: str) -> AsyncIterator[Line]:
    role = f"remote_{uuid4().hex[:8]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
        database = await Database.open(postgres_url.replace("//postgres@", f"//{role}@"), wait_seconds=0.5)
        line = Line(database, admin, role)
        try:
            yield line
        finally:
            await database.close()
            line.cut()
            admin.execute(f"DROP ROLE {role}")


async def test_a_job_becomes_a_completed_call_with_transcript_findings_recordings_and_voiceprint(
    world: World, workers: WatchedWorkers, files: FileServer, conducting: Conduct
) -> None:
    user = uuid4()
    async with conducting(lease_seconds=60):
        accepted = await world.submit(recording_url=files.add(FOLDER / STEREO / "call.flac"), user_id=user)
        record = await completed(world)
    assert share_wrong(record, STEREO) <= MOST_WRONG
    assert {found.step for found in record.findings} >= ANALYSIS
    assert finding(record, "agent").value["user_id"] == str(user)
    (recording,) = record.recordings
    assert recording.size_bytes == (FOLDER / STEREO / "call.flac").stat().st_size
    (voiceprint,) = await world.rows("SELECT user_id, speech_seconds FROM voiceprints")
    assert voiceprint["user_id"] == user
    assert voiceprint["speech_seconds"] > 5
    (job,) = record.jobs
    assert (job.job_id, job.state, job.attempts, job.failures) == (accepted.job_id, "done", 1, 0)
    assert workers.asked == {"transcribe": 1, "voiceprint": 1}


async def test_the_voices_of_a_mixed_recording_are_told_apart(
    world: World, workers: WatchedWorkers, files: FileServer, conducting: Conduct
) -> None:
    async with conducting():
        await world.submit(recording_url=files.add(FOLDER / "03_repair_mono" / "call.flac"))
        record = await completed(world)
    assert record.transcript is not None
    assert len(record.transcript.speakers) == 2
    assert share_wrong(record, "03_repair_mono") <= MOST_WRONG
    assert workers.asked == {"transcribe": 2, "diarize": 1}


async def test_two_conductors_on_one_queue_do_each_job_once(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    calls = [uuid4() for _ in range(3)]
    async with conducting(concurrency=1), conducting(concurrency=1):
        for call_id in calls:
            await world.submit(call_id=call_id, recording_url=files.add(short))
        for call_id in calls:
            await completed(world, call_id)
    jobs = await world.rows("SELECT * FROM jobs")
    assert [(job["state"], job["attempts"], job["crashes"]) for job in jobs] == [("done", 1, 0)] * 3
    assert len({job["worker"] for job in jobs}) == 2
    assert workers.asked["transcribe"] == 3


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
        await until(lambda: recognised(world))
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
        assert former._running
        line.mend()
        await until(lambda: not former._running)
    (job,) = record.jobs
    assert (job.state, job.attempts, job.crashes) == ("done", 2, 0)
    assert await shown(world) == record


async def test_a_superseding_submission_in_the_middle_stops_the_old_job_and_its_own_words_are_in_the_record(
    world: World, workers: WatchedWorkers, files: FileServer, conducting: Conduct
) -> None:
    halt = workers.halt("transcribe")
    async with conducting():
        first = await world.submit(recording_url=files.add(FOLDER / OTHER / "call.flac"))
        await halt.wait()
        second = await world.submit(recording_url=files.add(FOLDER / STEREO / "call.flac"))
        record = await completed(world)
    assert {job.job_id: job.state for job in record.jobs} == {first.job_id: "superseded", second.job_id: "done"}
    assert share_wrong(record, STEREO) <= MOST_WRONG
    assert workers.asked["transcribe"] == 1


async def test_an_analysis_without_end_after_a_change_leaves_the_findings_that_there_are(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    async with conducting(max_failures=1):
        await world.submit(recording_url=files.add(short))
        before = await completed(world)
        workers.endless_analysis = True
        await world.submit(user_id=uuid4())
        await until(lambda: analysis_failed(world), timeout=180)
    record = await shown(world)
    assert record.findings == before.findings
    assert any("took longer than 10 s" in warning for warning in record.warnings)


async def analysis_failed(world: World) -> bool:
    return bool(await world.rows("SELECT id FROM jobs WHERE kind = 'analyze' AND state = 'failed'"))


async def test_what_a_superseded_call_held_is_charged_to_its_lane(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    """However it ends: it held the place of a call for four seconds, in which 400 seconds of others' would be done."""
    await queue.note_paces(world.database, [queue.Pace("call", 2, 10, 6000.0, 60.0)])
    halt = workers.halt("transcribe")
    other = uuid4()
    async with conducting(concurrency=1):
        await world.submit(recording_url=files.add(short), team_id=world.team_id, duration=60)
        await halt.wait()
        await world.submit(world.wide, call_id=other, team_id=world.other_team_id, recording_url=files.add(short))
        await asyncio.sleep(4)
        await world.execute(
            "UPDATE jobs SET state = 'superseded', lease_until = NULL WHERE team_id = :a", a=world.team_id
        )
        await until(lambda: charged(world, 300))


async def charged(world: World, seconds: float) -> bool:
    rows = await world.rows("SELECT ended - began AS turn FROM turns WHERE team_id = :id", id=world.team_id)
    return any(row["turn"] > seconds for row in rows)


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


async def test_what_is_learned_while_a_call_is_worked_on_is_in_the_findings(
    world: World, workers: WatchedWorkers, files: FileServer, short: Path, conducting: Conduct
) -> None:
    user, halt = uuid4(), workers.halt("transcribe")
    async with conducting():
        await world.submit(recording_url=files.add(short), outgoing=False)
        await halt.wait()
        await world.submit(user_id=user, outgoing=True)
        halt.go_on.set()
        record = await completed(world)
    assert finding(record, "agent").value["user_id"] == str(user)
    assert finding(record, "direction").value["outgoing"] is True
    assert await world.jobs() == [("process", "done")]
    assert workers.asked["transcribe"] == 1


async def test_a_recording_that_is_published_late_is_waited_for(
    world: World, files: FileServer, short: Path, tmp_path: Path, conducting: Conduct
) -> None:
    late = tmp_path / "late.flac"
    async with conducting(max_failures=1, max_backoff_seconds=0.5):
        await world.submit(recording_url=files.add(late))

        async def asked_twice() -> bool:
            (job,) = (await shown(world)).jobs
            return job.attempts > 1 and job.error is not None and job.error.code == "recording_not_ready"

        await until(asked_twice)
        shutil.copy(short, tmp_path / "copy")
        (tmp_path / "copy").rename(late)
        (job,) = (await completed(world)).jobs
    assert (job.state, job.failures, job.error) == ("done", 0, None)


async def test_of_two_files_the_one_that_never_comes_is_given_up_when_window_ends(
    world: World, files: FileServer, short: Path, tmp_path: Path, conducting: Conduct
) -> None:
    async with conducting(retry_window_seconds=1):
        await world.submit(recording_url=files.add(short), recording_url2=files.add(tmp_path / "never.flac"))
        record = await completed(world)
    assert [recording.channel for recording in record.recordings] == [0]
    assert any("One of the two recordings could not be fetched" in warning for warning in record.warnings)


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
    gone = subprocess.run([sys.executable, "-c", name], capture_output=True, text=True, check=True).stdout.strip()
    await world.submit(recording_url=files.add(short))
    await world.claim(worker=gone, ttl=600)
    async with conducting():
        (job,) = (await completed(world)).jobs
    assert (job.attempts, job.crashes) == (2, 0)


async def test_an_unexpected_failure_is_tried_again_and_then_given_up_with_a_code(
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
    """The folder of a running PostgreSQL that the test may stop and start."""
    folder = Path(tempfile.mkdtemp(prefix="swb-own-"))
    try:
        migrate.migrate(embedded.start(folder, NOTHING_DURABLE))
        yield folder
    finally:
        embedded.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


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
        await asyncio.to_thread(embedded.start, own_server, NOTHING_DURABLE)
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
