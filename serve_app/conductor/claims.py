import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from db.core.database import Database
from db.queue import jobs
from db.queue.jobs import Lease
from serve_app.conductor.machine import is_dead, worker_name
from serve_app.conductor.options import ProcessingOptions
from serve_app.conductor.running_jobs import RunningJobs


@dataclass(slots=True)
class JobClaims:
    """Claims as many jobs as there is room for. Each claim has a fencing number, which every later write carries."""

    database: Database
    options: ProcessingOptions
    running: RunningJobs
    _worker: str = field(default_factory=worker_name)
    _contact_since: float = -math.inf  # end of the last database outage that this process has seen

    async def claim(self) -> list[Lease]:
        if not (self.running.room or self.running.guest_room):
            return []
        return await self._claim(self.running.room, self.running.guest_room)

    async def claim_suspect(self) -> list[Lease]:
        """Claim at most one quarantined job."""
        return await self._claim(1, 0, suspects=True) if self.running.room else []

    async def _claim(self, count: int, guests: int, suspects: bool = False) -> list[Lease]:
        options = self.options
        return await jobs.claim(
            self.database,
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
        if not self.running.fetch_room:
            return []
        options = self.options
        return await jobs.claim_fetches(
            self.database,
            self._worker,
            self.running.fetch_room,
            options.lease_seconds,
            options.fetch_per_workspace,
            options.fetch_per_host,
            self._may_take_over,
        )

    async def renew(self) -> Iterable[UUID]:
        """Renew the leases of all running jobs; return the ids of the jobs that are lost."""
        return await jobs.renew(self.database, self.running.leases, self.options.lease_seconds)

    async def abandon_dead_peers(self) -> int:
        """Free the leases of Conductors that died on this machine; return how many run, this one included."""
        workers = await jobs.workers(self.database)
        dead = [worker for worker in workers if is_dead(worker)]
        await jobs.abandon(self.database, dead)
        return len({self._worker, *workers} - set(dead))

    def note_outage(self) -> None:
        self._contact_since = time.monotonic()

    @property
    def _may_take_over(self) -> bool:
        """True once the database has been reachable long enough for other processes to renew their leases."""
        return time.monotonic() - self._contact_since > self.options.lease_seconds
