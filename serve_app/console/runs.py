"""A run in pages: how far it is, how it compares, and its promotion; without a word of its calls.

Runs are of all teams: a viewer of one team sees none. Promoting takes a session whose key has the scope `admin`.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from db.experiments import gold_sets, promotion, run_results, runs
from db.experiments.promotion import Moved
from db.experiments.runs import Run
from db.workspace.admin_log import NotAdmin
from pipeline.evaluation.report import TITLES
from serve_app.console import sentences
from serve_app.console.administration import actor
from serve_app.console.comparison import PATIENCE, Figures, chosen_set
from serve_app.console.forms import read_form
from serve_app.console.site import NotAllowed, NotFound, PageProblem, Visit
from serve_app.experiments import compare_runs
from serve_app.experiments.compare_runs import ComparisonRequest
from serve_app.experiments.comparison_cache import MAX_CALLS

SHOWN = 5  # failed calls
MOVES: dict[str, Callable[..., Awaitable[Moved]]] = {"promote": promotion.promote, "rollback": promotion.roll_back}


async def run(visit: Visit) -> Response:
    """A run beside the records; with `other=RUNID` beside another one; with `set=NAME@VERSION` against a gold set.

    With `status`, only how far it is.
    """
    asked = {name: visit.request.query_params.get(name, "") for name in ("other", "set", "by")}
    one = await _run(visit, visit.id())
    shared = await _about(visit, one)
    if "status" in visit.request.query_params:
        return visit.page("run.html", **shared, only_state=True)
    sets = await gold_sets.list_sets(visit.database, visit.viewer.workspace_id)
    every = await runs.list_runs(visit.database, visit.reader)
    wanted = ComparisonRequest(one, await _other(visit, asked["other"]), chosen_set(sets, asked["set"]))
    by = asked["by"] if asked["by"] in TITLES else "wer"
    shared |= {
        "sets": sets,
        "others": [each for each in every if each.run_id != one.run_id and each.done],
        "other": wanted.other,
        "one": wanted.gold,
        "differs": wanted.gold is None,
        "by": by,
        "titles": TITLES,
        "figures": Figures(visit.wording),
        "most": MAX_CALLS,
        "asked": urlencode({name: value for name, value in asked.items() if value}),
    }
    return visit.page("run.html", **(shared | await _compared(visit, wanted, by)))


async def move(visit: Visit) -> Response:
    """Promote a run, or roll it back. Sent again, or done by another one meanwhile, it leads back as well."""
    by, one = actor(visit), await _run(visit, visit.id())
    await read_form(visit.request)
    name = visit.request.path_params["move"]
    if name not in MOVES:
        raise NotFound
    try:
        await MOVES[name](visit.database, visit.viewer.workspace_id, one.run_id, by)
    except NotAdmin:
        raise NotAllowed(sentences.ADMIN_ONLY) from None
    except runs.NoSuchRun:
        raise NotFound from None
    except runs.RunRefused as error:
        now = await _run(visit, one.run_id)
        if (now.promoted_at is not None) != (name == "promote"):
            raise PageProblem((sentences.RUN_REFUSED, str(error)), 409) from None
    return visit.go(f"/comparison/runs/{one.run_id}")


async def _compared(visit: Visit, wanted: ComparisonRequest, by: str) -> dict[str, Any]:
    if not wanted.run.done:
        return {}
    comparisons = visit.site.comparisons
    try:
        await compare_runs.count(visit.database, visit.reader, wanted)
        found = await comparisons.get(
            wanted.key, lambda: compare_runs.read(visit.database, visit.reader, wanted, MAX_CALLS), PATIENCE
        )
    except runs.RunRefused:
        return {"nothing": visit.wording.say(_why_none(wanted))}
    except TimeoutError:
        done, all_ = comparisons.progress(wanted.key)
        return {"waiting": True, "done": done, "all": all_}
    if by not in found.metrics and found.metrics:
        by = next(iter(found.metrics))
    return {"found": found, "main": found.metrics.get(by), "by": by}


def _why_none(wanted: ComparisonRequest) -> str:
    if wanted.other is not None and wanted.other.run_id == wanted.run.run_id:
        return sentences.SAME_RUN
    return sentences.NONE_IN_BOTH if wanted.gold is None else sentences.NONE_IN_SET


async def _about(visit: Visit, one: Run) -> dict[str, Any]:
    failed = await run_results.list_calls(visit.database, visit.reader, one.run_id, "failed", limit=SHOWN)
    return {"run": one, "failed": failed.items, "left": one.seconds_left(datetime.now(UTC))}


async def _other(visit: Visit, named: str) -> Run | None:
    return await _run(visit, named) if named else None


async def _run(visit: Visit, named: str | UUID) -> Run:
    """Raises `NotFound` for one that there is not, or that this viewer does not see."""
    try:
        return await runs.find(visit.database, visit.reader, named)
    except runs.NoSuchRun:
        raise NotFound from None
