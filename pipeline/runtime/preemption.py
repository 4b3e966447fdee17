"""Workers for background work: other work goes first, this runs in small pieces and reports the seconds it took.

Does not use Ray: wraps any `Workers`.
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
from pipeline.runtime.workers import Recognition, RemoteRef, Workers

T = TypeVar("T")
PIECE = 4  # chunks of recognition at once while others work,
LARGE_PIECE = 8  # and while none does: a call that arrives in the meantime waits for no more
RESERVE = 1.0  # CPUs of the cluster that background work leaves to the service, also while no call waits
LOOK_SECONDS = 0.25  # between two checks whether others still work

OTHER = "other"  # between stages
stage_at_work: ContextVar[str] = ContextVar("stage_at_work", default=OTHER)
"""The stage that the task runs; its seconds are counted under this name."""


def places(cpus: float, sharing: int = 1) -> int:
    """Return how many pieces one of `sharing` processes may run at once on a cluster with `cpus` CPUs."""
    return max(1, int((cpus - RESERVE) / max(1, sharing)))


class PreemptionGate:
    """Runs `room()` pieces in parallel while no other work runs; otherwise one at a time, for `share` of the time.

    After each piece comes a rest, also after one that began before the other work did.
    """

    def __init__(self, busy: Callable[[], Awaitable[bool]], share: float, room: Callable[[], int]) -> None:
        """`busy` returns whether other work runs now; `share` is between 0 and 1."""
        self.busy = busy
        self._rest = 1 / share - 1  # seconds of rest per second of work
        self._rested_at = -math.inf
        self._places = TaskLimiter(room)
        self._single = asyncio.Lock()  # pieces of several calls take turns

    async def take(self, work: Callable[[], Awaitable[T]], seconds: float = 0.0) -> tuple[T, float]:
        """Wait for a turn, then run `work`; return its result and the seconds that it took.

        `seconds`: the least that work too long for a piece will take; such work rests before it, too.
        """
        if seconds:
            self._rest_for(seconds)
        async with self._places.of():
            if not await self.busy():
                return await self._done(work)
            async with self._single:
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


class LowPriorityWorkers:
    """`Workers` whose work waits at a gate, piece by piece. `seconds`: of work, by stage."""

    def __init__(self, workers: Workers, gate: PreemptionGate) -> None:
        self._workers = workers
        self._gate = gate
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def of(self, owner: Hashable) -> "LowPriorityWorkers":
        return LowPriorityWorkers(self._workers.of(owner), self._gate)

    async def recognition(self) -> Recognition:
        return await self._workers.recognition()

    async def diarizer(self) -> str:
        return await self._workers.diarizer()

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await self._take(lambda: self._workers.compute(fn, *args), STAGE_OF_FUNCTION.get(fn.__name__))

    async def hold(self, fn: Callable[..., Any], *args: Any) -> RemoteRef:
        return await self._take(lambda: self._workers.hold(fn, *args))

    async def transcribe(
        self, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        texts: list[ChunkText] = []
        while len(texts) < len(chunks):
            size = PIECE if await self._gate.busy() else LARGE_PIECE
            piece = chunks[len(texts) : len(texts) + size]
            texts += await self._take(partial(self._workers.transcribe, audio, piece, vocabulary, with_fallback))
        return texts

    async def diarize(self, audio: RemoteRef) -> Diarization:
        return await self._take(lambda: self._workers.diarize(audio))

    async def voiceprint(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        return await self._take(lambda: self._workers.voiceprint(audio, channel, speech))

    async def voices(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> list[Voiceprint | None]:
        return await self._take(lambda: self._workers.voices(audio, channel, speech))

    async def _take(self, work: Callable[[], Awaitable[T]], stage: str | None = None) -> T:
        result, seconds = await self._gate.take(work)
        self.seconds[stage or stage_at_work.get()] += seconds
        return result


STAGE_OF_FUNCTION = {
    "attribute": "speakers",
    "refine": "speakers",
    "analyze": "analysis",
    "model_requests": "analysis",
    "conclude": "analysis",
}
"""CPU functions that run outside of a recorded stage, with the stage that their seconds count for."""
