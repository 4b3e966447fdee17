"""How good recognition is on a gold set, where, and in which calls; without a word of these calls."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from starlette.responses import Response

from db.experiments import gold_sets, runs
from db.experiments.gold_sets import GoldSet
from pipeline.evaluation.compare import Slice, SystemVerdict
from pipeline.evaluation.report import MORE_IS_BETTER, SHARES, TITLES, Rate
from serve_app.console import labels
from serve_app.console.site import NotFound, Visit
from serve_app.console.wording import Wording
from serve_app.experiments import compared_calls
from serve_app.experiments.comparison_cache import MAX_CALLS, ComparisonCache, ComparisonInput

PATIENCE = 0.8  # seconds that a page waits for what is being measured before it asks again
RECORD = "record"  # the service's, before people corrected it


async def comparison(visit: Visit) -> Response:
    """The gold sets and runs there are; with `set=NAME@VERSION` what was heard against that one, sliced by `by`."""
    asked = {name: visit.request.query_params.get(name, "") for name in ("set", "by")}
    sets = await _sets(visit)
    one = chosen_set(sets, asked["set"])
    by = asked["by"] if asked["by"] in TITLES else "wer"
    found_runs = await runs.list_runs(visit.database, visit.reader)
    shared: dict[str, Any] = {"sets": sets, "one": one, "by": by, "titles": TITLES, "figures": Figures(visit.wording)}
    shared |= {"runs": found_runs, "at_work": any(each.state == "running" for each in found_runs)}
    if one is None:
        return visit.page("comparison.html", **shared)
    key = (visit.viewer.workspace_id, one.set_id, None)
    comparisons: ComparisonCache = visit.site.comparisons
    try:
        found = await comparisons.get(key, lambda: _material(visit, one), PATIENCE)
    except TimeoutError:
        done, all_ = comparisons.progress(key)
        return visit.page("comparison.html", **shared, waiting=True, done=done, all=all_)
    if by not in found.metrics and found.metrics:
        shared["by"] = by = next(iter(found.metrics))
    return visit.page("comparison.html", **shared, found=found, main=found.metrics.get(by))


async def _sets(visit: Visit) -> list[GoldSet]:
    """Sets are of a workspace, of all its teams: a viewer of one team sees none."""
    if visit.viewer.team_id is not None:
        return []
    return await gold_sets.list_sets(visit.database, visit.viewer.workspace_id)


def chosen_set(sets: list[GoldSet], named: str) -> GoldSet | None:
    """A set by "name" or "name@version"; None for no name. Raises `NotFound` for one that there is not."""
    if not named:
        return None
    name, _, version = named.partition("@")
    for one in sets:
        if one.name == name and version in ("", str(one.version)):
            return one
    raise NotFound


async def _material(visit: Visit, one: GoldSet) -> ComparisonInput:
    home = visit.viewer.workspace_id
    truths = await compared_calls.gold_calls(visit.database, home, one, MAX_CALLS)
    call_ids = [UUID(call.name) for call in truths]
    live, layouts = await compared_calls.live_calls(visit.database, visit.reader, call_ids, visit.site.settings.scaling)
    agents = await compared_calls.agents(visit.database, home, one)
    facts = {call.name: {**layouts.get(call.name, {}), **agents.get(call.name, {})} for call in truths}
    return ComparisonInput(truths, {RECORD: live}, facts, one.left)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures and verdicts as the viewer reads them."""

    w: Wording

    def value(self, value: float | None, metric: str) -> str:
        """A metric's value; "–" for none."""
        if value is None:
            return "–"
        return self._plain(value, metric) + (" %" if metric in SHARES else "")

    def interval(self, rate: Rate | None, metric: str) -> str:
        """Its interval; nothing where there is none."""
        if rate is None or rate.low is None or rate.high is None:
            return ""
        return self.w.say("{low} to {high}", low=self._plain(rate.low, metric), high=self._plain(rate.high, metric))

    def verdict(self, verdict: SystemVerdict, metric: str) -> str:
        """Who is better and by how much, or that nothing is shown."""
        rate, say = verdict.rate, self.w.say
        unit = say("points") if metric in SHARES else ""
        by = f"{self._plain(abs(rate.value), metric)} {unit}".strip()
        if rate.low is None or rate.high is None:
            return say("Differs by {by}: too few calls to tell", by=by)
        if verdict.better is None:
            return say("No difference shown")
        low, high = sorted((abs(rate.low), abs(rate.high)))
        ends = say("{low} to {high}", low=self._plain(low, metric), high=self._plain(high, metric))
        text = "{name} is better by {by} ({ends})" if verdict.better else "{name} is worse by {by} ({ends})"
        return say(text, name=verdict.system, by=by, ends=ends)

    def slice_(self, one: Slice) -> str:
        """What the calls of a slice share."""
        name = self.w.say(labels.SLICES.get(one.fact, one.fact))
        value = self.w.language_name(one.value) if one.fact == "language" else one.value
        told = {"layout": labels.LAYOUTS, "duration": labels.DURATIONS}.get(one.fact, {})
        return f"{name}: {self.w.say(told[value]) if value in told else value}"

    def worst_is(self, metric: str) -> str:
        """Which calls come first."""
        return self.w.say("The lowest first" if metric in MORE_IS_BETTER else "The highest first")

    def _plain(self, value: float, metric: str) -> str:
        return self.w.number(100 * value, 1) if metric in SHARES else self.w.number(value, 2)
