"""Pages of runs: progress, comparison, promotion. They never show text of the calls.

Runs are workspace-wide: viewers limited to one team see none. Promotion needs a key with the scope `admin`.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from db.experiments import gold_sets, promotion, run_results, runs
from db.experiments.promotion import PromotionResult
from db.experiments.runs import Run
from pipeline.evaluation.report import TITLES
from serve_app.console import sentences
from serve_app.console.administration import actor
from serve_app.console.comparison import POLL_WAIT_SECONDS, Figures, chosen_set
from serve_app.console.site import NotFound, PageProblem, Visit, read_form
from serve_app.experiments import compare_runs
from serve_app.experiments.compare_runs import ComparisonRequest
from serve_app.experiments.comparison_cache import MAX_CALLS

MAX_FAILED_CALLS = 5
MOVES: dict[str, Callable[..., Awaitable[PromotionResult]]] = {
    "promote": promotion.promote,
    "rollback": promotion.roll_back,
}


async def run(visit: Visit) -> Response:
    """Compare a run with live, with `other=RUNID`, or both with a gold set `gold=NAME@VERSION`.

    With `progress`, render only its progress.
    """
    asked = {name: visit.request.query_params.get(name, "") for name in ("other", "gold", "by")}
    run_ = await _run(visit, visit.id())
    shared = await _about(visit, run_)
    if "progress" in visit.request.query_params:
        return visit.page("run.html", **shared, only_state=True)
    sets = await gold_sets.list_sets(visit.database, visit.home)
    every = await runs.list_runs(visit.database, visit.reader)
    other = await _run(visit, asked["other"]) if asked["other"] else None
    comparison = ComparisonRequest(run_, other, chosen_set(sets, asked["gold"]))
    by = asked["by"] if asked["by"] in TITLES else "wer"
    shared |= {
        "sets": sets,
        "others": [each for each in every if each.run_id != run_.run_id and each.done],
        "other": comparison.other,
        "gold": comparison.gold,
        "differs": comparison.gold is None,
        "by": by,
        "titles": TITLES,
        "figures": Figures(visit.wording),
        "most": MAX_CALLS,
        "asked": urlencode({name: value for name, value in asked.items() if value}),
    }
    return visit.page("run.html", **(shared | await _compared(visit, comparison, by)))


async def move(visit: Visit) -> Response:
    """Promote a run or roll it back. A repeated request redirects too."""
    by, run_ = actor(visit), await _run(visit, visit.id())
    await read_form(visit.request)
    name = visit.request.path_params["move"]
    if name not in MOVES:
        raise NotFound
    try:
        await MOVES[name](visit.database, visit.home, run_.run_id, by)
    except runs.RunRefused as error:
        now = await _run(visit, run_.run_id)
        if (now.promoted_at is not None) != (name == "promote"):
            raise PageProblem((sentences.RUN_REFUSED, str(error)), 409) from None
    return visit.go(f"/comparison/runs/{run_.run_id}")


async def _compared(visit: Visit, comparison: ComparisonRequest, by: str) -> dict[str, Any]:
    if not comparison.run.done:
        return {}
    comparisons = visit.site.tools.comparisons
    try:
        await compare_runs.count(visit.database, visit.reader, comparison)
        result = await comparisons.get(
            comparison.key,
            lambda: compare_runs.read(visit.database, visit.reader, comparison, MAX_CALLS),
            POLL_WAIT_SECONDS,
        )
    except runs.RunRefused:
        return {"nothing": visit.wording.say(_why_none(comparison))}
    except TimeoutError:
        done, all_ = comparisons.progress(comparison.key)
        return {"waiting": True, "done": done, "all": all_}
    if by not in result.metrics and result.metrics:
        by = next(iter(result.metrics))
    return {"found": result, "main": result.metrics.get(by), "by": by}


def _why_none(comparison: ComparisonRequest) -> str:
    if comparison.other is not None and comparison.other.run_id == comparison.run.run_id:
        return sentences.SAME_RUN
    return sentences.NONE_IN_BOTH if comparison.gold is None else sentences.NONE_IN_SET


async def _about(visit: Visit, run_: Run) -> dict[str, Any]:
    failed = await run_results.list_calls(visit.database, visit.reader, run_.run_id, "failed", limit=MAX_FAILED_CALLS)
    return {"run": run_, "failed": failed.items, "left": run_.seconds_left(datetime.now(UTC))}


async def _run(visit: Visit, run_id: str | UUID) -> Run:
    return await runs.find(visit.database, visit.reader, run_id)
