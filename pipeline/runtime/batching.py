"""A queue that forms a batch when the device is free.

Ray Serve's `@serve.batch` closes a batch when its waiting time ends, even while the device is busy. Here items are
collected for as long as the device works on the previous batch. An item that breaks a batch fails alone.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from pipeline.observability.context import WorkContext, work_context

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Collects items of many callers and runs them together in threads.

    `run` takes a list of items and returns their results in the same order; an exception in place of a result fails
    that item alone. Where `run` raises, the batch is halved until the item is found that it raises for.

    Of at most `size` items each, `in_flight` batches run at once, started with what waits as soon as there is room:
    no item waits for others to fill its batch, and what waits is divided among all batches that can start. `ahead`
    more are started, but only full ones: `run` can prepare them until the device is free, and they have no room for
    later items. A batch takes one item of each caller in turn, so that a caller with a few
    items does not wait for one with many.
    """

    def __init__(
        self,
        run: Callable[[list[Item]], Sequence[Result | Exception]],
        size: int,
        in_flight: int = 1,
        ahead: int = 0,
    ) -> None:
        self._run = run
        self._size = size
        self._in_flight, self._ahead = in_flight, ahead
        self._paused = False
        self._waiting: deque[deque[tuple[Item, asyncio.Future[Result]]]] = deque()  # callers, the next one first
        self._tasks: set[asyncio.Task[None]] = set()  # the loop keeps only weak references
        self.ran = 0  # batches, ever
        self._running = 0  # batches
        self._since: dict[int, float] = {}  # when each run was begun, by the id of its list

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """Return the results of `items`, in order; raise what `run` raised or returned for the first that fails."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Result]] = [loop.create_future() for _ in items]
        if items:
            self._waiting.append(deque(zip(items, futures, strict=True)))
        self._start()
        try:
            return list(await asyncio.gather(*futures))
        finally:
            for future in futures:
                future.cancel()

    async def submit_alone(self, items: Sequence[Item]) -> list[Result]:
        """Return the results as `submit`, while `paused`: in batches of these items only, ahead of all others."""
        results: list[Result] = []
        for first in range(0, len(items), self._size):
            batch = list(items[first : first + self._size])
            for result in await asyncio.to_thread(self._run, batch):
                if isinstance(result, Exception):
                    raise result
                results.append(result)
        return results

    def pause(self) -> None:
        """Start no further batch until `resume`; submitted items wait."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._start()

    @property
    def busy(self) -> bool:
        return self._running > 0

    @property
    def waiting(self) -> int:
        """Items not yet in a batch, including those whose caller has left since the last batch was formed."""
        return sum(map(len, self._waiting))

    @property
    def busy_seconds(self) -> float:
        """Duration of the oldest run in flight; 0 without one."""
        return time.monotonic() - min(self._since.values()) if self._since else 0.0

    def _start(self) -> None:
        while not self._paused and self._running < self._in_flight + self._ahead:
            self._drop_canceled()
            waiting, free = self.waiting, max(1, self._in_flight - self._running)
            if not waiting or (self._running >= self._in_flight and waiting < self._size):
                return
            self._running += 1
            batch = self._next(min(self._size, math.ceil(waiting / free)))
            with work_context(WorkContext()):  # a batch is of many calls
                task = asyncio.get_running_loop().create_task(self._work(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _drop_canceled(self) -> None:
        callers = (deque(entry for entry in caller if not entry[1].done()) for caller in self._waiting)
        self._waiting = deque(caller for caller in callers if caller)

    def _next(self, size: int) -> list[tuple[Item, asyncio.Future[Result]]]:
        """Return the next batch, of `size` items. A caller with remaining items goes to the end of the line."""
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        while self._waiting and len(batch) < size:
            caller = self._waiting.popleft()
            batch.append(caller.popleft())
            if caller:
                self._waiting.append(caller)
        return batch

    async def _work(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            await self._try(batch)
        finally:
            self._running -= 1
            self.ran += 1
            self._start()

    async def _try(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        self._since[id(batch)] = time.monotonic()
        try:
            results = await asyncio.to_thread(self._run, [item for item, _ in batch])
            answered = list(zip(batch, results, strict=True))  # strict: a caller without a result would wait forever
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            answered = []
        finally:
            self._since.pop(id(batch), None)
        for (_, future), result in answered:
            if isinstance(result, Exception):
                _fail(future, result)
            elif not future.done():
                future.set_result(result)
        if not answered:
            for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                remaining = [entry for entry in half if not entry[1].done()]  # a caller leaves when one item fails
                if remaining:
                    await self._try(remaining)


def _fail(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
