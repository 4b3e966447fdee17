"""Measures a gold set for a page: in a thread, one set at a time, and keeps what came of it for a while."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from evaluation.compare import Comparison, Facts, ScoredCall, Slice, SystemVerdict, compare
from evaluation.report import Rate
from evaluation.truth import TrueCall

MOST_CALLS = 500  # measured for a page; the command measures all
WORST = 25  # calls that are listed
KEPT_SECONDS, KEPT = 300.0, 16  # how long a result is shown without measuring again, and how many there are


@dataclass(frozen=True, slots=True)
class MeasuredMetric:
    """One metric: of all calls, by slice, and of the worst calls, each with the second where most words are wrong."""

    rates: tuple[Rate | None, ...]
    verdicts: tuple[SystemVerdict | None, ...]
    slices: tuple[Slice, ...]
    worst: tuple[tuple[ScoredCall, float | None], ...]


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """All that a page shows. `calls`: measured, of `stored`."""

    systems: tuple[str, ...]
    missing: tuple[int, ...]
    calls: int
    stored: int
    seconds: float
    metrics: dict[str, MeasuredMetric]
    made_at: datetime


@dataclass(frozen=True, slots=True)
class SetMaterial:
    """What is measured. `stored`: calls of the set, of which these are the first."""

    truths: Sequence[TrueCall]
    sides: dict[str, list[TrueCall]]
    facts: Facts
    stored: int


Key = tuple[UUID, UUID, UUID | None]  # workspace, set, run


@dataclass(slots=True)
class _Work:
    task: "asyncio.Task[MeasuredSet]"
    begun: float
    done: list[int] = field(default_factory=lambda: [0, 0])  # calls scored, of how many


class Measurer:
    """Who asks for what is being measured waits for the same work."""

    def __init__(self) -> None:
        self._one = asyncio.Semaphore(1)
        self._works: dict[Key, _Work] = {}

    async def get(self, key: Key, read: Callable[[], Awaitable[SetMaterial]], patience: float) -> MeasuredSet:
        """What is measured, or was lately. Raises TimeoutError where it takes longer than `patience`; it goes on."""
        work = self._works.get(key)
        if work is None or (work.task.done() and time.monotonic() - work.begun > KEPT_SECONDS):
            done = [0, 0]
            work = self._works[key] = _Work(asyncio.create_task(self._measure(read, done)), time.monotonic(), done)
            work.task.add_done_callback(self._ended)
        try:
            return await asyncio.wait_for(asyncio.shield(work.task), patience)
        finally:
            if work.task.done() and (work.task.cancelled() or work.task.exception() is not None):
                self._works.pop(key, None)  # told: the next one tries again

    def progress(self, key: Key) -> tuple[int, int]:
        """How many calls are scored, of how many; (0, 0) before it has begun."""
        work = self._works.get(key)
        return (work.done[0], work.done[1]) if work else (0, 0)

    async def _measure(self, read: Callable[[], Awaitable[SetMaterial]], done: list[int]) -> MeasuredSet:
        async with self._one:
            material = await read()
            return await asyncio.to_thread(measured, material, done)

    def _ended(self, task: "asyncio.Task[MeasuredSet]") -> None:
        if not task.cancelled():
            task.exception()  # heard, so that asyncio is silent where nobody asks any more
        finished = [one for one, work in self._works.items() if work.task.done()]
        for old in sorted(finished, key=lambda one: self._works[one].begun)[:-KEPT]:
            del self._works[old]


def measured(material: SetMaterial, done: list[int]) -> MeasuredSet:
    """Score all of it; `done` says how far it is."""
    done[1] = sum(len(side) for side in material.sides.values())

    def counted(pairs: Iterable[tuple[TrueCall, TrueCall]], _: str) -> Iterable[tuple[TrueCall, TrueCall]]:
        for pair in pairs:
            yield pair
            done[0] += 1

    found = compare(material.truths, material.sides, material.facts, progress=counted)
    seconds = {score.name: score.seconds for system in found.systems for score in system.scores}
    moments: dict[str, float | None] = {}
    return MeasuredSet(
        systems=tuple(system.name for system in found.systems),
        missing=tuple(system.missing for system in found.systems),
        calls=len(material.truths),
        stored=material.stored,
        seconds=sum(seconds.values()),
        metrics={metric: _metric(found, metric, moments) for metric in found.metrics},
        made_at=datetime.now(UTC),
    )


def _metric(found: Comparison, metric: str, moments: dict[str, float | None]) -> MeasuredMetric:
    names = [system.name for system in found.systems]
    lines = found.calls(metric)[:WORST]
    for line in lines:
        if line.name not in moments:
            first = found.moments(line.name)[:1]
            moments[line.name] = first[0].start if first else None
    return MeasuredMetric(
        tuple(found.rate(name, metric) for name in names),
        tuple(found.verdict(name, metric) for name in names[1:]),
        tuple(one for one in found.slices(metric) if any(one.rates)),
        tuple((line, moments[line.name]) for line in lines),
    )
