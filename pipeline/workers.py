"""Where the heavy work is done: in this process (`LocalWorkers`) or on a Ray cluster (`actors.RayWorkers`).

`process.py` knows only the protocol, so a notebook runs what production runs.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pipeline.domain.speech import Audio, Chunk, ChunkText, Diarization, Span, Voiceprint


class Held:
    """A handle on a result that stays where it was made. Only `Workers` looks inside."""

    __slots__ = ("inside",)

    def __init__(self, inside: Any) -> None:
        self.inside = inside


class Workers(Protocol):
    """What `process` asks for. Every method may raise `EngineError`; `compute` and `hold` pass on what `fn` raises."""

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a CPU function elsewhere than in the event loop; `Held` arguments arrive as what they hold."""

    async def hold(self, fn: Callable[..., Any], *args: Any) -> Held:
        """Like `compute`, but the result stays there and a handle comes back."""

    async def detect_languages(self, audio: Held, chunks: Sequence[Chunk]) -> list[dict[str, float]]:
        """For each chunk, the probability of each language (ISO 639-1)."""

    async def transcribe(self, audio: Held, chunks: Sequence[Chunk]) -> list[ChunkText]:
        """Recognise chunks; results in the order of `chunks`."""

    async def diarize(self, audio: Held) -> Diarization:
        """Who spoke when in channel 0 of `audio`."""

    async def voiceprint(self, audio: Held, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        """A voiceprint of one channel's speech; None when too little was said."""


class LocalWorkers:
    """Everything in this process, heavy work in threads: for notebooks, `switchboard process` and tests.

    `transcriber` is a `pipeline.asr.Engine`, `diarizer` a `pipeline.diarization.Engine`; a factory may be given
    in place of an engine, and is then called at first use.
    """

    def __init__(self, transcriber: Any, diarizer: Any) -> None:
        self._engines = {"transcriber": transcriber, "diarizer": diarizer}
        self._locks = {name: asyncio.Lock() for name in self._engines}  # engines are not re-entrant

    async def _engine(self, name: str) -> Any:
        engine = self._engines[name]
        if callable(engine) and not hasattr(engine, "name"):
            engine = self._engines[name] = await asyncio.to_thread(engine)
        return engine

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(fn, *(_open(arg) for arg in args))

    async def hold(self, fn: Callable[..., Any], *args: Any) -> Held:
        return Held(await self.compute(fn, *args))

    async def detect_languages(self, audio: Held, chunks: Sequence[Chunk]) -> list[dict[str, float]]:
        return await self._run("transcriber", "detect_languages", pieces(audio.inside, chunks), chunks)

    async def transcribe(self, audio: Held, chunks: Sequence[Chunk]) -> list[ChunkText]:
        return await self._run("transcriber", "transcribe", pieces(audio.inside, chunks), chunks)

    async def diarize(self, audio: Held) -> Diarization:
        whole = audio.inside.cut(0, 0.0, audio.inside.duration)
        return await self._run("diarizer", "diarize", whole)

    async def voiceprint(self, audio: Held, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        spoken = [audio.inside.cut(channel, span.start, span.end) for span in speech]
        return await self._run("diarizer", "voiceprint", spoken)

    async def _run(self, name: str, method: str, *args: Any) -> Any:
        async with self._locks[name]:
            return await asyncio.to_thread(getattr(await self._engine(name), method), *args)


def pieces(audio: Audio, chunks: Sequence[Chunk]) -> list[Any]:
    """The samples of each chunk, float32 mono at 16 kHz."""
    return [audio.cut(chunk.channel, chunk.start, chunk.end) for chunk in chunks]


def _open(arg: Any) -> Any:
    return arg.inside if isinstance(arg, Held) else arg
