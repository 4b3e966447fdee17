import asyncio
import threading
from typing import Any

import numpy as np

from pipeline.audio import analyze
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import AudioInMemory, Chunk, Recording, Span
from pipeline.runtime.workers import LocalWorkers, spoken
from tests.synthetic_calls import FOLDER

MONO = FOLDER / "03_repair_mono" / "call.flac"
CHUNK = [Chunk(0, 0.5, 4.0, "en")]


class Watched:
    """An engine that knows how many threads were in it at once."""

    def __init__(self, engine: Any, at_once: int = 1) -> None:
        self.batches_at_once = at_once
        self.name, self.max_chunk_seconds, self.batch_size = engine.name, engine.max_chunk_seconds, engine.batch_size
        self.packing = engine.packing
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
    return await workers.hold(analyze.load, [Recording(0, MONO.as_uri(), "00" * 32, 1)], DecodeOptions())


async def test_an_engine_is_not_asked_again_while_it_works_for_somebody_who_has_left(transcriber: Any) -> None:
    engine = Watched(transcriber)
    workers = LocalWorkers(engine, None)
    audio = await loaded(workers)
    canceled = asyncio.create_task(workers.transcribe(audio, CHUNK))
    await asyncio.to_thread(engine.entered.wait, 10)
    canceled.cancel()
    (text,) = await workers.transcribe(audio, CHUNK)
    assert canceled.cancelled()
    assert text.words
    assert engine.most == 1


async def test_who_leaves_before_it_is_their_turn_is_not_served(transcriber: Any) -> None:
    engine = Watched(transcriber)
    workers = LocalWorkers(engine, None)
    audio = await loaded(workers)
    asked = [asyncio.create_task(workers.transcribe(audio, CHUNK)) for _ in range(3)]
    await asyncio.to_thread(engine.entered.wait, 10)
    asked[1].cancel()
    assert [type(result) for result in await asyncio.gather(*asked, return_exceptions=True)] == [
        list,
        asyncio.CancelledError,
        list,
    ]


async def test_an_engine_given_as_a_factory_is_loaded_once_and_when_needed(transcriber: Any) -> None:
    loads: list[int] = []

    def make() -> Any:
        loads.append(1)
        return transcriber

    workers = LocalWorkers(make, None)
    assert not loads
    names = await asyncio.gather(*(workers.recognition() for _ in range(3)))
    engines = {(name.engine.removesuffix(" (encoder bfloat16)"), name.max_chunk_seconds) for name in names}
    assert engines == {("faster-whisper recognition int8", 8.0)}
    assert len(loads) == 1


async def test_chunks_are_read_and_asked_for_a_batch_at_a_time_and_come_back_in_their_order(transcriber: Any) -> None:
    sizes, most = await asked_for(7, 1, transcriber)
    assert (sizes, most) == ([4, 3], 1)


async def test_what_a_call_has_is_divided_among_the_batches_that_the_engine_takes_at_once(transcriber: Any) -> None:
    sizes, most = await asked_for(4, 2, transcriber)
    assert (sizes, most) == ([2, 2], 2)
    assert await asked_for(1, 2, transcriber) == ([1], 1)
    assert (await asked_for(12, 2, transcriber))[0] == [4, 4, 4]


async def asked_for(number: int, at_once: int, transcriber: Any) -> tuple[list[int], int]:
    """Return the batch sizes of a call with this number of chunks, and how many ran in parallel."""

    class Counting(Watched):
        def transcribe(self, samples: Any, chunks: Any, vocabularies: Any, with_fallback: bool) -> Any:
            sizes.append(len(samples))
            assert [len(piece) for piece in samples] == [round(chunk.duration * 16000) for chunk in chunks]
            assert [list(words) for words in vocabularies] == [["Weber"]] * len(chunks)
            return super().transcribe(samples, chunks, vocabularies, with_fallback)

    sizes: list[int] = []
    engine = Counting(transcriber, at_once)
    workers = LocalWorkers(engine, None)
    chunks = [Chunk(0, start, start + 4 - start / 10, "en") for start in range(number)]
    texts = await workers.transcribe(await loaded(workers), chunks, ("Weber",))
    assert [text.chunk for text in texts] == chunks
    assert await workers.transcribe(await loaded(workers), [], ()) == []
    return sizes, engine.most


def test_a_voiceprint_is_made_of_the_longest_speech_and_of_no_more_than_is_needed() -> None:
    audio = AudioInMemory(np.arange(16000 * 20, dtype=np.int16)[None])
    spans = [Span(0, 1), Span(2, 8), Span(9, 12), Span(13, 17)]
    assert [len(piece) / 16000 for piece in spoken(audio, 0, spans, seconds=100)] == [1, 6, 3, 4]
    assert [len(piece) / 16000 for piece in spoken(audio, 0, spans, seconds=8)] == [6, 2]
    assert spoken(audio, 0, spans, seconds=8)[1][0] == audio.cut(0, 13, 14)[0]
    assert spoken(audio, 0, ()) == []
