"""The Conductor: leases jobs, walks their calls through the pipeline, records, finishes or tries again.

PostgreSQL is the only queue. While a call is processed its lease is renewed; if this process dies, the lease runs out
and another Conductor goes on from the last recorded stage. Every write carries the lease's fencing number, so that
a process that lost its job cannot write. Database outages are waited out and never count as a failure of a call.
"""

import asyncio
import contextlib
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from db import calls, credentials, directory, jobs, queue, results, roster, turns
from db.database import OUTAGES, Database
from db.jobs import Lease
from db.recording_urls import UrlSealer
from db.sealing import Sealer
from pipeline.domain.access import Access, Credential
from pipeline.domain.call import Call, Job
from pipeline.domain.speech import STAGES
from pipeline.errors import CallError, EngineError, LeaseLost, NotFetched, StorageError, WorkerLost
from pipeline.process import NOT_RECORDED, Outcome, ProcessOptions, conclude, fetch_recordings, process
from pipeline.speakers.policy import Voices
from pipeline.workers import Workers
from serve_app.conductor.machine import is_dead, worker_name
from serve_app.conductor.retry import ProcessingOptions, decide, is_last_try
from serve_app.scaling.estimates import CALL, RtfxMeter

T = TypeVar("T")
PACE_SECONDS = 5.0  # how often a Conductor tells how fast stages were
LOOK_SECONDS = 1.0  # how often a Conductor looks for others that died on its machine, and for suspects
log = logging.getLogger("ray.serve")


class InternalError(EngineError):
    """Something unexpected went wrong in the pipeline."""

    code = "internal_error"


class ConductorLoop:
    """The loop itself, without Ray: `await start()`, then `await stop()`."""

    def __init__(
        self,
        database: Database,
        workers: Workers,
        options: ProcessingOptions,
        process_options: ProcessOptions,
        sealer: Sealer | None = None,
        on_peer_count: Callable[[int], None] = lambda _: None,
        urls: UrlSealer | None = None,
    ) -> None:
        """`on_peer_count` is called regularly with the number of running Conductors, this one included."""
        self._database = database
        self._on_peer_count = on_peer_count
        self._sealer = sealer or Sealer()  # opens the credentials of recording servers
        self._urls = urls or UrlSealer()  # opens those of recordings
        self._workers = workers
        self._options = options
        self._process_options = process_options
        self._name = worker_name()
        self._running: dict[uuid.UUID, tuple[Lease, asyncio.Task[None]]] = {}
        self._wake = asyncio.Event()
        self._suspect: uuid.UUID | None = None  # a job that may kill its worker: nothing else is begun beside it
        self._contact_since = -math.inf  # that of PostgreSQL, after an outage that this process has seen
        self._stopping = False
        self._loops: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()  # a job has
        self._looked_at = self._told_at = -math.inf
        self._paces = RtfxMeter()
        self._held: list[turns.Held] = []  # by jobs that ended since `_told_at`
        self.heartbeat = time.monotonic()

    async def start(self) -> None:
        self._loops = [
            asyncio.create_task(self._forever(self._take_up), name="take-up"),
            asyncio.create_task(self._forever(self._listen), name="listen"),
        ]

    async def stop(self) -> None:
        """Take up nothing more, give running calls `drain_seconds`, put the rest back at once."""
        self._stopping = True
        self._wake.set()
        if self._loops:
            await asyncio.wait(self._loops[:1], timeout=self._options.drain_seconds)
        left = list(self._running.values())
        for task in [*(task for _, task in left), *self._loops]:
            task.cancel()
        await asyncio.gather(*(task for _, task in left), *self._loops, return_exceptions=True)
        if left:
            with contextlib.suppress(*OUTAGES):  # their leases run out by themselves
                await jobs.release(self._database, [lease for lease, _ in left])

    @property
    def alive(self) -> bool:
        """False when a loop is dead or the claiming one has not come round for a long time."""
        dead = any(loop.done() for loop in self._loops) and not self._stopping
        return not dead and time.monotonic() - self.heartbeat < 60

    @property
    def _drained(self) -> bool:
        return self._stopping and not self._running

    async def _forever(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop again and again; a failure is logged and pauses it, and never ends it."""
        pause = 0.2
        while not self._drained:
            try:
                await loop()
                pause = 0.2
            except OUTAGES as error:
                self._contact_since = time.monotonic()
                log.warning("database not reachable, next try in %.1f s: %s", pause, _first_line(error))
            except Exception:
                log.exception("%s failed, next try in %.1f s", getattr(loop, "__name__", "loop"), pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 3.0)

    async def _take_up(self) -> None:
        """Renew what is held, then claim as much as there is room for, until drained.

        One loop for both: after an outage what is held is renewed before anything that ran out is claimed. Jobs of a
        Conductor that died on this very machine are taken over at once; others when their lease has run out.
        """
        while not self._drained:
            self.heartbeat = time.monotonic()
            self._wake.clear()
            await self._renew()
            await self._look_round()
            claimed = await self._claim() and self._room
            if not (await self._claim_fetches() and self._fetch_room) and not claimed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._pause())

    async def _look_round(self) -> None:
        """Once in a while: let go of what Conductors held that died on this machine, and take up a suspect."""
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        workers = await jobs.workers(self._database)
        dead = [name for name in workers if is_dead(name)]
        await jobs.abandon(self._database, dead)
        self._on_peer_count(len({self._name, *workers} - set(dead)))
        if self._looked_at - self._told_at > PACE_SECONDS:
            self._told_at = self._looked_at
            await self._tell_paces(len(workers))
        for lease in await self._leases(1, suspects=True) if self._room else ():
            self._suspect = lease.job.job_id
            self._begin(lease)

    async def _tell_paces(self, conductors: int) -> None:
        """Store the measured real-time factors. Engines are shared by the running Conductors."""
        there = await queue.replicas(self._database)
        shares = {name: max(1, count) / max(1, conductors) for name, count in there.items() if name != "Conductor"}
        await queue.note_paces(self._database, self._paces.take(shares))
        held, self._held = self._held, []
        await turns.settle(self._database, held)

    async def _claim(self) -> bool:
        """Begin what there is room for; whether anything was."""
        leases = await self._leases(self._room, suspects=False) if self._room or self._guests else []
        for lease in leases:
            self._begin(lease)
        return bool(leases)

    async def _claim_fetches(self) -> bool:
        """Begin the fetches that there is room for: what hands recordings out slowly keeps nobody from being worked on.

        Whether any was begun.
        """
        options = self._options
        leases = (
            await jobs.claim_fetches(
                self._database,
                self._name,
                self._fetch_room,
                options.lease_seconds,
                options.fetch_per_workspace,
                options.fetch_per_host,
                self._in_touch,
            )
            if self._fetch_room
            else []
        )
        for lease in leases:
            self._begin(lease)
        return bool(leases)

    @property
    def _in_touch(self) -> bool:
        """Whether the database has been there for so long that holders of leases could renew them."""
        return time.monotonic() - self._contact_since > self._options.lease_seconds

    async def _leases(self, count: int, suspects: bool) -> list[Lease]:
        options, ttl = self._options, self._options.lease_seconds
        return await jobs.claim(
            self._database,
            self._name,
            count,
            ttl,
            options.quarantine_after,
            suspects,
            self._in_touch,
            options.backfill_share,
            0 if suspects else self._guests,
        )

    @property
    def _room(self) -> int:
        """How many more jobs may be begun now."""
        return 0 if self._stopping or self._suspect else max(0, self._options.concurrency - self._worked_on)

    @property
    def _guests(self) -> int:
        """How many more may be begun beyond that, of workspaces of which no call is worked on."""
        whole = self._options.concurrency + self._options.guests
        return 0 if self._stopping or self._suspect else min(self._options.guests, max(0, whole - self._worked_on))

    @property
    def _fetch_room(self) -> int:
        """How many more fetches may be begun now."""
        fetching = len(self._running) - self._worked_on
        return 0 if self._stopping else self._options.fetch_concurrency - fetching

    @property
    def _worked_on(self) -> int:
        """Calls, those excepted whose recordings are being fetched."""
        return sum(not lease.fetching for lease, _ in self._running.values())

    def _pause(self) -> float:
        return min(self._options.poll_seconds, self._options.lease_seconds / 3)

    async def _renew(self) -> None:
        held = [lease for lease, _ in self._running.values()]
        if not held:
            return
        for job_id in await jobs.renew(self._database, held, self._options.lease_seconds):
            if job_id in self._running:
                self._running[job_id][1].cancel()

    async def _listen(self) -> None:
        """Wake the claiming loop as soon as a job is announced."""
        async for _ in jobs.wakes(self._database):
            self._wake.set()

    def _begin(self, lease: Lease) -> None:
        task = asyncio.create_task(self._conduct(lease), name=f"call {lease.call.call_id}")
        self._running[lease.job.job_id] = (lease, task)
        task.add_done_callback(partial(self._end, lease.job.job_id))

    def _end(self, job_id: uuid.UUID, task: "asyncio.Task[None]") -> None:
        if self._running.get(job_id, (None, None))[1] is task:  # not a later run of the same job
            del self._running[job_id]
            if self._suspect == job_id:
                self._suspect = None
        self._ended.set()
        self._wake.set()

    async def _conduct(self, lease: Lease) -> None:
        """One job to its end: completed, put back for later, failed, or lost to somebody else."""
        started = time.monotonic()
        try:
            await (self._fetch(lease) if lease.fetching else self._process(lease))
            done = "fetched" if lease.fetching else "completed"
            log.info("call %s %s in %.1f s", lease.call.call_id, done, time.monotonic() - started)
        except LeaseLost:
            log.info("call %s: job %s was taken over or superseded", lease.call.call_id, lease.job.job_id)
        except NotFetched:
            await self._to_be_fetched(lease)
        except CallError as error:
            await self._give_back(lease, error)
        except Exception as error:
            log.exception("call %s: unexpected failure", lease.call.call_id)
            await self._give_back(lease, InternalError(f"Unexpected {type(error).__name__} while processing the call."))
        finally:
            self._settle(lease, self._paces.leave(lease.job.job_id))

    def _settle(self, lease: Lease, worked: float) -> None:
        """Note what the job held, however it ended, for its lane to pay."""
        if lease.turn is not None and worked > 0:
            self._held.append(turns.Held(lease.turn, worked))

    async def _fetch(self, lease: Lease) -> None:
        """The recordings of one call; then it waits for its turn to be worked on."""
        journal = _Journal(self._database, lease, self._patiently, self._paces)
        own = await self._patiently(lambda: directory.allowed_hosts(self._database, lease.workspace_id))
        fetch = self._process_options.fetch
        allowed = fetch.model_copy(update={"allowed_hosts": (*fetch.allowed_hosts, *own)})
        warnings = await fetch_recordings(
            self._opened(lease.call),
            self._workers.of(lease.workspace_id),
            journal.record,
            journal.recall,
            self._process_options.model_copy(update={"fetch": allowed}),
            is_last_try(lease.job, lease.clock.now(), self._options),
            self._access(lease),
        )
        await self._patiently(lambda: jobs.fetched(self._database, lease, warnings))

    def _opened(self, call: Call) -> Call:
        """The call with the URLs that its sender sent, which leave this process as requests only. Raises
        `SecretSealed`."""
        first, second = (url and self._urls.open(url) for url in (call.recording_url, call.recording_url2))
        return replace(call, recording_url=first, recording_url2=second)

    async def _to_be_fetched(self, lease: Lease) -> None:
        """The stored recording is gone: fetch it again, outside the limit on running calls."""
        if lease.job.kind != "process":
            await self._give_back(
                lease, StorageError("The stored recording is gone, so nothing of it can be made again.")
            )
            return
        with contextlib.suppress(LeaseLost):
            await self._patiently(lambda: jobs.fetch_again(self._database, lease))

    async def _process(self, lease: Lease) -> None:
        if lease.job.crashes >= self._options.max_crashes:
            raise WorkerLost(_died(lease.job, self._options))
        if self._suspect == lease.job.job_id:
            await self._be_alone(lease)
        self._paces.begin(CALL, lease.job.job_id)
        journal = _Journal(self._database, lease, self._patiently, self._paces)

        known = await self._patiently(lambda: roster.load(self._database, lease))
        last_try = is_last_try(lease.job, lease.clock.now(), self._options)
        outcome = await process(
            lease.call,
            self._workers.of(lease.workspace_id),
            known,
            journal.record,
            journal.recall,
            self._process_options,
            last_try,
            fetched=lease.warnings,
        )
        if outcome.late is not None and lease.job.kind == "analyze":
            raise outcome.late  # the call keeps the findings that it has
        while (changed := await self._complete(lease, outcome)) is not None:
            lease = replace(lease, call=changed)  # a submission changed the call while it was worked on
            known = await self._patiently(partial(roster.load, self._database, lease))
            outcome = await conclude(
                changed,
                self._workers.of(lease.workspace_id),
                known,
                outcome.spoken,
                journal.record,
                self._process_options,
            )
        if lease.job.kind == "process":
            self._settle(lease, self._paces.end(CALL, lease.job.job_id, *journal.heard))

    def _access(self, lease: Lease) -> Access:
        """Credentials are looked up for the one server that is asked, and stay in this process."""

        async def find(host: str, port: int) -> Credential | None:
            return await self._patiently(
                lambda: credentials.find(self._database, lease.workspace_id, self._sealer, host, port)
            )

        return find

    async def _be_alone(self, lease: Lease) -> None:
        """Wait for the other calls to end, so that none of them dies along if this one kills the process again."""
        while self._worked_on > 1:
            self._ended.clear()
            await self._ended.wait()
        await self._patiently(lambda: jobs.stage(self._database, lease, "alone"))

    async def _complete(self, lease: Lease, outcome: Outcome) -> Any:
        return await self._patiently(
            lambda: calls.complete(
                self._database,
                lease,
                outcome.transcript,
                outcome.findings,
                outcome.spoken.voiceprint,
                outcome.warnings,
                Voices(self._process_options.roles),
            )
        )

    async def _give_back(self, lease: Lease, error: CallError) -> None:
        decision = decide(error, lease.job, lease.clock.now(), self._options)
        log.warning("call %s: %s (%s), %s", lease.call.call_id, error.message, error.code, decision)
        with contextlib.suppress(LeaseLost):
            if decision.retry_in is None:
                await self._patiently(lambda: jobs.fail(self._database, lease, error))
            else:
                pause, counts = decision.retry_in, decision.counts
                await self._patiently(lambda: jobs.retry(self._database, lease, error, pause, counts))

    async def _patiently(self, step: Callable[[], Awaitable[T]]) -> T:
        """Wait out a database that is away; the fencing number keeps a late write from doing harm."""
        pause = 0.2
        while True:
            try:
                return await step()
            except OUTAGES as error:
                log.warning("database not reachable, waiting: %s", _first_line(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, 3.0)


class _Journal:
    """What the stages of one job recorded, kept in PostgreSQL."""

    def __init__(
        self, database: Database, lease: Lease, patiently: Callable[..., Awaitable[Any]], paces: RtfxMeter
    ) -> None:
        self._database = database
        self._lease = lease
        self._patiently = patiently
        self._paces = paces
        self._known: dict[str, Any] | None = None
        self.heard = (0, 0.0)  # channels and seconds of the call

    async def recall(self, stage: str) -> Any:
        if stage in STAGES:
            await self._patiently(lambda: jobs.stage(self._database, self._lease, stage))
        if self._known is None:
            self._known = await self._patiently(lambda: results.load(self._database, self._lease))
        known = self._known.get(stage, NOT_RECORDED)
        if known is NOT_RECORDED:
            self._paces.begin(stage, self._lease.job.job_id)
        self._hear(stage, known)
        return known

    async def record(self, stage: str, result: Any) -> None:
        self._hear(stage, result)
        self._paces.end(stage, self._lease.job.job_id, *self.heard)
        await self._patiently(lambda: results.record(self._database, self._lease, stage, result))
        if stage == "fetch":
            self._known = None  # now that the content is known, an earlier job's results may be found

    def _hear(self, stage: str, result: Any) -> None:
        if stage == "audio" and result is not NOT_RECORDED:
            self.heard = (2 if result.layout.kind.separated else 1, result.duration)


def _died(job: Job, options: ProcessingOptions) -> str:
    alone = max(0, job.crashes - options.quarantine_after)
    beside = f", {alone} of them in quarantine (no other call running)" if alone else ""
    return (
        f"The process that ran this call died {job.crashes} times in a row at the same stage{beside}: the call "
        "may be what kills it."
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200]
