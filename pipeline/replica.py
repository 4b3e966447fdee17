"""What the replicas of both engines have in common. Knows nothing of Ray."""

import asyncio
import ctypes
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pipeline.batching import Batcher

T = TypeVar("T")
STUCK_SECONDS = 1800.0  # far beyond any batch, on a slow CPU too
TIDY_SECONDS = 60.0  # after which memory is given back though there is always work
BEGUN = "begun"  # what a request that has an engine to itself is told first
BEGUN_SECONDS = 0.1  # for that word to arrive before the engine may die of the request
AudioRef = list[Any]  # one ObjectRef in a list: Ray would fetch a bare one before the call, on the caller's side


class Exclusive:
    """Lets one request have the process to itself, to find out which one kills it."""

    def __init__(self, *queues: Batcher[Any, Any]) -> None:
        self.queues = queues
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nothing else is at work in the block; what comes in meanwhile waits."""
        async with self._turn:
            try:
                for queue in self.queues:
                    queue.pause()
                while any(queue.busy for queue in self.queues):  # noqa: ASYNC110 (rare, and over within a batch)
                    await asyncio.sleep(0.02)
                yield
            finally:
                for queue in self.queues:
                    queue.resume()


class Replica:
    """What both kinds of replicas do: answer a request while nothing else is at work, and tell that they are alive."""

    _exclusive: Exclusive
    _tidied, _tidied_at = 0, 0.0  # how many batches had been run when memory was given back last, and when that was

    async def check_health(self) -> None:
        """A device that hangs holds its thread for ever and raises nothing: then Serve is to replace the replica.

        Also the time to give memory back, since Serve asks every second: when there is nothing to do after work, and
        once a minute between batches that never end.
        """
        queues = self._exclusive.queues
        refuse_stuck(max(queue.busy_seconds for queue in queues))
        ran, idle = sum(queue.ran for queue in queues), not any(queue.busy for queue in queues)
        if ran != self._tidied and (idle or time.monotonic() - self._tidied_at > TIDY_SECONDS):
            self._tidied, self._tidied_at = ran, time.monotonic()
            await asyncio.to_thread(give_back)

    async def alone(self, method: str, *args: Any) -> AsyncIterator[Any]:
        """`BEGUN` as soon as nothing else is at work, then what `method` answers.

        Whoever has heard `BEGUN` and then loses the replica knows what it died of.
        """
        async with self._exclusive.alone():
            yield BEGUN
            await asyncio.sleep(BEGUN_SECONDS)
            yield await getattr(self, method)(*args, alone=True)


async def submit(queue: Batcher[Any, T], items: Sequence[Any], alone: bool) -> list[T]:
    """The results of `items`; `alone` within `Exclusive.alone` only."""
    return await (queue.submit_alone(items) if alone else queue.submit(items))


def give_back() -> bool:
    """Give memory that is free back to the system; whether there was any. About 10 ms.

    glibc keeps what lies between pieces in use, and a process that ran thousands of forward passes of different sizes
    holds twice what it needs. Other C libraries are left alone.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return bool(trim and trim(0))


def refuse_stuck(busy_seconds: float, limit: float = STUCK_SECONDS) -> None:
    """Raise for a device that hangs: it holds its thread for ever and raises nothing itself."""
    if busy_seconds > limit:
        raise RuntimeError(f"The engine has been at one batch for {busy_seconds:.0f} s.")
