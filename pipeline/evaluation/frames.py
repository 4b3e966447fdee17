"""A comparison as data frames of pandas: wide or long by call, and what is told of all of them."""

from typing import TYPE_CHECKING, Any

from pipeline.evaluation.compare import FACTS, Comparison, SystemVerdict
from pipeline.evaluation.report import METRICS, Rate, value_of

if TYPE_CHECKING:
    import pandas as pd

VERDICTS = {True: "better", False: "worse", None: "no difference shown"}


def by_call(comparison: Comparison) -> "pd.DataFrame":
    """A row for each system and call: its facts, its seconds, and a column for each metric that is known."""
    metrics = comparison.metrics
    return _frame(
        [
            {
                "system": system.name,
                "call_id": score.name,
                "seconds": score.seconds,
                **comparison.facts.get(score.name, {}),
                **{metric: value_of(score, metric) for metric in metrics},
            }
            for system in comparison.systems
            for score in system.scores
        ],
        ["system", "call_id", "seconds", *_facts(comparison), *metrics],
    )


def by_call_and_metric(comparison: Comparison) -> "pd.DataFrame":
    """A row for each system, call and metric: what is counted (`count`), of how much (`of`), and their quotient.

    Pooled values are sums of `count` by sums of `of`.
    """
    rows = [
        {
            "system": system.name,
            "call_id": score.name,
            **comparison.facts.get(score.name, {}),
            "metric": metric,
            "count": part[0],
            "of": part[1],
            "value": value_of(score, metric),
        }
        for system in comparison.systems
        for score in system.scores
        for metric in METRICS
        if (part := METRICS[metric](score)) is not None
    ]
    return _frame(rows, ["system", "call_id", *_facts(comparison), "metric", "count", "of", "value"])


def summary(comparison: Comparison) -> "pd.DataFrame":
    """A row for each metric and system: its value and interval; of all but the first also by how much it differs."""
    rows = [
        {
            "metric": metric,
            "system": system.name,
            **_rate(comparison.rate(system.name, metric)),
            **_verdict(comparison.verdict(system.name, metric)),
        }
        for metric in comparison.metrics
        for system in comparison.systems
    ]
    return _frame(rows, ["metric", "system", *_RATE, *_VERDICT])


def slices(comparison: Comparison, metric: str) -> "pd.DataFrame":
    """The same by slice, a row for each slice and system."""
    rows = [
        {
            "slice": one.fact,
            "of": one.value,
            "system": system.name,
            "seconds": one.seconds,
            **_rate(rate),
            **_verdict(verdict),
        }
        for one in comparison.slices(metric)
        for system, rate, verdict in zip(comparison.systems, one.rates, (None, *one.verdicts), strict=True)
    ]
    return _frame(rows, ["slice", "of", "system", "seconds", *_RATE, *_VERDICT])


_RATE = ("value", "low", "high", "calls")
_VERDICT = ("difference", "difference_low", "difference_high", "verdict")


def _facts(comparison: Comparison) -> list[str]:
    there = {fact for known in comparison.facts.values() for fact in known}
    return [*(fact for fact in FACTS if fact in there), *sorted(there - set(FACTS))]


def _rate(rate: Rate | None) -> dict[str, Any]:
    return {} if rate is None else {name: getattr(rate, name) for name in _RATE}


def _verdict(verdict: SystemVerdict | None) -> dict[str, Any]:
    if verdict is None:
        return {}
    rate = verdict.rate
    return dict(zip(_VERDICT, (rate.value, rate.low, rate.high, VERDICTS[verdict.better]), strict=True))


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)
