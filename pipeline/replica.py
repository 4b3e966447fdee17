"""What the replicas of both engines have in common. Knows nothing of Ray."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pipeline.batching import Batcher

T = TypeVar("T")
STUCK_SECONDS = 1800.0  # far beyond any batch, on a slow CPU too
BEGUN = "begun"  # what a request that has an engine to itself is told first
BEGUN_SECONDS = 0.1  # for that word to arrive before the engine may die of the request
AudioRef = list[Any]  # one ObjectRef in a list: Ray would fetch a bare one before the call, on the caller's side


class Exclusive:
    """Lets one request have the process to itself, to find out which one kills it."""

    def __init__(self, *queues: Batcher[Any, Any]) -> None:
        self._queues = queues
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nothing else is at work in the block; what comes in meanwhile waits."""
        async with self._turn:
            try:
                for queue in self._queues:
                    queue.pause()
                while any(queue.busy for queue in self._queues):  # noqa: ASYNC110 (rare, and over within a batch)
                    await asyncio.sleep(0.02)
                yield
            finally:
                for queue in self._queues:
                    queue.resume()


class Replica:
    """What both kinds of replicas do: answer a request while nothing else is at work."""

    _exclusive: Exclusive

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


def refuse_stuck(busy_seconds: float, limit: float = STUCK_SECONDS) -> None:
    """Raise for a device that hangs: it holds its thread for ever and raises nothing itself."""
    if busy_seconds > limit:
        raise RuntimeError(f"The engine has been at one batch for {busy_seconds:.0f} s.")
