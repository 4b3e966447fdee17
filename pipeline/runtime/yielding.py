"""Workers for work that nobody waits for: it lets other work go first, in small pieces, and says what it took.

Does not use Ray: it stands around any `Workers`.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from pipeline.domain.speech import Chunk, ChunkText, Diarization, Span, Voiceprint
from pipeline.runtime.workers import Held, Recognition, Workers

T = TypeVar("T")
PIECE = 4  # chunks of recognition at once while others work,
LARGE_PIECE = 8  # and while nobody does: who comes meanwhile waits for no more
LOOK_SECONDS = 0.25  # between two looks whether others still work

OTHER = "other"  # what is between stages
stage_at_work: ContextVar[str] = ContextVar("stage_at_work", default=OTHER)
"""The stage that a task works on, by which its seconds are counted."""


class Turns:
    """Lets work go on, side by side, while nobody else works; otherwise one at a time, for `share` of the time."""

    def __init__(self, busy: Callable[[], Awaitable[bool]], share: float) -> None:
        """`busy` says whether others work now; `share` lies between 0 and 1."""
        self.busy = busy
        self._pause = 1 / share - 1  # seconds to wait for one of work
        self._owed = 0.0
        self._one = asyncio.Lock()  # pieces of several calls take turns

    async def take(self, work: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        """Wait for a turn, then do `work`; returns what it returned, and the seconds that it took."""
        if not await self.busy():
            return await _timed(work)
        async with self._one:
            until = time.monotonic() + self._owed
            while time.monotonic() < until and await self.busy():  # noqa: ASYNC110 (of other processes)
                await asyncio.sleep(LOOK_SECONDS)
            begun = time.monotonic()
            try:
                return await _timed(work)
            finally:
                self._owed = (time.monotonic() - begun) * self._pause


async def _timed(work: Callable[[], Awaitable[T]]) -> tuple[T, float]:
    begun = time.monotonic()
    return await work(), time.monotonic() - begun


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


NAMES = {"attribute": "speakers", "refine": "speakers", "analyze": "analysis"}
"""CPU functions that a stage does not recall, and the stage that they are of."""
