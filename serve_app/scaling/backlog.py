"""What the scaling policies know of the queue: one look at PostgreSQL for all policies of a process."""

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from db.database import Database
    from serve_app.scaling.estimates import Estimate

log = logging.getLogger("ray.serve")
LOOKS: dict[tuple[Any, ...], "Look"] = {}  # of this process, by their arguments


def shared(guesses: Mapping[str, float], poll_seconds: float) -> "Look":
    """The look of this process for these arguments."""
    key = (poll_seconds, *sorted(guesses.items()))
    if key not in LOOKS:
        LOOKS[key] = Look(guesses, poll_seconds)
    return LOOKS[key]


class Look:
    """The latest look at the queue, shared by the policies of a process, each of which asks every 0.1 s.

    A look is a task of its own, so that nobody blocks. While PostgreSQL is away the last one counts for 30 s; then
    `estimate` is None.
    """

    def __init__(self, guesses: Mapping[str, float], poll_seconds: float) -> None:
        self._guesses = guesses
        self._poll_seconds = poll_seconds
        self._estimate: Estimate | None = None
        self._seen = self._asked = -math.inf
        self._away = False
        self._database: Database | None = None
        self._told: dict[str, tuple[int, int]] = {}
        self._told_at = -math.inf
        self.replicas: dict[str, tuple[int, int]] = {}  # that there are and are wanted, by deployment
        self.task: asyncio.Task[None] | None = None

    @property
    def estimate(self) -> "Estimate | None":
        """What is known now; a new look is begun where it is time for one."""
        now = time.monotonic()
        if (self.task is None or self.task.done()) and now - self._asked >= self._poll_seconds:
            self._asked = now
            self.task = asyncio.get_running_loop().create_task(self._look())
        return self._estimate if now - self._seen <= 30 else None

    async def close(self) -> None:
        if self._database is not None:
            await self._database.close()

    async def _look(self) -> None:
        from db import queue
        from serve_app.scaling.estimates import Estimate

        try:
            async with asyncio.timeout(5):
                database = await self._open()
                self._estimate, self._seen = Estimate(await queue.backlog(database), self._guesses), time.monotonic()
                await self._tell(database)
        except Exception as error:
            if not self._away:
                log.warning(
                    "scaling: the queue cannot be read (%s); deployments keep the replicas they have until it can",
                    type(error).__name__,
                )
            self._away = True
        else:
            if self._away:
                log.warning("scaling: the queue can be read again")
            self._away = False

    async def _open(self) -> "Database":
        # The address is read here, in the controller, and not passed as an argument: the dashboard shows arguments.
        from db.database import Database
        from serve_app.settings import Settings

        if self._database is None:
            self._database = await Database.open(Settings().require_database_url(), pool_size=1)
        return self._database

    async def _tell(self, database: "Database") -> None:
        """Conductors and operators want to know how many there are: once a minute, and when it changes."""
        from db import queue

        if self.replicas == self._told and time.monotonic() - self._told_at < 60:
            return
        told = dict(self.replicas)
        for name, (there, wanted) in sorted(told.items()):
            await queue.note_replicas(database, name, there, wanted)
        self._told, self._told_at = told, time.monotonic()
