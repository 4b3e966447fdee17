"""Workers for work that nobody waits for: it lets other work go first, in small pieces, and says what it took.

Does not use Ray: it stands around any `Workers`.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from pipeline.domain.speech import Chunk, ChunkText, Diarization, Span, Voiceprint
from pipeline.runtime.task_limiter import TaskLimiter
from pipeline.runtime.workers import Held, Recognition, Workers

T = TypeVar("T")
PIECE = 4  # chunks of recognition at once while others work,
LARGE_PIECE = 8  # and while nobody does: who comes meanwhile waits for no more
RESERVE = 1.0  # CPUs of the cluster that background work leaves to the service, also while no call waits
LOOK_SECONDS = 0.25  # between two looks whether others still work

OTHER = "other"  # what is between stages
stage_at_work: ContextVar[str] = ContextVar("stage_at_work", default=OTHER)
"""The stage that a task works on, by which its seconds are counted."""


def places(cpus: float, sharing: int = 1) -> int:
    """How many pieces of work one of `sharing` processes does at once on a cluster with so many CPUs."""
    return max(1, int((cpus - RESERVE) / max(1, sharing)))


class Turns:
    """Lets work go on while nobody else works, `room()` pieces side by side; otherwise one at a time, for `share` of
    the time: after each piece comes a rest, also after one that began before the others came.
    """

    def __init__(self, busy: Callable[[], Awaitable[bool]], share: float, room: Callable[[], int]) -> None:
        """`busy` says whether others work now; `share` lies between 0 and 1."""
        self.busy = busy
        self._rest = 1 / share - 1  # seconds of rest for one of work
        self._rested_at = -math.inf
        self._places = TaskLimiter(room)
        self._one = asyncio.Lock()  # pieces of several calls take turns

    async def take(self, work: Callable[[], Awaitable[T]], seconds: float = 0.0) -> tuple[T, float]:
        """Wait for a turn, then do `work`; returns what it returned, and the seconds that it took.

        `seconds`: that it will take at least, of work that is too long for a piece: it rests before, too.
        """
        if seconds:
            self._rest_for(seconds)
        async with self._places.of():
            if not await self.busy():
                return await self._done(work)
            async with self._one:
                while time.monotonic() < self._rested_at and await self.busy():  # noqa: ASYNC110 (of other processes)
                    await asyncio.sleep(LOOK_SECONDS)
                return await self._done(work)

    async def _done(self, work: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        begun = time.monotonic()
        try:
            return await work(), time.monotonic() - begun
        finally:
            self._rest_for(time.monotonic() - begun)

    def _rest_for(self, seconds: float) -> None:
        self._rested_at = max(self._rested_at, time.monotonic() + seconds * self._rest)


class YieldingWorkers:
    """`Workers` whose work waits for a turn, piece by piece. `seconds`: of work, by stage."""

    def __init__(self, workers: Workers, turns: Turns) -> None:
        self._workers = workers
        self._turns = turns
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def of(self, owner: Hashable) -> "YieldingWorkers":
        return YieldingWorkers(self._workers.of(owner), self._turns)

    async def recognition(self) -> Recognition:
        return await self._workers.recognition()

    async def diarizer(self) -> str:
        return await self._workers.diarizer()

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await self._take(lambda: self._workers.compute(fn, *args), NAMES.get(fn.__name__))

    async def hold(self, fn: Callable[..., Any], *args: Any) -> Held:
        return await self._take(lambda: self._workers.hold(fn, *args))

    async def transcribe(
        self, audio: Held, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        found: list[ChunkText] = []
        while len(found) < len(chunks):
            size = PIECE if await self._turns.busy() else LARGE_PIECE
            piece = chunks[len(found) : len(found) + size]
            found += await self._take(partial(self._workers.transcribe, audio, piece, vocabulary, with_fallback))
        return found

    async def diarize(self, audio: Held) -> Diarization:
        return await self._take(lambda: self._workers.diarize(audio))

    async def voiceprint(self, audio: Held, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        return await self._take(lambda: self._workers.voiceprint(audio, channel, speech))

    async def voices(self, audio: Held, channel: int, speech: Sequence[Span]) -> list[Voiceprint | None]:
        return await self._take(lambda: self._workers.voices(audio, channel, speech))

    async def _take(self, work: Callable[[], Awaitable[T]], stage: str | None = None) -> T:
        done, seconds = await self._turns.take(work)
        self.seconds[stage or stage_at_work.get()] += seconds
        return done


NAMES = {
    "attribute": "speakers",
    "refine": "speakers",
    "analyze": "analysis",
    "model_requests": "analysis",
    "conclude": "analysis",
}
"""CPU functions that a stage does not recall, and the stage that they are of."""
