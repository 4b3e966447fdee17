from typing import TYPE_CHECKING, Any

from pipeline.evaluation.compare import FACTS, Comparison, SystemVerdict
from pipeline.evaluation.report import METRICS, Rate, value_of

if TYPE_CHECKING:
    import pandas as pd

VERDICTS = {True: "better", False: "worse", None: "no difference shown"}


def by_call(comparison: Comparison) -> "pd.DataFrame":
    """Return a row per system and call: facts, seconds, and a column per available metric."""
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
    """Return a row per system, call and metric: numerator (`count`), denominator (`of`), and their quotient.

    A pooled value is the sum of `count` divided by the sum of `of`.
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
    """Return a row per metric and system: value and interval; for all but the first also the difference."""
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
    """Return the summary of a metric by slice, a row per slice and system."""
    rows = [
        {
            "slice": part.fact,
            "of": part.value,
            "system": system.name,
            "seconds": part.seconds,
            **_rate(rate),
            **_verdict(verdict),
        }
        for part in comparison.slices(metric)
        for system, rate, verdict in zip(comparison.systems, part.rates, (None, *part.verdicts), strict=True)
    ]
    return _frame(rows, ["slice", "of", "system", "seconds", *_RATE, *_VERDICT])


_RATE = ("value", "low", "high", "calls")
_VERDICT = ("difference", "difference_low", "difference_high", "verdict")


def _facts(comparison: Comparison) -> list[str]:
    present = {fact for call_facts in comparison.facts.values() for fact in call_facts}
    return [*(fact for fact in FACTS if fact in present), *sorted(present - set(FACTS))]


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
