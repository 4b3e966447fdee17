"""The loop that the Conductor and the webhook dispatcher share: claim work under leases, run each piece as a task."""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from db.core.database import OUTAGES, Database

L = TypeVar("L")
T = TypeVar("T")
MIN_PAUSE, MAX_PAUSE = 0.2, 3.0  # seconds between tries while the database is not reachable
log = logging.getLogger("ray.serve")


class LeaseLoop(ABC, Generic[L]):
    """Runs without Ray: `await start()`, then `await stop()`.

    PostgreSQL is the only queue: what this process loses is claimed by another when its lease expires. A loop that
    fails is logged, pauses, and runs again.
    """

    def __init__(self, database: Database, label: str) -> None:
        """`label` begins the names of tasks and the log lines about loops."""
        self._database = database
        self._label = label
        self._wake = asyncio.Event()
        self._stopping = False
        self._loops: list[asyncio.Task[None]] = []
        self._tasks: dict[asyncio.Task[None], L] = {}
        self._concluding: set[asyncio.Task[None]] = set()  # in the transaction that ends their claim

    @abstractmethod
    def _named_loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return the loops by name. The first one claims work, and returns when `_drained`."""

    async def _release(self, leases: list[L]) -> None:
        """Requeue what was claimed. Only a loop that begins no tasks may leave this out."""
        raise NotImplementedError(f"{type(self).__name__} begins tasks and does not requeue them")

    def _begin(self, lease: L, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = lease
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("%s: unexpected failure, the lease expires", self._label, exc_info=task.exception())

    def _leased_tasks(self) -> list[tuple[L, "asyncio.Task[None]"]]:
        return [(lease, task) for task, lease in self._tasks.items()]

    def _on_outage(self) -> None:
        """React to a loop that could not reach the database."""

    async def start(self) -> None:
        self._loops = [
            asyncio.create_task(self._forever(name, loop), name=f"{self._label}: {name}")
            for name, loop in self._named_loops().items()
        ]

    async def stop(self, drain_seconds: float = 0.0) -> None:
        """Claim nothing more, give running tasks `drain_seconds`, then cancel and requeue the rest."""
        self._stopping = True
        self._wake.set()
        if self._loops:
            await asyncio.wait(self._loops[:1], timeout=drain_seconds)
        interrupted = self._leased_tasks()
        tasks = [*(task for _, task in interrupted), *self._loops]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if interrupted:
            with contextlib.suppress(*OUTAGES):  # their leases expire by themselves
                await self._release([lease for lease, _ in interrupted])

    @property
    def alive(self) -> bool:
        """False when one of the loops is dead."""
        return self._stopping or not any(loop.done() for loop in self._loops)

    @property
    def _drained(self) -> bool:
        return self._stopping and not self._leased_tasks()

    async def _forever(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        pause = MIN_PAUSE
        while not self._drained:
            try:
                await loop()
                pause = MIN_PAUSE
            except OUTAGES as error:
                self._on_outage()
                log.warning("%s: database not reachable, next try in %.1f s: %s", self._label, pause, first_line(error))
            except Exception:
                log.exception("%s: loop %s failed, next try in %.1f s", self._label, name, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)

    async def _sleep(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as there may be work."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # wait_for of Python 3.11 can swallow that it is canceled
                await self._wake.wait()

    async def _wait_out(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `step`, tried until the database is reachable.

        The fencing number of a lease rejects a late write.
        """
        pause = MIN_PAUSE
        while True:
            try:
                return await step()
            except OUTAGES as error:
                log.warning("%s: database not reachable, waiting: %s", self._label, first_line(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, MAX_PAUSE)

    async def _conclude(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run the transaction that ends the claim of the current task, as `_wait_out` does.

        A renewal that waited for it has nothing to renew any more, which is no loss: see `_lose`.
        """
        task = asyncio.current_task()
        assert task is not None
        self._concluding.add(task)
        try:
            return await self._wait_out(step)
        finally:
            self._concluding.discard(task)

    def _lose(self, task: "asyncio.Task[None]") -> None:
        """Cancel a task whose lease could not be renewed, unless it is ending its claim: the transaction fails then."""
        if task not in self._concluding:
            task.cancel()


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200]
