"""The backlog for the scaling policies: one reader of PostgreSQL for all policies of a process."""

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from db.core.database import Database
    from serve_app.operations.estimates import Estimate

log = logging.getLogger("ray.serve")
MONITORS: dict[tuple[Any, ...], "BacklogMonitor"] = {}  # of this process, by their arguments


def monitor_for(assumed_rtfx: Mapping[str, float], poll_seconds: float) -> "BacklogMonitor":
    """Return the monitor of this process for these arguments."""
    key = (poll_seconds, *sorted(assumed_rtfx.items()))
    if key not in MONITORS:
        MONITORS[key] = BacklogMonitor(assumed_rtfx, poll_seconds)
    return MONITORS[key]


class BacklogMonitor:
    """The latest estimate of the backlog, shared by the policies of a process, each of which reads it every 0.1 s.

    A separate task refreshes it, so no policy blocks. Without PostgreSQL the last estimate is used for 30 s, then None.
    """

    def __init__(self, assumed_rtfx: Mapping[str, float], poll_seconds: float) -> None:
        self._assumed_rtfx = assumed_rtfx
        self._poll_seconds = poll_seconds
        self._estimate: Estimate | None = None
        self._seen = self._asked = -math.inf
        self._unreachable = False
        self._database: Database | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def estimate(self) -> "Estimate | None":
        """Latest estimate; starts a refresh when it is due."""
        now = time.monotonic()
        if (self.task is None or self.task.done()) and now - self._asked >= self._poll_seconds:
            self._asked = now
            self.task = asyncio.get_running_loop().create_task(self._refresh())
        return self._estimate if now - self._seen <= 30 else None

    async def close(self) -> None:
        if self._database is not None:
            await self._database.close()

    async def _refresh(self) -> None:
        from db.queue import backlog as queue
        from serve_app.operations.estimates import Estimate

        try:
            async with asyncio.timeout(5):
                database = await self._open()
                self._estimate, self._seen = (
                    Estimate(await queue.backlog(database), self._assumed_rtfx),
                    time.monotonic(),
                )
        except Exception as error:
            if not self._unreachable:
                log.warning(
                    "scaling: the queue cannot be read (%s); deployments keep the replicas they have until it can",
                    type(error).__name__,
                )
            self._unreachable = True
        else:
            if self._unreachable:
                log.warning("scaling: the queue can be read again")
            self._unreachable = False

    async def _open(self) -> "Database":
        # The address is read here, in the controller, and not passed as an argument: the dashboard shows arguments.
        from db.core.database import Database
        from serve_app.settings import Settings

        if self._database is None:
            self._database = await Database.open(Settings().require_database_url(), pool_size=1)
        return self._database
