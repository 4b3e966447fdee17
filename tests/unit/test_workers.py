"""Work in this process: engines that are loaded when needed and are never asked twice at once."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from pipeline.audio import hear
from pipeline.audio.decode import DecodeOptions
from pipeline.domain.speech import Chunk, Recording
from pipeline.workers import LocalWorkers

MONO = Path(__file__).parents[2] / "serve_app" / "demo" / "samples" / "03_repair_mono" / "call.flac"
CHUNK = [Chunk(0, 0.5, 4.0, "en")]


class Watched:
    """An engine that knows how many threads were in it at once."""

    def __init__(self, engine: Any) -> None:
        self.name, self.max_chunk_seconds = engine.name, engine.max_chunk_seconds
        self.entered = threading.Event()
        self.most = self._inside = 0
        self._engine = engine

    def transcribe(self, *args: Any) -> Any:
        self._inside += 1
        self.most = max(self.most, self._inside)
        self.entered.set()
        try:
            return self._engine.transcribe(*args)
        finally:
            self._inside -= 1


async def loaded(workers: LocalWorkers) -> Any:
    return await workers.hold(hear.load, [Recording(0, MONO.as_uri(), "00" * 32, 1)], DecodeOptions())


async def test_an_engine_is_not_asked_again_while_it_works_for_somebody_who_has_left(transcriber: Any) -> None:
    engine = Watched(transcriber)
    workers = LocalWorkers(engine, None)
    audio = await loaded(workers)
    left = asyncio.create_task(workers.transcribe(audio, CHUNK))
    await asyncio.to_thread(engine.entered.wait, 10)
    left.cancel()
    (text,) = await workers.transcribe(audio, CHUNK)
    assert left.cancelled()
    assert text.words
    assert engine.most == 1


async def test_who_leaves_before_it_is_their_turn_is_not_served(transcriber: Any) -> None:
    engine = Watched(transcriber)
    workers = LocalWorkers(engine, None)
    audio = await loaded(workers)
    asked = [asyncio.create_task(workers.transcribe(audio, CHUNK)) for _ in range(3)]
    await asyncio.to_thread(engine.entered.wait, 10)
    asked[1].cancel()
    assert [type(found) for found in await asyncio.gather(*asked, return_exceptions=True)] == [
        list,
        asyncio.CancelledError,
        list,
    ]


async def test_an_engine_given_as_a_factory_is_loaded_once_and_when_needed(transcriber: Any) -> None:
    made: list[int] = []

    def make() -> Any:
        made.append(1)
        return transcriber

    workers = LocalWorkers(make, None)
    assert not made
    names = await asyncio.gather(*(workers.recognition() for _ in range(3)))
    assert {(name.engine, name.max_chunk_seconds) for name in names} == {("faster-whisper demo int8", 8.0)}
    assert len(made) == 1
