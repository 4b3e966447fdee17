"""Comparison of a run with the live records or another run, measured in the background.

A request waits briefly and returns the progress (202); the client polls. The response contains no words of the calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from starlette.responses import Response

from db.experiments import gold_sets, runs
from db.experiments.gold_sets import GoldSet
from pipeline.evaluation.compare import Slice, SystemVerdict
from pipeline.evaluation.report import Rate
from serve_app.api.access import ApiRequest, json_answer
from serve_app.api.errors import Busy, InvalidQuery, RunRefusal
from serve_app.api.queries import RunComparisonQuery
from serve_app.experiments import compare_runs
from serve_app.experiments.compare_runs import ComparisonRequest
from serve_app.experiments.comparison_cache import (
    MAX_CALLS,
    ComparisonQueueFull,
    ComparisonTimeout,
    MeasuredMetric,
    MeasuredSet,
)
from serve_app.http.camel_json import to_json
from serve_app.http.json_body import Fault

COMMAND = "`switchboard runs compare` measures all of them."
NO_LIBRARIES = "The package switchboard-calls[evaluation] is not installed. Ask the operator to install it."
TOO_LONG = f"The comparison took too long. Compare fewer calls (limit); {COMMAND}"


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """Difference of a system to the first one over common calls. `better`: null if it is not significant."""

    value: float
    low: float | None
    high: float | None
    calls: int
    better: bool | None
    sentence: str


@dataclass(frozen=True, slots=True)
class ComparedSystem:
    """A measured system with its metrics by name. `missing`: calls that it has not processed."""

    name: str
    missing: int
    metrics: Mapping[str, Rate]
    against_first: Mapping[str, MetricVerdict]


@dataclass(frozen=True, slots=True)
class ComparedSlice:
    """Calls that share a property; lists are in the order of the systems."""

    fact: str
    value: str
    calls: int
    seconds: float
    systems: tuple[Rate | None, ...]
    against_first: tuple[MetricVerdict | None, ...]


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A call with the metric of each system. `start`: second with the most word errors; `audio`: path of its audio."""

    call_id: UUID
    seconds: float
    values: tuple[float | None, ...]
    start: float | None
    audio: str


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Comparison of a run with the live records or another run.

    `measured_against`: the gold set, "name@version"; without one the baseline counts as the truth, the only system is
    the run, and its errors are differences. `findings`: calls in which the value of a step differs. `left_out`: calls
    whose recording was replaced. `calls`: number of measured calls. `slices`, `worst`: by the metric `by`.
    """

    run: str
    beside: str  # language: ok
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
    """Progress: scored calls of all systems; `comparison` once all are scored."""

    done: int
    all: int
    comparison: RunComparison | None


async def compare_run(reading: ApiRequest[RunComparisonQuery], run: runs.Run) -> Response:
    """Return the comparison of a run, or 202 with its progress."""
    database, query = reading.database, reading.query
    comparison = await _request(reading, run)
    there = await compare_runs.count(database, reading.reader, comparison)
    most = query.limit or there
    if most > MAX_CALLS:
        raise RunRefusal(f"The run has {there} calls; max. {MAX_CALLS} can be compared here. Set limit. {COMMAND}")
    key = (*comparison.key, most)
    try:
        measured = await reading.tools.comparisons.get(
            key,
            lambda: compare_runs.read(database, reading.reader, comparison, most),
            reading.options.MEASURE_WAIT_SECONDS,
        )
    except TimeoutError:
        return Response(
            to_json(RunComparing(*reading.tools.comparisons.progress(key), None)),
            202,
            {"Retry-After": "1"},
            "application/json",
        )
    except ComparisonQueueFull:
        raise Busy(reading.options.RETRY_AFTER_SECONDS, "Too many comparisons are queued. Retry later.") from None
    except ComparisonTimeout:
        raise RunRefusal(TOO_LONG) from None
    except ModuleNotFoundError:
        raise RunRefusal(NO_LIBRARIES) from None
    done, all_ = reading.tools.comparisons.progress(key)
    return json_answer(reading, RunComparing(done, all_, _comparison(comparison, measured, query.by, reading)))


async def _request(reading: ApiRequest[RunComparisonQuery], run: runs.Run) -> ComparisonRequest:
    query, faults = reading.query, []
    other: runs.Run | None = None
    set_: GoldSet | None = None
    if query.other is not None:
        try:
            other = await runs.find(reading.database, reading.reader, query.other)
        except runs.NoSuchRun:
            faults.append(Fault("/other", "other is not a run of this workspace."))
    if query.gold is not None:
        name, _, version = query.gold.partition("@")
        try:
            set_ = await gold_sets.find(
                reading.database, reading.reader.workspace_id, name, int(version) if version else None
            )
        except gold_sets.NoSuchSet:
            faults.append(Fault("/gold", "gold is not a gold set or version of this workspace."))
    if faults:
        raise InvalidQuery(faults)
    return ComparisonRequest(run, other, set_)


def _comparison(
    comparison: ComparisonRequest, measured: MeasuredSet, by: str, reading: ApiRequest[RunComparisonQuery]
) -> RunComparison:
    gold_set = comparison.gold
    metric = measured.metrics.get(by, MeasuredMetric((), (), (), ()))
    root = reading.request.scope.get("root_path", "")
    return RunComparison(
        run=comparison.run.name,
        beside=comparison.baseline,  # language: ok
        measured_against=f"{gold_set.name}@{gold_set.version}" if gold_set else comparison.baseline,
        by=by,
        calls=measured.calls,
        seconds=measured.seconds,
        left_out=measured.left_out,
        findings=dict(measured.findings),
        systems=tuple(_system(measured, at) for at in range(len(measured.systems))),
        slices=tuple(map(_slice, metric.slices)),
        worst=tuple(
            ComparedCall(UUID(line.name), line.seconds, line.values, start, f"{root}/calls/{line.name}/audio")
            for line, start in metric.worst
        ),
        measured_at=measured.made_at,
    )


def _system(measured: MeasuredSet, at: int) -> ComparedSystem:
    rates = {name: metric.rates[at] for name, metric in measured.metrics.items()}
    verdicts = {name: metric.verdicts[at - 1] for name, metric in measured.metrics.items() if at}
    return ComparedSystem(
        measured.systems[at],
        measured.missing[at],
        {name: rate for name, rate in rates.items() if rate},
        {name: shown for name, verdict in verdicts.items() if (shown := _verdict(verdict))},
    )


def _slice(slice_: Slice) -> ComparedSlice:
    verdicts = (None, *map(_verdict, slice_.verdicts))
    return ComparedSlice(slice_.fact, slice_.value, slice_.calls, slice_.seconds, slice_.rates, verdicts)


def _verdict(verdict: SystemVerdict | None) -> MetricVerdict | None:
    if verdict is None:
        return None
    rate = verdict.rate
    return MetricVerdict(rate.value, rate.low, rate.high, rate.calls, verdict.better, verdict.sentence)
