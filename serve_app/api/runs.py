"""Runs of stored calls with another configuration, and their comparison with the live records or another run.

Reads need scope `read`; writes need `admin`, since they change shared results or start work. Runs belong to the
workspace: keys of a team cannot read them.

A comparison is measured in the background. A request waits briefly and returns the progress (202); the client polls.
The response contains no words of the calls.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from starlette.responses import Response

from db.core.identity import new_id
from db.core.pages import Page
from db.experiments import gold_sets, promotion, run_results, runs
from db.experiments.gold_sets import GoldSet
from db.experiments.promotion import PromotionResult
from db.experiments.run_results import RunCall, RunResult
from db.experiments.runs import Run
from pipeline.evaluation.compare import Slice, SystemVerdict
from pipeline.evaluation.report import Rate
from serve_app.api import bodies
from serve_app.api.access import ApiRequest, Route, admin_route, answer_with, json_answer
from serve_app.api.bodies import read_admin_body
from serve_app.api.errors import AdminBodyRefused, Busy, InvalidQuery, NoSuchCall, RunRefusal
from serve_app.api.queries import NoQuery, RunCallListQuery, RunComparisonQuery
from serve_app.experiments import compare_runs
from serve_app.experiments.compare_runs import ComparisonRequest
from serve_app.experiments.comparison_cache import (
    MAX_CALLS,
    ComparisonQueueFull,
    ComparisonTimeout,
    MeasuredMetric,
    MeasuredSet,
)
from serve_app.experiments.configuration import SettingRefused
from serve_app.experiments.selection import CallSelection, choose
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


async def compare_run(reading: ApiRequest[RunComparisonQuery]) -> Response:
    """Return the comparison of a run, or 202 with its progress."""
    database, query = reading.database, reading.query
    comparison = await _request(reading, await _run(reading))
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


Plain = ApiRequest[NoQuery]

RUN = "/runs/{run_id:uuid}"
RUN_COST = 60  # requests: only the calls of a run are processed at a low priority, not what begins and ends it


@dataclass(frozen=True, slots=True)
class CreatedRun:
    """A new run, and the calls that it omits because they are not completed."""

    run: Run
    left_out: tuple[UUID, ...]


async def list_runs(reading: Plain) -> Response:
    return json_answer(reading, Page(tuple(await runs.list_runs(reading.database, reading.reader))))


async def show_run(reading: Plain) -> Response:
    return json_answer(reading, await _run(reading))


async def list_run_calls(reading: ApiRequest[RunCallListQuery]) -> Response:
    run, query = await _run(reading), reading.query
    page = await run_results.list_calls(
        reading.database, reading.reader, run.run_id, query.status, query.cursor, query.limit
    )
    return json_answer(reading, page)


async def show_run_call(reading: Plain) -> Response:
    run = await _run(reading)
    await reading.note("transcript", [reading.call_id], f"run {run.name}")
    result = await run_results.show(reading.database, reading.reader, run.run_id, reading.call_id)
    if result is None:
        raise NoSuchCall
    return json_answer(reading, result)


async def create_run(writing: Plain) -> Response:
    writing.require_workspace_key("runs")
    body = await read_admin_body(writing.request, bodies.NewRun)
    try:
        changes = writing.check_run({group: dict(values) for group, values in body.settings.items()})
    except SettingRefused as error:
        raise AdminBodyRefused([Fault("/settings", str(error))]) from None
    selection = CallSelection(
        call_ids=tuple(body.call_ids),
        gold=(body.gold.name, body.gold.version) if body.gold else None,
        started_from=body.started_from,
        started_before=body.started_before,
        team_id=body.team_id,
        language=body.language,
        limit=body.limit,
    )
    try:
        chosen = await choose(writing.database, writing.reader, selection)
    except gold_sets.NoSuchSet:
        raise AdminBodyRefused([Fault("/gold", "gold is not a gold set or version of this workspace.")]) from None
    run_id = new_id(writing.home, body.idempotency_key)
    fields = (writing.home, body.name, changes, chosen, writing.actor, run_id)
    run, left_out = await runs.create(writing.database, *fields)
    return answer_with(CreatedRun(run, tuple(left_out)), 201)


async def cancel_run(writing: Plain) -> Response:
    return await _change(writing, runs.cancel)


async def promote_run(writing: Plain) -> Response:
    return await _change(writing, promotion.promote)


async def roll_back_run(writing: Plain) -> Response:
    return await _change(writing, promotion.roll_back)


async def delete_run(writing: Plain) -> Response:
    return await _change(writing, runs.delete)


async def _change(writing: Plain, change: Callable[..., Awaitable[Any]]) -> Response:
    writing.require_workspace_key("runs")
    run = await _run(writing)
    return answer_with(await change(writing.database, run_id=run.run_id, workspace_id=writing.home, by=writing.actor))


async def _run(reading: ApiRequest[Any]) -> Run:
    return await runs.find(reading.database, reading.reader, reading.request.path_params["run_id"])


ROUTES = (
    Route("/runs", list_runs, "List runs, the latest first", Page[Run]),
    Route(RUN, show_run, "Show a run with its configuration and progress", Run),
    Route(f"{RUN}/calls", list_run_calls, "List the calls of a run", Page[RunCall], RunCallListQuery),
    Route(f"{RUN}/calls/{{call_id:uuid}}", show_run_call, "Show the result of a run for a call", RunResult),
    Route(
        f"{RUN}/comparison",
        compare_run,
        "Compare a run with the live records or another run; 202 while it is being measured",
        RunComparing,
        RunComparisonQuery,
    ),
    admin_route(
        "POST", "/runs", create_run, "Create a run of completed calls", CreatedRun, bodies.NewRun, cost=RUN_COST
    ),
    admin_route("POST", f"{RUN}/cancel", cancel_run, "Cancel a run", Run),
    admin_route("POST", f"{RUN}/promote", promote_run, "Make the results of a run live, atomically", PromotionResult),
    admin_route(
        "POST", f"{RUN}/rollback", roll_back_run, "Restore the records that a run replaced, atomically", PromotionResult
    ),
    admin_route("DELETE", RUN, delete_run, "Delete a run with its results; calls are kept", Run),
)
