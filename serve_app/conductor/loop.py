"""The Conductor: claims jobs and runs each as a task.

PostgreSQL is the only queue. While a call is processed its lease is renewed; if this process dies, the lease expires
and another Conductor resumes from the last recorded stage. Every write carries the lease's fencing number, so that
a process that lost its job cannot write. Database outages are waited out and never count as a failure of a call.

`claims.py` claims and renews, `running_jobs.py` counts, `jobs.py` runs a job, `claim_end.py` ends a claim;
`lease_loop.py` starts and drains.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from db.core.database import Database
from db.queue import backlog, jobs
from db.queue.jobs import Lease
from db.secrets.encryption import Sealer
from db.secrets.recording_urls import UrlSealer
from db.server import readiness
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import Workers
from pipeline.speakers.profile import Voices
from pipeline.steps.llm_requests import LlmScheduler
from pipeline.steps.provenance import producers
from serve_app.conductor.claim_end import ClaimEnd
from serve_app.conductor.claims import JobClaims
from serve_app.conductor.jobs import FetchJob, JobRunner, ModelQueue, ProcessJob
from serve_app.conductor.journal import FileKeys, JobJournal
from serve_app.conductor.lease_loop import LeaseLoop
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.running_jobs import RunningJobs
from serve_app.operations.estimates import RtfxMeter
from serve_app.operations.model_spending import ModelSpending

RTFX_SECONDS = 5.0  # how often a Conductor stores the measured real-time factors
PEERS_SECONDS = 1.0  # how often a Conductor checks for others that died on its machine, and for quarantined jobs
MAX_SILENT_SECONDS = 60.0  # after which a Conductor whose claiming loop has not run counts as dead
log = logging.getLogger("ray.serve")


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
        """`on_peer_count` is called regularly with the number of running Conductors, this one included.

        `sealer` and `urls`: see `FetchJob`.
        """
        super().__init__(database, "conductor")
        self._on_peer_count = on_peer_count
        self._workers = workers
        self._options = options
        self._process_options = process_options
        self._rtfx = RtfxMeter()
        self._keys = FileKeys()
        self.llm = LlmScheduler(options.calls_at_once, ModelSpending(database, options.model_prices, self._wait_out).of)
        model = ModelQueue(self.llm, self._wake.set)
        self._running = RunningJobs(options, model.__len__)
        self._claims = JobClaims(database, options, self._running)
        voices = Voices(process_options.roles)
        self._ends = ClaimEnd(database, options, voices, self._rtfx, self._wait_out, self._conclude)
        work = (database, workers, options, process_options, self._journal_of, self._ends, self._wait_out)
        fetch = FetchJob(*work, sealer or Sealer(), urls or UrlSealer(), self._keys)
        process = ProcessJob(*work, self._running, model, self._rtfx, fetch, self._keys)
        self._runner = JobRunner(fetch, process, self._ends, self._running)
        self._checked_at = self._published_at = -math.inf
        self.heartbeat = time.monotonic()

    def _named_loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {"claim": self._claim_jobs, "listen": self._listen}

    def _leased_tasks(self) -> list[tuple[Lease, "asyncio.Task[None]"]]:
        return list(self._running.by_id.values())

    async def _release(self, leases: list[Lease]) -> None:
        await self._ends.release(leases)

    def _on_outage(self) -> None:
        self._claims.note_outage()

    async def stop(self, drain_seconds: float | None = None) -> None:
        self._running.closed = True
        await super().stop(self._options.drain_seconds if drain_seconds is None else drain_seconds)
        await self._ends.try_settle_lost()

    @property
    def alive(self) -> bool:
        """False when a loop is dead or the claiming one has not run for a long time."""
        return super().alive and time.monotonic() - self.heartbeat < MAX_SILENT_SECONDS

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
            more_jobs = self._begin_all(await self._claims.claim()) and self._running.room
            more_fetches = self._begin_all(await self._claims.claim_fetches()) and self._running.fetch_room
            if not more_jobs and not more_fetches:
                await self._sleep(min(self._options.POLL_SECONDS, self._options.lease_seconds / 3))

    async def _renew(self) -> None:
        for job_id in await self._claims.renew():
            if job_id in self._running.by_id:
                self._lose(self._running.by_id[job_id][1])

    async def _check_peers(self) -> None:
        """Free the leases of Conductors that died on this machine, and claim a quarantined job, once per second."""
        if time.monotonic() - self._checked_at < PEERS_SECONDS:
            return
        self._checked_at = time.monotonic()
        self._on_peer_count(await self._claims.abandon_dead_peers())
        if self._checked_at - self._published_at > RTFX_SECONDS:
            self._published_at = self._checked_at
            await self._publish()
        for lease in await self._claims.claim_suspect():
            self._running.suspect = lease.job.job_id
            self._begin_job(lease)

    async def _publish(self) -> None:
        """Store the heartbeat and the measured real-time factors, and charge for lost jobs."""
        await readiness.heartbeat(self._database)
        await backlog.record_rtfx(self._database, self._rtfx.take())
        await self._ends.settle_lost()

    async def _listen(self) -> None:
        async for _ in jobs.wakes(self._database):
            self._wake.set()

    def _begin_all(self, leases: Sequence[Lease]) -> bool:
        for lease in leases:
            self._begin_job(lease)
        return bool(leases)

    def _begin_job(self, lease: Lease) -> None:
        task = asyncio.create_task(self._runner.run(lease), name=f"call {lease.call.call_id}")
        self._running.add(lease, task)
        task.add_done_callback(partial(self._end_job, lease))

    def _end_job(self, lease: Lease, task: "asyncio.Task[None]") -> None:
        self._running.remove(lease.job.job_id, task)
        self._wake.set()

    def _journal_of(self, lease: Lease) -> JobJournal:
        workers = self._workers.of(lease.workspace_id)
        identify = partial(producers, workers, self._process_options)
        return JobJournal(self._database, lease, self._wait_out, self._rtfx, identify, self._keys)
