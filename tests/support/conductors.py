"""What tests of a Conductor share: workers that can be stopped at an exact moment, and what became of a call."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any
from uuid import UUID

import psycopg

from db.core.database import Database
from db.records import views
from db.records.views import CallRecord
from pipeline.analysis import analyze
from pipeline.domain.insight import Finding
from pipeline.runtime.deadlines import DeadlineOptions
from pipeline.runtime.workers import LocalWorkers
from serve_app.demo.compare import compare, turns_by_role
from serve_app.demo.samples import Sample
from tests.postgres import World
from tests.synthetic_calls import synthetic_calls

STEREO = "08_flite_voices_stereo"


OTHER = "01_invoice_stereo"


MOST_WRONG = 0.35  # of the words of a call; the synthetic checkpoint is small


ANALYSIS = {"statistics", "tone", "summary", "tasks", "contacts", "direction", "agent"}


LEASE = 1.5  # seconds


DEADLINES = DeadlineOptions(seconds=10, per_audio_second=0)  # of what takes a second


@dataclass
class Halt:
    """Where somebody about to ask an engine waits until told to go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        await asyncio.wait_for(self.reached.wait(), 90)


class WatchedWorkers(LocalWorkers):
    """`LocalWorkers` that counts how often each engine was asked, and can stop whoever asks next just before it."""

    def __init__(self, transcriber: Any, diarizer: Any) -> None:
        super().__init__(transcriber, diarizer)
        self.asked: Counter[str] = Counter()
        self.endless_analysis = False
        self._halts: dict[str, Halt] = {}

    def halt(self, method: str) -> Halt:
        """Stop the next who calls `method`, and nobody after them."""
        self._halts[method] = Halt()
        return self._halts[method]

    async def transcribe(self, audio: Any, chunks: Any, vocabulary: Any = (), with_fallback: bool = False) -> Any:
        await self._asked("transcribe again" if with_fallback else "transcribe")
        return await super().transcribe(audio, chunks, vocabulary, with_fallback)

    async def diarize(self, *args: Any) -> Any:
        await self._asked("diarize")
        return await super().diarize(*args)

    async def voiceprint(self, *args: Any) -> Any:
        await self._asked("voiceprint")
        return await super().voiceprint(*args)

    async def compute(self, function: Any, *args: Any) -> Any:
        if function is analyze and self.endless_analysis:
            await asyncio.sleep(60)
        return await super().compute(function, *args)

    async def _asked(self, method: str) -> None:
        if halt := self._halts.pop(method, None):
            halt.reached.set()
            await halt.go_on.wait()
        self.asked[method] += 1


def sample(name: str) -> Sample:
    return next(sample for sample in synthetic_calls() if sample.name == name)


Conduct = Callable[..., Any]


async def until(condition: Callable[[], Any], timeout: float = 90.0) -> None:
    """`condition` is a function or a coroutine function."""
    deadline = time.monotonic() + timeout
    while not (await met if isawaitable(met := condition()) else met):
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.05)


async def shown(world: World, call_id: UUID | None = None) -> CallRecord:
    record = await views.show_call(world.database, call_id or world.call_id)
    assert record is not None
    return record


async def ended(world: World, call_id: UUID | None = None) -> CallRecord:
    """The record once the call is completed or failed."""
    record: list[CallRecord] = []

    async def it_ended() -> bool:
        record[:] = [await shown(world, call_id)]
        return record[0].call.state in ("completed", "failed")

    await until(it_ended, timeout=180)
    return record[0]


async def completed(world: World, call_id: UUID | None = None) -> CallRecord:
    record = await ended(world, call_id)
    assert record.call.state == "completed", record.call.failure
    return record


async def recognized(world: World) -> bool:
    return bool(await world.rows("SELECT stage FROM stage_results WHERE stage = 'asr'"))


def finding(record: CallRecord, step: str) -> Finding:
    return next(found for found in record.findings if found.step == step)


def share_wrong(record: CallRecord, name: str) -> float:
    assert record.transcript is not None
    layout = record.transcript.layout.kind
    return compare(sample(name).expected, turns_by_role(record.transcript), layout.separated).rate


@dataclass
class Line:
    """A connection to the database that can be cut, as the network between two machines is."""

    database: Database
    _admin: psycopg.Connection[Any]
    _role: str

    def cut(self) -> None:
        self._admin.execute(f"ALTER ROLE {self._role} NOLOGIN")
        self._admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [self._role])

    def restore(self) -> None:
        self._admin.execute(f"ALTER ROLE {self._role} LOGIN")
