"""Runs heavy work: in this process (`LocalWorkers`) or on a Ray cluster (`actors.RayWorkers`).

`process.py` uses only the protocol, so a notebook runs what production runs.
"""

import asyncio
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import Audio, Chunk, ChunkText, Diarization, Span, Voiceprint
from pipeline.engines.registry import identity_of
from pipeline.errors import EngineUnavailable
from pipeline.observability.context import cancellable
from pipeline.observability.work_clock import counted

Samples = npt.NDArray[np.float32]

VOICE_SECONDS = 180.0  # of speech that a voiceprint is made from: more changes nothing and costs memory


class RemoteRef:
    """A reference to a result that stays in the process that computed it. Only `Workers` reads `inside`."""

    __slots__ = ("inside",)

    def __init__(self, inside: Any) -> None:
        self.inside = inside


def opened(arg: Any) -> Any:
    """Return the result behind a reference; any other argument as it is."""
    return arg.inside if isinstance(arg, RemoteRef) else arg


@dataclass(frozen=True, slots=True)
class Recognition:
    """The recognizer's name, its longest chunk, and whether pauses may be left out of a chunk.

    `identity`: a digest of the engine with its options and checkpoint (`pipeline.steps.provenance`).
    """

    engine: str
    max_chunk_seconds: float
    packing: bool = True
    identity: str = ""


class Workers(Protocol):
    """Runs the heavy work of `process`.

    Every method may raise `EngineError`; `compute` and `hold` pass on what `fn` raises.
    `audio` is always a `RemoteRef` of `pipeline.audio.analyze.Loaded`.
    """

    def of(self, owner: Hashable) -> "Workers":
        """Return the same workers for calls of one owner (a workspace): owners that share CPUs take turns."""

    async def recognition(self) -> Recognition:
        """Return the recognizer in use."""

    async def diarizer(self) -> str:
        """Return the identity of the diarizer in use; see `Recognition.identity`."""

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a CPU function outside the event loop; `RemoteRef` arguments arrive as their results."""

    async def hold(self, fn: Callable[..., Any], *args: Any) -> RemoteRef:
        """Run as `compute`, but the result stays there and a reference comes back.

        If canceled, it ends when `fn` has ended: what `fn` wrote can be removed then.
        """

    async def transcribe(
        self, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        """Recognize chunks; results in the order of `chunks`. See `pipeline.asr.Engine` for the rest."""

    async def diarize(self, audio: RemoteRef) -> Diarization:
        """Return who spoke when in channel 0 of `audio`."""

    async def voiceprint(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        """Return a voiceprint of one channel's speech; None when too little was said."""

    async def voices(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> list[Voiceprint | None]:
        """Return the voiceprint of each of several stretches of a channel; None if too little was said."""


class LocalWorkers:
    """Runs everything in this process, heavy work in threads: for notebooks, `switchboard process` and tests.

    `transcriber` is a `pipeline.asr.Engine`, `diarizer` a `pipeline.diarization.Engine`, or a factory that is called at
    first use. `diarizer` may be None if no call needs it.
    """

    def __init__(self, transcriber: Any, diarizer: Any) -> None:
        self._engines = {"transcriber": transcriber, "diarizer": diarizer}
        self._loading = {name: asyncio.Lock() for name in self._engines}
        self._room: dict[str, asyncio.Semaphore] = {}  # as many requests at a time as the engine runs

    def of(self, owner: Hashable) -> "LocalWorkers":
        return self  # the operating system schedules threads

    async def _engine(self, name: str) -> Any:
        async with self._loading[name]:
            engine = self._engines[name]
            if callable(engine) and not hasattr(engine, "name"):
                engine = self._engines[name] = await asyncio.to_thread(engine)
            self._room.setdefault(name, asyncio.Semaphore(engine.batches_at_once if name == "transcriber" else 1))
        return engine

    async def recognition(self) -> Recognition:
        engine = await self._engine("transcriber")
        identity = await asyncio.to_thread(identity_of, engine)
        return Recognition(engine.name, engine.max_chunk_seconds, engine.packing, identity)

    async def diarizer(self) -> str:
        if self._engines["diarizer"] is None:
            raise EngineUnavailable("There is no diarization engine.")
        return await asyncio.to_thread(identity_of, await self._engine("diarizer"))

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn` in a thread. If the caller leaves, it stops if it checks `is_cancelled`, else it runs to its end."""
        with cancellable() as canceled:
            try:
                return await asyncio.to_thread(fn, *map(opened, args))
            except asyncio.CancelledError:
                canceled.set()
                raise

    async def hold(self, fn: Callable[..., Any], *args: Any) -> RemoteRef:
        with cancellable() as canceled:
            work = asyncio.ensure_future(asyncio.to_thread(fn, *map(opened, args)))
            try:
                return RemoteRef(await asyncio.shield(work))
            except asyncio.CancelledError:
                canceled.set()
                await asyncio.wait([work])
                work.cancelled() or work.exception()  # mark it as retrieved
                raise

    async def transcribe(
        self, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        return await self._in_batches(
            audio,
            chunks,
            lambda engine, samples, batch: engine.transcribe(samples, batch, [vocabulary] * len(batch), with_fallback),
        )

    async def diarize(self, audio: RemoteRef) -> Diarization:
        return await self._run("diarizer", lambda engine: engine.diarize(audio.inside.audio))  # type: ignore[no-any-return]

    async def voiceprint(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        return await self._run(  # type: ignore[no-any-return]
            "diarizer", lambda engine: engine.voiceprint(spoken(audio.inside.audio, channel, speech))
        )

    async def voices(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> list[Voiceprint | None]:
        sound = audio.inside.audio
        return await self._run(  # type: ignore[no-any-return]
            "diarizer", lambda engine: engine.voices([sound.cut(channel, span.start, span.end) for span in speech])
        )

    async def _in_batches(
        self, audio: RemoteRef, chunks: Sequence[Chunk], ask: Callable[[Any, list[Samples], list[Chunk]], list[Any]]
    ) -> list[Any]:
        """Run as many batches at once as the transcriber takes; only their sound is in memory.

        Chunks of similar length share a batch.
        """
        engine = await self._engine("transcriber")
        order = sorted(range(len(chunks)), key=lambda at: chunks[at].seconds)
        size = min(engine.batch_size, max(1, math.ceil(len(order) / engine.batches_at_once)))
        done: dict[int, Any] = {}

        async def run_batch(rows: Sequence[int]) -> None:
            batch = [chunks[at] for at in rows]
            texts = await self._run("transcriber", lambda engine: ask(engine, pieces(audio.inside.audio, batch), batch))
            done.update(zip(rows, texts, strict=True))

        batches = [asyncio.create_task(run_batch(order[at : at + size])) for at in range(0, len(order), size)]
        try:
            await asyncio.gather(*batches)
        finally:
            for batch in batches:
                batch.cancel()  # one failure fails all
        return [done[at] for at in range(len(chunks))]

    async def _run(self, name: str, ask: Callable[[Any], Any]) -> Any:
        """Run `ask` in a thread, which cannot be stopped: if the caller leaves, its place stays taken until it ends."""
        engine = await self._engine(name)
        await self._room[name].acquire()
        work = asyncio.ensure_future(asyncio.to_thread(ask, engine))
        work.add_done_callback(lambda _: self._room[name].release())
        return counted(await asyncio.shield(work))  # which says nothing of replicas


def pieces(audio: Audio, chunks: Sequence[Chunk]) -> list[Samples]:
    """Return the samples of each chunk, float32 mono at 16 kHz. May raise `StorageError`."""
    return [audio.sound(chunk) for chunk in chunks]


def spoken(audio: Audio, channel: int, speech: Sequence[Span], seconds: float = VOICE_SECONDS) -> list[Samples]:
    """Return the samples of the longest spans of speech of one channel, at most `seconds` in all, in order of time."""
    chosen, remaining = [], seconds
    for span in sorted(speech, key=lambda span: -span.duration):
        if remaining <= 0:
            break
        chosen.append(Span(span.start, min(span.end, span.start + remaining)))
        remaining -= chosen[-1].duration
    return [audio.cut(channel, span.start, span.end) for span in sorted(chosen, key=lambda span: span.start)]
