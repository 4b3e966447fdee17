"""Work that nobody waits for lets other work go first."""

import asyncio
import time
from typing import Any

from pipeline.domain.speech import Chunk, ChunkText
from pipeline.runtime import yielding
from pipeline.runtime.workers import Held, LocalWorkers
from pipeline.runtime.yielding import Turns, YieldingWorkers, stage_at_work


class Workers(LocalWorkers):
    def __init__(self) -> None:
        super().__init__(None, None)
        self.pieces: list[int] = []

    async def transcribe(
        self, audio: Held, chunks: Any, vocabulary: Any = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        self.pieces.append(len(chunks))
        await asyncio.sleep(0.05)
        return [ChunkText(one, "en", 1.0, (), 0.0, 0.0) for one in chunks]


def chunks(count: int) -> list[Chunk]:
    return [Chunk(0, float(at), at + 1.0) for at in range(count)]


def workers(busy: bool, share: float = 0.25) -> tuple[Workers, YieldingWorkers]:
    async def at_work() -> bool:
        return busy

    inner = Workers()
    return inner, YieldingWorkers(inner, Turns(at_work, share))


async def test_chunks_are_recognized_a_few_at_a_time_and_all_come_back() -> None:
    count = yielding.LARGE_PIECE + 1
    for busy, sizes in ((False, [yielding.LARGE_PIECE, 1]), (True, [yielding.PIECE, yielding.PIECE, 1])):
        inner, outer = workers(busy, share=0.99)
        asked = chunks(count)
        assert [one.chunk for one in await outer.transcribe(Held(None), asked)] == asked
        assert inner.pieces == sizes


async def test_while_others_work_it_keeps_its_share_of_the_time_and_no_more(monkeypatch: Any) -> None:
    monkeypatch.setattr(yielding, "LOOK_SECONDS", 0.005)
    _, outer = workers(busy=True, share=0.25)
    begun = time.monotonic()
    await outer.transcribe(Held(None), chunks(yielding.PIECE * 4))
    assert time.monotonic() - begun > 0.05 * 4 + 3 * 0.05 * 3, "three waits of three times what a piece took"


async def test_while_nobody_works_it_waits_for_nothing() -> None:
    _, outer = workers(busy=False, share=0.01)
    begun = time.monotonic()
    await outer.transcribe(Held(None), chunks(yielding.PIECE * 4))
    assert time.monotonic() - begun < 5, "at a share of 0.01 the waits alone would take 15 s"


async def test_seconds_of_work_are_counted_by_stage_without_the_waits(monkeypatch: Any) -> None:
    monkeypatch.setattr(yielding, "LOOK_SECONDS", 0.005)
    _, outer = workers(busy=True, share=0.2)
    stage_at_work.set("asr")
    begun = time.monotonic()
    await outer.transcribe(Held(None), chunks(yielding.PIECE * 2))
    assert 0.09 < outer.seconds["asr"] < time.monotonic() - begun - 0.1
    stage_at_work.set("audio")
    await outer.compute(sum, (1, 2))
    assert set(outer.seconds) == {"asr", "audio"}
