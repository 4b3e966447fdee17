"""A run beside the records or another run: measured in the background, and answered in figures. No word of the calls.

Who asks waits a little, is told how far it is (202), and asks again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from starlette.responses import Response

from db.experiments import gold_sets, runs
from db.experiments.gold_sets import GoldSet
from pipeline.evaluation.compare import Slice, SystemVerdict
from pipeline.evaluation.report import Rate
from serve_app.api.access import ReadRequest, json_answer, to_json
from serve_app.api.errors import Busy, InvalidQuery, RunRefusal
from serve_app.api.queries import RunComparisonQuery
from serve_app.experiments import compare_runs
from serve_app.experiments.compare_runs import ComparisonRequest
from serve_app.experiments.comparison_cache import (
    MAX_CALLS,
    MeasuredMetric,
    MeasuredSet,
    ComparisonQueueFull,
    ComparisonTimeout,
)
from serve_app.http.json_body import Fault

COMMAND = "`switchboard runs compare` measures all of them."
NO_LIBRARIES = "The service lacks the package switchboard-calls[evaluation]; its operator installs it."
TOO_LONG = f"It took too long. Compare fewer calls (limit); {COMMAND}"


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """By how much a system is above the first one, over the calls that both have. `better`: null, where nothing is
    shown."""

    value: float
    low: float | None
    high: float | None
    calls: int
    better: bool | None
    sentence: str


@dataclass(frozen=True, slots=True)
class ComparedSystem:
    """One that is measured: its metrics by name. `missing`: calls that it has not heard."""

    name: str
    missing: int
    metrics: Mapping[str, Rate]
    against_first: Mapping[str, MetricVerdict]


@dataclass(frozen=True, slots=True)
class ComparedSlice:
    """Calls that share a fact; lists are in the order of the systems."""

    fact: str
    value: str
    calls: int
    seconds: float
    systems: tuple[Rate | None, ...]
    against_first: tuple[MetricVerdict | None, ...]


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A call with the metric of each system. `start`: the second where most words are wrong; `audio`: the path of its
    sound in this API, behind the host."""

    call_id: UUID
    seconds: float
    values: tuple[float | None, ...]
    start: float | None
    audio: str


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A run beside the records, or another run.

    `measured_against`: the gold set, "name@version"; or what the run is compared with, as if that were right: then the
    only system is the run, and its errors are differences. `findings`: in how many calls a step's value differs.
    `left_out`: calls whose recording was replaced. `calls`: measured. `slices`, `worst`: by the metric `by`.
    """

    run: str
    beside: str
    measured_against: str
    by: str
    calls: int
    seconds: float
    left_out: int
    findings: Mapping[str, int]
    systems: tuple[ComparedSystem, ...]
    slices: tuple[ComparedSlice, ...]
    worst: tuple[ComparedCall, ...]
    measured_at: datetime


@dataclass(frozen=True, slots=True)
class RunComparing:
    """How far it is: calls that are scored, of all sides; `comparison` once all of them are."""

    done: int
    all: int
    comparison: RunComparison | None


async def compare_run(reading: ReadRequest[RunComparisonQuery], run: runs.Run) -> Response:
    """The handler's part behind the run of the path."""
    database, query = reading.database, reading.query
    wanted = await _wanted(reading, run)
    try:
        there = await compare_runs.count(database, reading.reader, wanted)
    except runs.RunRefused as error:
        raise RunRefusal(str(error)) from None
    most = query.limit or there
    if most > MAX_CALLS:
        raise RunRefusal(f"These are {there} calls, and at most {MAX_CALLS} are compared here: set limit. {COMMAND}")
    key = (*wanted.key, most)
    try:
        found = await reading.comparisons.get(
            key,
            lambda: compare_runs.read(database, reading.reader, wanted, most),
            reading.options.MEASURE_WAIT_SECONDS,
        )
    except TimeoutError:
        return Response(
            to_json(RunComparing(*reading.comparisons.progress(key), None)),
            202,
            {"Retry-After": "1"},
            "application/json",
        )
    except ComparisonQueueFull:
        raise Busy(reading.options.RETRY_AFTER_SECONDS, "Too many comparisons wait already; ask again later.") from None
    except ComparisonTimeout:
        raise RunRefusal(TOO_LONG) from None
    except ModuleNotFoundError:
        raise RunRefusal(NO_LIBRARIES) from None
    done, all_ = reading.comparisons.progress(key)
    return json_answer(reading, RunComparing(done, all_, _told(wanted, found, query.by, reading)))


async def _wanted(reading: ReadRequest[RunComparisonQuery], run: runs.Run) -> ComparisonRequest:
    query, faults = reading.query, []
    other: runs.Run | None = None
    set_: GoldSet | None = None
    if query.other is not None:
        try:
            other = await runs.find(reading.database, reading.reader, query.other)
        except runs.NoSuchRun:
            faults.append(Fault("/other", "other is no run of this workspace."))
    if query.gold is not None:
        name, _, version = query.gold.partition("@")
        try:
            set_ = await gold_sets.find(
                reading.database, reading.reader.workspace_id, name, int(version) if version else None
            )
        except gold_sets.NoSuchSet:
            faults.append(Fault("/gold", "gold names no set of this workspace, or no version of it."))
    if faults:
        raise InvalidQuery(faults)
    return ComparisonRequest(run, other, set_)


def _told(
    wanted: ComparisonRequest, found: MeasuredSet, by: str, reading: ReadRequest[RunComparisonQuery]
) -> RunComparison:
    gold_set = wanted.gold
    metric = found.metrics.get(by, MeasuredMetric((), (), (), ()))
    root = reading.request.scope.get("root_path", "")
    return RunComparison(
        run=wanted.run.name,
        beside=wanted.baseline,
        measured_against=f"{gold_set.name}@{gold_set.version}" if gold_set else wanted.baseline,
        by=by,
        calls=found.calls,
        seconds=found.seconds,
        left_out=found.left_out,
        findings=dict(found.findings),
        systems=tuple(_system(found, at) for at in range(len(found.systems))),
        slices=tuple(map(_slice, metric.slices)),
        worst=tuple(
            ComparedCall(UUID(line.name), line.seconds, line.values, start, f"{root}/calls/{line.name}/audio")
            for line, start in metric.worst
        ),
        measured_at=found.made_at,
    )


def _system(found: MeasuredSet, at: int) -> ComparedSystem:
    rates = {name: one.rates[at] for name, one in found.metrics.items()}
    verdicts = {name: one.verdicts[at - 1] for name, one in found.metrics.items() if at}
    return ComparedSystem(
        found.systems[at],
        found.missing[at],
        {name: rate for name, rate in rates.items() if rate},
        {name: told for name, one in verdicts.items() if (told := _verdict(one))},
    )


def _slice(one: Slice) -> ComparedSlice:
    return ComparedSlice(one.fact, one.value, one.calls, one.seconds, one.rates, _verdicts(one.verdicts))


def _verdicts(verdicts: Sequence[SystemVerdict | None]) -> tuple[MetricVerdict | None, ...]:
    return (None, *map(_verdict, verdicts))


def _verdict(one: SystemVerdict | None) -> MetricVerdict | None:
    if one is None:
        return None
    rate = one.rate
    return MetricVerdict(rate.value, rate.low, rate.high, rate.calls, one.better, one.sentence)
