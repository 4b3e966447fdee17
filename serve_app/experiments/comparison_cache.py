"""Compares gold sets and runs for pages and the API, in a thread, one at a time, and caches the results."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pipeline.evaluation.compare import Comparison, Facts, ScoredCall, Slice, SystemVerdict, compare
from pipeline.evaluation.report import Rate
from pipeline.evaluation.truth import TrueCall
from serve_app.http.admission import Admission
from serve_app.http.options import Places

MAX_CALLS = 500  # per comparison; the command line compares all
MAX_WAITING = 4  # comparisons of a workspace, with the running one
MAX_SECONDS = 600.0  # for scoring
WORST = 25  # calls that are listed
CACHE_SECONDS, CACHE_SIZE = 300.0, 16
PLACES = Places(total=1, per_workspace=1, per_key=1, waiting=MAX_WAITING, seconds=MAX_WAITING * MAX_SECONDS)
RETRY_AFTER_SECONDS = 5


@dataclass(frozen=True, slots=True)
class MeasuredMetric:
    """One metric: of all calls, by slice, and of the worst calls, each with the second where most words are wrong."""

    rates: tuple[Rate | None, ...]
    verdicts: tuple[SystemVerdict | None, ...]
    slices: tuple[Slice, ...]
    worst: tuple[tuple[ScoredCall, float | None], ...]


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """The result as pages show it. `calls`: compared, of `stored`."""

    systems: tuple[str, ...]
    missing: tuple[int, ...]
    calls: int
    stored: int
    seconds: float
    metrics: dict[str, MeasuredMetric]
    made_at: datetime
    findings: Mapping[str, int]
    left_out: int


class ComparisonQueueFull(RuntimeError):
    """Too many comparisons are waiting already."""


class ComparisonTimeout(RuntimeError):
    """The comparison took longer than `MAX_SECONDS`."""


@dataclass(frozen=True, slots=True)
class ComparisonInput:
    """The input of a comparison. `stored`: calls of the set, of which these are the first.

    Of a run: `findings`: by step, in how many calls its value differs; `left_out`: calls whose recording was replaced.
    """

    truths: Sequence[TrueCall]
    sides: dict[str, list[TrueCall]]
    facts: Facts
    stored: int
    findings: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0


Key = tuple[Hashable, ...]  # the workspace and everything that identifies the comparison


@dataclass(slots=True)
class _Work:
    task: "asyncio.Task[MeasuredSet]"
    begun: float
    done: list[int] = field(default_factory=lambda: [0, 0])  # calls scored, of how many


class ComparisonCache:
    """Results by key; requests for the same key share the computation. Workspaces take turns."""

    def __init__(self) -> None:
        self._turns = Admission(PLACES, RETRY_AFTER_SECONDS)
        self._works: dict[Key, _Work] = {}

    async def get(self, key: Key, read: Callable[[], Awaitable[ComparisonInput]], wait_seconds: float) -> MeasuredSet:
        """Return the result, cached or computed. Raises TimeoutError after `wait_seconds`; the computation continues.

        Raises `ComparisonQueueFull`, `ComparisonTimeout`, ModuleNotFoundError without the libraries, errors of `read`.
        """
        work = self._works.get(key)
        if work is None or (work.task.done() and time.monotonic() - work.begun > CACHE_SECONDS):
            unfinished = [key_ for key_, work_ in self._works.items() if key_[0] == key[0] and not work_.task.done()]
            if len(unfinished) >= MAX_WAITING:
                raise ComparisonQueueFull
            done = [0, 0]
            work = self._works[key] = _Work(
                asyncio.create_task(self._measure(key[0], read, done)), time.monotonic(), done
            )
            work.task.add_done_callback(self._ended)
        try:
            return await asyncio.wait_for(asyncio.shield(work.task), wait_seconds)
        finally:
            if work.task.done() and (work.task.cancelled() or work.task.exception() is not None):
                self._works.pop(key, None)  # not cached: the next request tries again

    def progress(self, key: Key) -> tuple[int, int]:
        """Return how many calls are scored, of how many; (0, 0) before the start."""
        work = self._works.get(key)
        return (work.done[0], work.done[1]) if work else (0, 0)

    async def _measure(
        self, workspace: Hashable, read: Callable[[], Awaitable[ComparisonInput]], done: list[int]
    ) -> MeasuredSet:
        async with self._turns.place(workspace, workspace):
            material = await read()
            return await asyncio.to_thread(measured, material, done)

    def _ended(self, task: "asyncio.Task[MeasuredSet]") -> None:
        if not task.cancelled():
            task.exception()  # retrieve the exception to suppress asyncio's "never retrieved" warning
        finished = [key for key, work in self._works.items() if work.task.done()]
        for old in sorted(finished, key=lambda key: self._works[key].begun)[:-CACHE_SIZE]:
            del self._works[old]


def measured(material: ComparisonInput, done: list[int]) -> MeasuredSet:
    """Score all calls; `done` receives the progress."""
    done[1] = sum(len(side) for side in material.sides.values())
    ends = time.monotonic() + MAX_SECONDS

    def counted(pairs: Iterable[tuple[TrueCall, TrueCall]], _: str) -> Iterable[tuple[TrueCall, TrueCall]]:
        for pair in pairs:
            yield pair
            done[0] += 1
            if time.monotonic() > ends:
                raise ComparisonTimeout

    comparison = compare(material.truths, material.sides, material.facts, progress=counted)
    seconds = {score.name: score.seconds for system in comparison.systems for score in system.scores}
    moments: dict[str, float | None] = {}
    return MeasuredSet(
        systems=tuple(system.name for system in comparison.systems),
        missing=tuple(system.missing for system in comparison.systems),
        calls=len(material.truths),
        stored=material.stored,
        seconds=sum(seconds.values()),
        metrics={metric: _metric(comparison, metric, moments) for metric in comparison.metrics},
        made_at=datetime.now(UTC),
        findings=material.findings,
        left_out=material.left_out,
    )


def _metric(comparison: Comparison, metric: str, moments: dict[str, float | None]) -> MeasuredMetric:
    names = [system.name for system in comparison.systems]
    lines = comparison.calls(metric)[:WORST]
    for line in lines:
        if line.name not in moments:
            first = comparison.moments(line.name)[:1]
            moments[line.name] = first[0].start if first else None
    return MeasuredMetric(
        tuple(comparison.rate(name, metric) for name in names),
        tuple(comparison.verdict(name, metric) for name in names[1:]),
        tuple(slice_ for slice_ in comparison.slices(metric) if any(slice_.rates)),
        tuple((line, moments[line.name]) for line in lines),
    )
