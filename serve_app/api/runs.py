"""Runs of stored calls with another configuration.

Reads need scope `read`; writes need `admin`, since they change shared results or start work. Runs belong to the
workspace: keys of a team cannot read them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from starlette.responses import Response

from db.core.identity import new_id
from db.core.pages import Page
from db.experiments import gold_sets, promotion, run_results, runs
from db.experiments.promotion import PromotionResult
from db.experiments.run_results import RunCall, RunResult
from db.experiments.runs import Run
from serve_app.api import bodies, run_comparison
from serve_app.api.access import ApiRequest, Route, admin_route, answer_with, json_answer
from serve_app.api.bodies import read_admin_body
from serve_app.api.errors import AdminBodyRefused, NoSuchCall
from serve_app.api.queries import NoQuery, RunCallListQuery, RunComparisonQuery
from serve_app.api.run_comparison import RunComparing
from serve_app.experiments.configuration import SettingRefused
from serve_app.experiments.selection import CallSelection, choose
from serve_app.http.json_body import Fault

Plain = ApiRequest[NoQuery]

RUN = "/runs/{run_id:uuid}"


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


async def compare_run(reading: ApiRequest[RunComparisonQuery]) -> Response:
    return await run_comparison.compare_run(reading, await _run(reading))


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
    admin_route("POST", "/runs", create_run, "Create a run of completed calls", CreatedRun, bodies.NewRun),
    admin_route("POST", f"{RUN}/cancel", cancel_run, "Cancel a run", Run),
    admin_route("POST", f"{RUN}/promote", promote_run, "Make the results of a run live, atomically", PromotionResult),
    admin_route(
        "POST", f"{RUN}/rollback", roll_back_run, "Restore the records that a run replaced, atomically", PromotionResult
    ),
    admin_route("DELETE", RUN, delete_run, "Delete a run with its results; calls are kept", Run),
)
