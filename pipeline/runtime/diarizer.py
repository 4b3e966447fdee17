"""The Diarizer: mixed recordings of many calls share the batches of the networks. Does not use Ray.

A call has at most two batches of its windows in the queue: calls take turns, and the sound in memory is bounded.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline.diarization.engine import DiarizationOptions, Engine
from pipeline.domain.speech import Diarization, Span, Voiceprint
from pipeline.observability.tracing import on_request
from pipeline.runtime.batching import Batcher
from pipeline.runtime.replica import AudioRef, Exclusive, Replica, submit
from pipeline.runtime.workers import Samples, spoken

AHEAD = 2  # batches of one call in the queue at once: one is running while the next is read
READERS = 8  # calls whose sound is read at once, against the latency of an object store

Spoken = Callable[[], list[Samples]]
Piece = Callable[[], Samples]


class DiarizerReplica(Replica):
    """Speaker separation of mixed recordings, and voiceprints. A call that cannot be read or finalized fails alone."""

    STAGE = DiarizationOptions.ENGINES.stage

    def __init__(self, options: dict[str, Any], store: str | None = None) -> None:
        from pipeline import diarization

        chosen, folder = DiarizationOptions.model_validate(options), Path(store) if store else None
        super().__init__(lambda: diarization.load(chosen, folder))

    def _set_up(self, engine: Engine) -> Exclusive:
        self._engine = engine
        self._device = threading.Lock()  # the engine is not re-entrant, and two queues use it
        self._readers = ThreadPoolExecutor(READERS)
        self._parts: Batcher[Any, Any] = Batcher(self._infer, self._engine.batch_size)
        self._voices: Batcher[Spoken, Voiceprint | None] = Batcher(self._voice, size=1)
        # One call at a time: clustering a long call takes much memory.
        self._finals: Batcher[list[Any], Diarization] = Batcher(self._finalize, size=1)
        # A batch is read and embedded at once; other calls take turns between two batches.
        self._pieces: Batcher[Piece, Voiceprint | None] = Batcher(self._voices_of, self._engine.batch_size)
        return Exclusive(self._parts, self._voices, self._pieces, self._finals)

    @on_request
    async def diarize(self, audio: AudioRef, alone: bool = False) -> Diarization:
        self._ready()
        inferred = await self._inferred(self._engine.parts((await audio[0]).audio), alone)
        (diarization,) = await submit(self._finals, [inferred], alone)
        return diarization

    @on_request
    async def voiceprint(
        self, audio: AudioRef, channel: int, speech: Sequence[Span], alone: bool = False
    ) -> Voiceprint | None:
        self._ready()
        sound = (await audio[0]).audio
        (voiceprint_,) = await submit(self._voices, [lambda: spoken(sound, channel, speech)], alone)
        return voiceprint_

    @on_request
    async def voices(
        self, audio: AudioRef, channel: int, speech: Sequence[Span], alone: bool = False
    ) -> list[Voiceprint | None]:
        self._ready()
        sound = (await audio[0]).audio
        pieces = [partial(sound.cut, channel, span.start, span.end) for span in speech]
        return await submit(self._pieces, pieces, alone)

    async def _inferred(self, parts: Iterator[Any], alone: bool) -> list[Any]:
        loop, size = asyncio.get_running_loop(), self._engine.batch_size
        results: list[Any] = []
        ahead: deque[asyncio.Task[list[Any]]] = deque()
        try:
            while batch := await loop.run_in_executor(self._readers, lambda: list(islice(parts, size))):
                ahead.append(asyncio.create_task(submit(self._parts, batch, alone)))
                if len(ahead) == AHEAD:
                    results += await ahead.popleft()
            while ahead:
                results += await ahead.popleft()
        finally:
            for task in ahead:
                task.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)
        return results

    def _infer(self, parts: list[Any]) -> Sequence[Any]:
        with self._device:
            return self._engine.infer(parts)

    def _voice(self, batch: list[Spoken]) -> list[Voiceprint | None]:
        (read,) = batch
        pieces = read()
        with self._device:
            return [self._engine.voiceprint(pieces)]

    def _voices_of(self, batch: list[Piece]) -> list[Voiceprint | None]:
        pieces = [read() for read in batch]
        with self._device:
            return self._engine.voices(pieces)

    def _finalize(self, batch: list[list[Any]]) -> list[Diarization]:
        (inferred,) = batch
        return [self._engine.finalize(inferred)]
