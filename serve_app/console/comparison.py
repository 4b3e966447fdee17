"""Accuracy on a gold set, by segment and by call. These pages never show text of the calls."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.responses import Response

from db.experiments import gold_sets, runs
from db.experiments.gold_sets import GoldSet
from pipeline.evaluation.compare import Slice, SystemVerdict
from pipeline.evaluation.report import DURATION_BANDS, MORE_IS_BETTER, SHARES, TITLES, Rate
from serve_app.console import labels
from serve_app.console.site import NotFound, Visit
from serve_app.console.wording import Wording
from serve_app.experiments import compared_calls
from serve_app.experiments.comparison_cache import MAX_CALLS

POLL_WAIT_SECONDS = 0.8  # then the page polls again
RECORD = "record"  # the live transcript without manual corrections


async def comparison(visit: Visit) -> Response:
    """Render gold sets and runs; with `gold=NAME@VERSION` the accuracy of live transcripts, by the metric `by`."""
    asked = {name: visit.request.query_params.get(name, "") for name in ("gold", "by")}
    sets = await _sets(visit)
    gold_set = chosen_set(sets, asked["gold"])
    by = asked["by"] if asked["by"] in TITLES else "wer"
    found_runs = await runs.list_runs(visit.database, visit.reader)
    shared: dict[str, Any] = {
        "sets": sets,
        "gold": gold_set,
        "by": by,
        "titles": TITLES,
        "figures": Figures(visit.wording),
    }
    shared |= {"runs": found_runs, "at_work": any(each.state == "running" for each in found_runs)}
    if gold_set is None:
        return visit.page("comparison.html", **shared)
    key = (visit.home, gold_set.set_id, None)
    comparisons = visit.site.tools.comparisons
    scaling = visit.site.settings.scaling
    live = partial(compared_calls.live_input, visit.database, visit.reader, gold_set, scaling, RECORD, MAX_CALLS)
    try:
        result = await comparisons.get(key, live, POLL_WAIT_SECONDS)
    except TimeoutError:
        done, all_ = comparisons.progress(key)
        return visit.page("comparison.html", **shared, waiting=True, done=done, all=all_)
    if by not in result.metrics and result.metrics:
        shared["by"] = by = next(iter(result.metrics))
    return visit.page("comparison.html", **shared, found=result, main=result.metrics.get(by))


async def _sets(visit: Visit) -> list[GoldSet]:
    """List gold sets. They are workspace-wide: viewers limited to one team see none."""
    if visit.viewer.team_id is not None:
        return []
    return await gold_sets.list_sets(visit.database, visit.home)


def chosen_set(sets: list[GoldSet], reference: str) -> GoldSet | None:
    """Find a set by "name" or "name@version"; None for an empty reference. Raises `NotFound`."""
    if not reference:
        return None
    name, _, version = reference.partition("@")
    for gold_set in sets:
        if gold_set.name == name and version in ("", str(gold_set.version)):
            return gold_set
    raise NotFound


@dataclass(frozen=True, slots=True)
class Figures:
    """Formats figures and verdicts in the viewer's language."""

    w: Wording

    def value(self, value: float | None, metric: str) -> str:
        """Format a metric's value; "–" if missing."""
        if value is None:
            return "–"
        return self.w.percent(value, 1) if metric in SHARES else self._plain(value, metric)

    def interval(self, rate: Rate | None, metric: str) -> str:
        """Format the confidence interval; empty if missing."""
        if rate is None or rate.low is None or rate.high is None:
            return ""
        return self.w.say("{low} – {high}", low=self._plain(rate.low, metric), high=self._plain(rate.high, metric))

    def verdict(self, verdict: SystemVerdict, metric: str) -> str:
        """Say which system is better and by how much, or that the difference is not significant."""
        rate, say = verdict.rate, self.w.say
        unit = say("points") if metric in SHARES else ""
        by = f"{self._plain(abs(rate.value), metric)} {unit}".strip()
        if rate.low is None or rate.high is None:
            return say("Difference {by} (too few calls to tell)", by=by)
        if verdict.better is None:
            return say("No significant difference")
        low, high = sorted((abs(rate.low), abs(rate.high)))
        ends = say("{low} – {high}", low=self._plain(low, metric), high=self._plain(high, metric))
        text = "{name} is better by {by} ({ends})" if verdict.better else "{name} is worse by {by} ({ends})"
        return say(text, name=verdict.system, by=by, ends=ends)

    def system(self, name: str) -> str:
        """Return the display name of a compared system."""
        return self.w.say("Live") if name == RECORD else name

    def slice_(self, slice_: Slice) -> str:
        """Name the property that the calls of a slice share."""
        name = self.w.say(labels.SLICES.get(slice_.fact, slice_.fact))
        value = self.w.language_name(slice_.value) if slice_.fact == "language" else slice_.value
        display_names = {
            "layout": labels.LAYOUTS,
            "duration": dict(zip(DURATION_BANDS, DURATION_BANDS, strict=True)),
        }.get(slice_.fact, {})
        return f"{name}: {self.w.say(display_names[value]) if value in display_names else value}"

    def worst_is(self, metric: str) -> str:
        """Name the order of the worst calls."""
        return self.w.say("Lowest first" if metric in MORE_IS_BETTER else "Highest first")

    def _plain(self, value: float, metric: str) -> str:
        return self.w.number(100 * value, 1) if metric in SHARES else self.w.number(value, 2)
