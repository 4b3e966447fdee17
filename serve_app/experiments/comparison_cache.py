"""Measures sets and runs for pages and the API: in a thread, one at a time, and keeps what came of it for a while."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pipeline.evaluation.compare import Comparison, Facts, ScoredCall, Slice, SystemVerdict, compare
from pipeline.evaluation.report import Rate
from pipeline.evaluation.truth import TrueCall

MAX_CALLS = 500  # measured at once; the command line measures all
MAX_WAITING = 8  # that wait for what is being measured
MAX_SECONDS = 600.0  # to score the calls
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
    findings: Mapping[str, int]
    left_out: int


class MeasurerFull(RuntimeError):
    """Too much waits to be measured already."""


class MeasuringTooLong(RuntimeError):
    """It failed after `MAX_SECONDS`."""


@dataclass(frozen=True, slots=True)
class ComparisonInput:
    """What is measured. `stored`: calls of the set, of which these are the first.

    Of a run: `findings`: by step, in how many calls its value differs; `left_out`: calls whose recording was replaced.
    """

    truths: Sequence[TrueCall]
    sides: dict[str, list[TrueCall]]
    facts: Facts
    stored: int
    findings: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0


Key = tuple[Hashable, ...]  # the workspace, and all that names what is measured


@dataclass(slots=True)
class _Work:
    task: "asyncio.Task[MeasuredSet]"
    begun: float
    done: list[int] = field(default_factory=lambda: [0, 0])  # calls scored, of how many


class ComparisonCache:
    """Who asks for what is being measured waits for the same work."""

    def __init__(self) -> None:
        self._one = asyncio.Semaphore(1)
        self._works: dict[Key, _Work] = {}

    async def get(self, key: Key, read: Callable[[], Awaitable[ComparisonInput]], patience: float) -> MeasuredSet:
        """What is measured, or was lately. Raises TimeoutError where it takes longer than `patience`; it goes on.

        Raises `MeasurerFull`, `MeasuringTooLong`, ModuleNotFoundError without the libraries, and what `read` raises.
        """
        work = self._works.get(key)
        if work is None or (work.task.done() and time.monotonic() - work.begun > KEPT_SECONDS):
            if sum(not one.task.done() for one in self._works.values()) > MAX_WAITING:
                raise MeasurerFull
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

    async def _measure(self, read: Callable[[], Awaitable[ComparisonInput]], done: list[int]) -> MeasuredSet:
        async with self._one:
            material = await read()
            return await asyncio.to_thread(measured, material, done)

    def _ended(self, task: "asyncio.Task[MeasuredSet]") -> None:
        if not task.cancelled():
            task.exception()  # heard, so that asyncio is silent where nobody asks any more
        finished = [one for one, work in self._works.items() if work.task.done()]
        for old in sorted(finished, key=lambda one: self._works[one].begun)[:-KEPT]:
            del self._works[old]


def measured(material: ComparisonInput, done: list[int]) -> MeasuredSet:
    """Score all of it; `done` says how far it is."""
    done[1] = sum(len(side) for side in material.sides.values())
    ends = time.monotonic() + MAX_SECONDS

    def counted(pairs: Iterable[tuple[TrueCall, TrueCall]], _: str) -> Iterable[tuple[TrueCall, TrueCall]]:
        for pair in pairs:
            yield pair
            done[0] += 1
            if time.monotonic() > ends:
                raise MeasuringTooLong

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
        findings=material.findings,
        left_out=material.left_out,
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
