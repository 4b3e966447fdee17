"""The Conductor: claims jobs, runs their calls through the pipeline, records results, completes or retries.

PostgreSQL is the only queue. While a call is processed its lease is renewed; if this process dies, the lease runs out
and another Conductor resumes from the last recorded stage. Every write carries the lease's fencing number, so that
a process that lost its job cannot write. Database outages are waited out and never count as a failure of a call.
"""

import asyncio
import contextlib
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from db.core.database import OUTAGES, Database
from db.queue import backlog, jobs, origins
from db.queue import charges as turns
from db.queue.jobs import Lease
from db.records import roster
from db.records.complete import complete as complete_call
from db.secrets import credentials
from db.secrets.encryption import Sealer
from db.secrets.recording_urls import UrlSealer
from db.server import partitions, readiness
from db.workspace import settings
from pipeline.domain.access import Access, Credential
from pipeline.domain.call import Call, Job
from pipeline.errors import CallError, EngineError, LeaseLost, NotFetched, StorageError, WorkerLost
from pipeline.observability import tracing
from pipeline.observability.context import WorkContext, work_context
from pipeline.options import ProcessOptions
from pipeline.process import Outcome, conclude, fetch_recordings, process
from pipeline.runtime.workers import Workers
from pipeline.speakers.policy import Voices
from pipeline.steps.llm_requests import LlmScheduler
from pipeline.steps.provenance import Producers, producers
from serve_app.conductor.journal import Journal
from serve_app.conductor.lease_loop import LeaseLoop, T
from serve_app.conductor.machine import is_dead, worker_name
from serve_app.conductor.model_queue import ModelQueue
from serve_app.conductor.retry import ProcessingOptions, decide, is_last_try
from serve_app.conductor.spending import ModelSpending
from serve_app.operations.estimates import CALL, RtfxMeter
from serve_app.operations.metric_names import AUDIO_DONE, JOB_FAILURES, JOB_RETRIES, JOBS_ENDED, TURNAROUND

RTFX_SECONDS = 5.0  # how often a Conductor stores the measured real-time factors
PARTITIONS_SECONDS = 60.0  # how often a Conductor looks whether the next partitions are due
PEERS_SECONDS = 1.0  # how often a Conductor checks for others that died on its machine, and for quarantined jobs
log = logging.getLogger("ray.serve")


class InternalError(EngineError):
    """Something unexpected went wrong in the pipeline."""

    code = "internal_error"


class ConductorLoop(LeaseLoop[Lease]):
    """Claims jobs and runs each as a task."""

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
        super().__init__(database, "conductor")
        self._on_peer_count = on_peer_count
        self._sealer = sealer or Sealer()  # opens the credentials of recording servers
        self._urls = urls or UrlSealer()  # opens those of recordings
        self._workers = workers
        self.asking = LlmScheduler(options.calls_at_once, ModelSpending(database, options, self._wait_out).of)
        self._model = ModelQueue(self.asking, self._wake.set)
        self._options = options
        self._process_options = process_options
        self._name = worker_name()
        self._running: dict[uuid.UUID, tuple[Lease, asyncio.Task[None]]] = {}
        self._suspect: uuid.UUID | None = None  # a quarantined job, which may kill its worker: nothing else is started
        self._contact_since = -math.inf  # end of the last database outage that this process has seen
        self._ended = asyncio.Event()  # set when a job ends
        self._checked_at = self._published_at = -math.inf
        self._rtfx = RtfxMeter()
        self._unsettled: list[turns.UsedSlot] = []  # of jobs that were lost or interrupted, not charged yet
        self.heartbeat = time.monotonic()

    def _named_loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {"claim": self._claim_jobs, "listen": self._listen, "partitions": self._make_partitions}

    def _held(self) -> list[tuple[Lease, "asyncio.Task[None]"]]:
        return list(self._running.values())

    async def _release(self, leases: list[Lease]) -> None:
        self._unsettled = await jobs.release(self._database, leases, self._unsettled)

    def _on_outage(self) -> None:
        self._contact_since = time.monotonic()

    async def stop(self) -> None:
        """Claim nothing more, give running calls `drain_seconds`, requeue the rest at once."""
        await self._shut_down(self._options.drain_seconds)
        with contextlib.suppress(*OUTAGES):
            await self._settle_lost()

    @property
    def alive(self) -> bool:
        """False when a loop is dead or the claiming one has not come round for a long time."""
        return super().alive and time.monotonic() - self.heartbeat < 60

    async def _claim_jobs(self) -> None:
        """Renew the leases, then claim as many jobs as there is room for, until drained.

        One loop for both: after an outage leases are renewed before expired ones of others are claimed. Jobs of a
        Conductor that died on this machine are claimed at once; others when their lease has expired.
        """
        while not self._drained:
            self.heartbeat = time.monotonic()
            self._wake.clear()
            await self._renew()
            await self._check_peers()
            claimed = await self._claim() and self._room
            if not (await self._claim_fetches() and self._fetch_room) and not claimed:
                await self._sleep(min(self._options.POLL_SECONDS, self._options.lease_seconds / 3))

    async def _check_peers(self) -> None:
        """Every second: free the leases of Conductors that died on this machine, and claim a quarantined job."""
        if time.monotonic() - self._checked_at < PEERS_SECONDS:
            return
        self._checked_at = time.monotonic()
        workers = await jobs.workers(self._database)
        dead = [name for name in workers if is_dead(name)]
        await jobs.abandon(self._database, dead)
        self._on_peer_count(len({self._name, *workers} - set(dead)))
        if self._checked_at - self._published_at > RTFX_SECONDS:
            self._published_at = self._checked_at
            await self._publish_rtfx()
        for lease in await self._leases(1, suspects=True) if self._room else ():
            self._suspect = lease.job.job_id
            self._begin(lease)

    async def _publish_rtfx(self) -> None:
        """Store the measured real-time factors."""
        await readiness.come_round(self._database)
        await backlog.record_rtfx(self._database, self._rtfx.take())
        await self._settle_lost()

    async def _claim(self) -> bool:
        """Start as many jobs as there is room for; return whether there were any."""
        leases = await self._leases(self._room, suspects=False) if self._room or self._guests else []
        for lease in leases:
            self._begin(lease)
        return bool(leases)

    async def _claim_fetches(self) -> bool:
        """Start as many fetches as there is room for; return whether there were any.

        They do not count as running calls: a slow recording server keeps no other call from running.
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
        """Whether the database has been reachable long enough for other processes to renew their leases."""
        return time.monotonic() - self._contact_since > self._options.lease_seconds

    async def _leases(self, count: int, suspects: bool) -> list[Lease]:
        options, ttl = self._options, self._options.lease_seconds
        return await jobs.claim(
            self._database,
            self._name,
            count,
            ttl,
            options.QUARANTINE_AFTER,
            suspects,
            self._in_touch,
            options.BACKFILL_SHARE,
            0 if suspects else self._guests,
        )

    @property
    def _room(self) -> int:
        """How many more jobs may be started now."""
        return 0 if self._stopping or self._suspect else max(0, self._options.calls_at_once - self._worked_on)

    @property
    def _guests(self) -> int:
        """How many more beyond that, of workspaces with no call running."""
        whole = self._options.calls_at_once + self._options.GUESTS
        return 0 if self._stopping or self._suspect else min(self._options.GUESTS, max(0, whole - self._worked_on))

    @property
    def _fetch_room(self) -> int:
        """How many more fetches may be started now."""
        fetching = len(self._running) - self._in_hand
        return 0 if self._stopping else self._options.FETCH_CONCURRENCY - fetching

    @property
    def _worked_on(self) -> int:
        """Running calls, without those whose recordings are being fetched and those that wait for a language model.

        So many wait and no more: a model slower than calls come holds them back in the queue.
        """
        waiting = min(len(self._model), self._options.ASKING * self._options.calls_at_once)
        return self._in_hand - waiting

    @property
    def _in_hand(self) -> int:
        """Running calls, without those whose recordings are being fetched."""
        return sum(not lease.fetching for lease, _ in self._running.values())

    async def _renew(self) -> None:
        held = [lease for lease, _ in self._running.values()]
        if not held:
            return
        for job_id in await jobs.renew(self._database, held, self._options.lease_seconds):
            if job_id in self._running:
                self._lose(self._running[job_id][1])

    async def _listen(self) -> None:
        """Wake the claiming loop as soon as a job is announced."""
        async for _ in jobs.wakes(self._database):
            self._wake.set()

    async def _make_partitions(self) -> None:
        """Make partitions ahead of the calls to come, where an operator has partitioned tables."""
        while not self._stopping:
            for name in await partitions.make_ahead(self._database):
                log.info("conductor: partition %s is there for calls to come", name)
            await asyncio.sleep(PARTITIONS_SECONDS)

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
        with work_context(work_context_of(lease)):
            await self._run_to_its_end(lease)

    async def _run_to_its_end(self, lease: Lease) -> None:
        """Run one job until it is completed, to be retried, failed, or lost to another Conductor."""
        started = time.monotonic()
        try:
            await self._attempt(lease)
            done = "fetched" if lease.fetching else "completed"
            _say(logging.INFO, lease, f"{done} in {time.monotonic() - started:.1f} s")
        except LeaseLost:
            _say(logging.INFO, lease, f"job {lease.job.job_id} was superseded, or claimed by another Conductor")
        except NotFetched:
            await self._fetch_again(lease)
        except CallError as error:
            await self._fail_or_retry(lease, error)
        except Exception as error:
            log.exception("call %s: unexpected failure", lease.call.call_id)
            await self._fail_or_retry(
                lease, InternalError(f"Unexpected {type(error).__name__} while processing the call.")
            )
        finally:
            self._unsettled += self._turn_held(lease)  # not charged by the end of its job: lost, or interrupted
            self._rtfx.leave(lease.job.job_id)
            if self._unsettled and not self._stopping:  # before another is claimed: a lane that is alone pays nothing
                with contextlib.suppress(*OUTAGES):
                    await self._settle_lost()

    async def _attempt(self, lease: Lease) -> None:
        if lease.queued_at and lease.job.started_at:
            tracing.past("queue wait", lease.queued_at, lease.job.started_at)
        with tracing.span("fetch" if lease.fetching else lease.job.kind, "consumer", attempt=lease.job.attempts):
            await (self._fetch(lease) if lease.fetching else self._process(lease))

    def _turn_held(self, lease: Lease) -> list[turns.UsedSlot]:
        """Return what the job has held until now, to be charged to its lane; nothing if that is done."""
        worked = self._rtfx.so_far(CALL, lease.job.job_id)
        return [turns.UsedSlot(lease.slot, worked)] if lease.slot is not None and worked > 0 else []

    async def _end_claim(self, lease: Lease, step: Callable[[list[turns.UsedSlot]], Awaitable[T]]) -> T:
        """Run the transaction that ends a claim and charges what it held. Raises LeaseLost."""
        return await self._conclude(lambda: step(self._turn_held(lease)))

    async def _settle_lost(self) -> None:
        held, self._unsettled = self._unsettled, []
        try:
            held = await turns.settle_lost(self._database, held)
        finally:
            self._unsettled += held

    async def _fetch(self, lease: Lease) -> None:
        """Fetch the recordings of one call; then it waits for its turn to run."""
        journal = self._journal(lease)
        own = await self._wait_out(lambda: settings.allowed_hosts(self._database, lease.workspace_id))
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
        await self._conclude(lambda: jobs.fetched(self._database, lease, warnings))

    def _opened(self, call: Call) -> Call:
        """The call with the URLs that its sender sent, which leave this process as requests only. Raises
        `SecretSealed`."""
        first, second = (url and self._urls.open(url) for url in (call.recording_url, call.recording_url2))
        return replace(call, recording_url=first, recording_url2=second)

    async def _fetch_again(self, lease: Lease) -> None:
        """The stored recording is gone: fetch it again, outside the limit on running calls."""
        if lease.job.kind != "process":
            await self._fail_or_retry(
                lease, StorageError("The stored recording is gone, so nothing of it can be made again.")
            )
            return
        with contextlib.suppress(LeaseLost):
            await self._end_claim(lease, lambda held: jobs.fetch_again(self._database, lease, held))
            self._rtfx.leave(lease.job.job_id)

    async def _process(self, lease: Lease) -> None:
        if lease.job.crashes >= self._options.MAX_CRASHES:
            raise WorkerLost(_died(lease.job, self._options))
        if self._suspect == lease.job.job_id:
            await self._quarantine(lease)
        self._rtfx.begin(CALL, lease.job.job_id)
        journal = self._journal(lease)

        known = await self._wait_out(lambda: roster.load(self._database, lease))
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
            asker=self._model.of(lease),
        )
        if outcome.late is not None and lease.job.kind == "analyze":
            raise outcome.late  # the call keeps the findings that it has
        while (changed := await self._complete(lease, outcome, journal.producers)) is not None:
            lease = replace(lease, call=changed)  # a submission changed the call while it was worked on
            known = await self._wait_out(partial(roster.load, self._database, lease))
            outcome = await conclude(
                changed,
                self._workers.of(lease.workspace_id),
                known,
                outcome.spoken,
                journal.record,
                self._process_options,
                journal.recall,
                self._model.of(lease),
            )
        if lease.job.kind == "process":
            channels, seconds = journal.audio
            self._rtfx.end(CALL, lease.job.job_id, channels, seconds)
            AUDIO_DONE.inc(seconds, channels=str(channels))
            TURNAROUND.observe((lease.clock.now() - lease.job.created_at).total_seconds())
        JOBS_ENDED.inc(kind=lease.job.kind, state="done")
        self._rtfx.leave(lease.job.job_id)

    def _access(self, lease: Lease) -> Access:
        """Credentials are looked up for the one server that is asked, and stay in this process."""

        async def find(host: str, port: int) -> Credential | None:
            return await self._wait_out(
                lambda: credentials.find(self._database, lease.workspace_id, self._sealer, host, port)
            )

        return find

    async def _quarantine(self, lease: Lease) -> None:
        """Wait for the other calls to end, so that none of them dies if this one kills the process again."""
        while self._in_hand > 1:
            self._ended.clear()
            await self._ended.wait()
        await self._wait_out(lambda: jobs.stage(self._database, lease, "alone"))

    def _journal(self, lease: Lease) -> Journal:
        workers = self._workers.of(lease.workspace_id)
        identify = partial(producers, workers, self._process_options)
        return Journal(self._database, lease, self._wait_out, self._rtfx, identify)

    async def _complete(self, lease: Lease, outcome: Outcome, made_by: Producers) -> Any:
        with tracing.span("record", links=await self._merged(lease)):
            return await self._end_claim(
                lease,
                lambda held: complete_call(
                    self._database,
                    lease,
                    outcome.transcript,
                    outcome.findings,
                    outcome.spoken.voiceprint,
                    outcome.warnings,
                    Voices(self._process_options.roles),
                    held,
                    made_by,
                    outcome.analysis_warnings,
                ),
            )

    async def _merged(self, lease: Lease) -> list[str]:
        """The traces of the call's other submissions."""
        if not tracing.on():
            return []
        every = await self._wait_out(lambda: origins.traces(self._database, lease.workspace_id, lease.call_pk))
        return [one for one in every if one != lease.trace]

    async def _fail_or_retry(self, lease: Lease, error: CallError) -> None:
        decision = decide(error, lease.job, lease.clock.now(), self._options)
        what = "failed" if decision.retry_in is None else f"retried in {decision.retry_in:.0f} s"
        _say(logging.WARNING, lease, f"{what} (attempt {lease.job.attempts}): {error.code}: {error.message}")
        with contextlib.suppress(LeaseLost):
            if decision.retry_in is None:
                await self._end_claim(lease, lambda held: jobs.fail(self._database, lease, error, held))
                JOB_FAILURES.inc(code=error.code)
                JOBS_ENDED.inc(kind=lease.job.kind, state="failed")
            else:
                pause, counts = decision.retry_in, decision.counts
                await self._end_claim(lease, lambda held: jobs.retry(self._database, lease, error, pause, counts, held))
                JOB_RETRIES.inc(code=error.code)
            self._rtfx.leave(lease.job.job_id)


def work_context_of(lease: Lease) -> WorkContext:
    """What the work on a job carries along."""
    named = {"call_id": lease.call.call_id, "call_job_id": lease.job.job_id, "request_id": lease.request_id}
    return WorkContext({name: str(value) for name, value in named.items() if value}, lease.trace)


def _say(level: int, lease: Lease, what: str) -> None:
    """One line for each decision about a call."""
    log.log(level, "call %s: %s (request %s)", lease.call.call_id, what, lease.request_id or "unknown")


def _died(job: Job, options: ProcessingOptions) -> str:
    alone = max(0, job.crashes - options.QUARANTINE_AFTER)
    beside = f", {alone} of them in quarantine (no other call running)" if alone else ""
    return (
        f"The process that ran this call died {job.crashes} times in a row at the same stage{beside}: the call "
        "may be what kills it."
    )
