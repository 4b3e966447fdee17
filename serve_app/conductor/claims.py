import math
import time
from collections.abc import Iterable
from uuid import UUID

from db.core.database import Database
from db.queue import jobs
from db.queue.jobs import Lease
from serve_app.conductor.machine import is_dead, worker_name
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.running_jobs import RunningJobs


class JobClaims:
    """Claims as many jobs as there is room for. Each claim has a fencing number, which every later write carries."""

    def __init__(self, database: Database, options: ProcessingOptions, running: RunningJobs) -> None:
        self._database = database
        self._options = options
        self._running = running
        self._worker = worker_name()
        self._contact_since = -math.inf  # end of the last database outage that this process has seen

    async def claim(self) -> list[Lease]:
        if not (self._running.room or self._running.guest_room):
            return []
        return await self._claim(self._running.room, self._running.guest_room)

    async def claim_suspect(self) -> list[Lease]:
        """Claim at most one quarantined job."""
        return await self._claim(1, 0, suspects=True) if self._running.room else []

    async def _claim(self, count: int, guests: int, suspects: bool = False) -> list[Lease]:
        options = self._options
        return await jobs.claim(
            self._database,
            self._worker,
            count,
            options.lease_seconds,
            options.QUARANTINE_AFTER,
            suspects,
            self._may_take_over,
            options.BACKFILL_SHARE,
            guests,
        )

    async def claim_fetches(self) -> list[Lease]:
        """Claim calls whose recordings are to be fetched."""
        if not self._running.fetch_room:
            return []
        options = self._options
        return await jobs.claim_fetches(
            self._database,
            self._worker,
            self._running.fetch_room,
            options.lease_seconds,
            options.fetch_per_workspace,
            options.fetch_per_host,
            self._may_take_over,
        )

    async def renew(self) -> Iterable[UUID]:
        """Renew the leases of all running jobs; return the ids of the jobs that are lost."""
        return await jobs.renew(self._database, self._running.leases, self._options.lease_seconds)

    async def abandon_dead_peers(self) -> int:
        """Free the leases of Conductors that died on this machine; return how many run, this one included."""
        workers = await jobs.workers(self._database)
        dead = [worker for worker in workers if is_dead(worker)]
        await jobs.abandon(self._database, dead)
        return len({self._worker, *workers} - set(dead))

    def note_outage(self) -> None:
        self._contact_since = time.monotonic()

    @property
    def _may_take_over(self) -> bool:
        """True once the database has been reachable long enough for other processes to renew their leases."""
        return time.monotonic() - self._contact_since > self._options.lease_seconds
