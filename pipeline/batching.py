"""A queue that forms a batch when the device is free.

Ray Serve's own `@serve.batch` freezes a batch when its waiting time ends, even while the device is busy; here items
gather for as long as the device works on the batch before. One item that breaks a batch fails alone.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Collects items of many callers and runs them together in a thread.

    `run` takes a list of items and returns their results in the same order; an exception in place of a result fails
    that item alone. At most `in_flight` batches of at most `size` items run at once.
    """

    def __init__(
        self, run: Callable[[list[Item]], Sequence[Result | Exception]], size: int, in_flight: int = 1
    ) -> None:
        self._run = run
        self._size = size
        self._in_flight = self._free = in_flight
        self._paused = False
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._tasks: set[asyncio.Task[None]] = set()  # the loop keeps only weak references
        self._since: dict[int, float] = {}  # when each batch in flight was begun, by the id of its list

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """The results of `items`, in order; raises what `run` raised or answered for the first of them that fails."""
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in items]
        self._waiting.extend(zip(items, futures, strict=True))
        self._start()
        try:
            return list(await asyncio.gather(*futures))
        finally:
            for future in futures:
                future.cancel()

    async def submit_alone(self, items: Sequence[Item]) -> list[Result]:
        """As `submit`, while `paused`: in batches of these items only, ahead of all that wait."""
        results: list[Result] = []
        for first in range(0, len(items), self._size):
            batch = list(items[first : first + self._size])
            for result in await asyncio.to_thread(self._run, batch):
                if isinstance(result, Exception):
                    raise result
                results.append(result)
        return results

    def pause(self) -> None:
        """Begin no further batch until `resume`; what is submitted waits."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._start()

    @property
    def busy(self) -> bool:
        """Whether a batch is in flight."""
        return self._free < self._in_flight

    @property
    def waiting(self) -> int:
        """Items not yet in a batch."""
        return len(self._waiting)

    @property
    def busy_seconds(self) -> float:
        """How long the oldest batch in flight has been at work; 0 when none is."""
        return time.monotonic() - min(self._since.values()) if self._since else 0.0

    def _start(self) -> None:
        while self._free and self._waiting and not self._paused:
            batch, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
            batch = [(item, future) for item, future in batch if not future.cancelled()]
            if not batch:
                continue
            self._free -= 1
            task = asyncio.get_running_loop().create_task(self._work(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            await self._try(batch)
        finally:
            self._free += 1
            self._start()

    async def _try(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        self._since[id(batch)] = time.monotonic()
        try:
            results = await asyncio.to_thread(self._run, [item for item, _ in batch])
            answered = list(zip(batch, results, strict=True))  # a caller without a result would wait for ever
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            for one in batch:
                await self._try([one])
            return
        finally:
            self._since.pop(id(batch), None)
        for (_, future), result in answered:
            if isinstance(result, Exception):
                _fail(future, result)
            elif not future.done():
                future.set_result(result)


def _fail(future: "asyncio.Future[Result]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
