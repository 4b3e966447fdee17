import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from pipeline.domain.speech import Chunk, ChunkText
from pipeline.runtime import preemption
from pipeline.runtime.preemption import LowPriorityWorkers, PreemptionGate, places, stage_at_work
from pipeline.runtime.workers import LocalWorkers, RemoteRef


class Workers(LocalWorkers):
    def __init__(self) -> None:
        super().__init__(None, None)
        self.pieces: list[int] = []

    async def transcribe(
        self, audio: RemoteRef, chunks: Any, vocabulary: Any = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        self.pieces.append(len(chunks))
        await asyncio.sleep(0.05)
        return [ChunkText(text, "en", 1.0, (), 0.0, 0.0) for text in chunks]


def chunks(count: int) -> list[Chunk]:
    return [Chunk(0, float(at), at + 1.0) for at in range(count)]


def turns(busy: "bool | Calls", share: float = 0.25, room: int = 8) -> PreemptionGate:
    async def at_work() -> bool:
        return busy.at_work if isinstance(busy, Calls) else busy

    return PreemptionGate(at_work, share, lambda: room)


def workers(busy: bool, share: float = 0.25) -> tuple[Workers, LowPriorityWorkers]:
    inner = Workers()
    return inner, LowPriorityWorkers(inner, turns(busy, share))


@dataclass
class Calls:
    """The service's calls, and pieces of background work that began."""

    at_work: bool = False
    begun: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def piece(self) -> None:
        self.begun += 1
        await self.go_on.wait()


async def test_chunks_are_recognized_a_few_at_a_time_and_all_come_back() -> None:
    count = preemption.LARGE_PIECE + 1
    for busy, sizes in ((False, [preemption.LARGE_PIECE, 1]), (True, [preemption.PIECE, preemption.PIECE, 1])):
        inner, outer = workers(busy, share=0.99)
        asked = chunks(count)
        assert [text.chunk for text in await outer.transcribe(RemoteRef(None), asked)] == asked
        assert inner.pieces == sizes


async def test_while_others_work_it_keeps_its_share_of_the_time_and_no_more(monkeypatch: Any) -> None:
    monkeypatch.setattr(preemption, "LOOK_SECONDS", 0.005)
    _, outer = workers(busy=True, share=0.25)
    begun = time.monotonic()
    await outer.transcribe(RemoteRef(None), chunks(preemption.PIECE * 4))
    assert time.monotonic() - begun > 0.05 * 4 + 3 * 0.05 * 3, "three waits of three times what a piece took"


async def test_while_nobody_works_it_waits_for_nothing() -> None:
    _, outer = workers(busy=False, share=0.01)
    begun = time.monotonic()
    await outer.transcribe(RemoteRef(None), chunks(preemption.PIECE * 4))
    assert time.monotonic() - begun < 5, "at a share of 0.01 the waits alone would take 15 s"


async def test_seconds_of_work_are_counted_by_stage_without_the_waits(monkeypatch: Any) -> None:
    monkeypatch.setattr(preemption, "LOOK_SECONDS", 0.005)
    _, outer = workers(busy=True, share=0.2)
    stage_at_work.set("asr")
    begun = time.monotonic()
    await outer.transcribe(RemoteRef(None), chunks(preemption.PIECE * 2))
    assert 0.09 < outer.seconds["asr"] < time.monotonic() - begun - 0.1
    stage_at_work.set("audio")
    await outer.compute(sum, (1, 2))
    assert set(outer.seconds) == {"asr", "audio"}


async def test_no_more_pieces_are_at_work_than_there_is_room_for_when_a_call_comes(monkeypatch: Any) -> None:
    monkeypatch.setattr(preemption, "LOOK_SECONDS", 0.005)
    calls = Calls()
    shared = turns(calls, share=0.01, room=2)
    pieces = [asyncio.create_task(shared.take(calls.piece)) for _ in range(6)]
    await asyncio.sleep(0.05)
    assert calls.begun == 2, "the others wait, for a call may come"
    calls.at_work = True
    await asyncio.sleep(0.05)
    calls.go_on.set()
    await asyncio.sleep(0.3)
    assert calls.begun == 2, "the pieces that a call met are rested for: 10 s at a share of 0.01"
    calls.at_work = False
    await asyncio.wait_for(asyncio.gather(*pieces), 5)
    assert calls.begun == 6


async def test_work_that_is_too_long_for_a_piece_waits_for_a_quiet_moment(monkeypatch: Any) -> None:
    monkeypatch.setattr(preemption, "LOOK_SECONDS", 0.005)
    calls = Calls(at_work=True)
    calls.go_on.set()
    start = asyncio.create_task(turns(calls, share=0.1).take(calls.piece, seconds=10.0))
    await asyncio.sleep(0.2)
    assert calls.begun == 0
    calls.at_work = False
    await asyncio.wait_for(start, 60)


def test_background_work_leaves_a_processor_to_the_service_and_is_shared_by_conductors() -> None:
    assert [places(cpus) for cpus in (1, 2, 4, 64)] == [1, 1, 3, 63]
    assert [places(64, sharing) for sharing in (0, 1, 2, 100)] == [63, 63, 31, 1]


def test_a_process_in_the_background_runs_only_where_no_other_wants_to() -> None:
    program = (
        "import os; from pipeline.runtime.low_priority import lower_priority; lower_priority(); import threading as t;"
    )
    program += "p = lambda: print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.getpriority(os.PRIO_PROCESS, 0)); p();"
    program += "one = t.Thread(target=p); one.start(); one.join()"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.split() == ["True", "19"] * 2, "of the process, and of a thread that it starts"
