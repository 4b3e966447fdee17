"""Scores of many calls: pooled, with intervals, by slices, the worst first."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.score import CallScore, Errors

RESAMPLES, SEED = 1000, 7
FEWEST = 5  # calls, below which an interval would say nothing

Parts = tuple[float, float]  # of a ratio: what is counted, and of how much
Metric = Callable[[CallScore], Parts | None]


@dataclass(frozen=True, slots=True)
class Rate:
    """A pooled ratio. `low`, `high`: the bootstrap's 95 % over calls; None for fewer than `FEWEST`."""

    value: float
    low: float | None
    high: float | None
    calls: int


def _share(errors: Errors | None) -> Parts | None:
    return None if errors is None else (errors.all, errors.said)


def _per_minute(score: CallScore, count: Callable[[Errors], int]) -> Parts | None:
    return None if score.normalized is None else (count(score.normalized), score.seconds / 60)


METRICS: dict[str, Metric] = {
    "wer": lambda s: _share(s.normalized),
    "wer_written": lambda s: _share(s.written),
    "cpwer": lambda s: _share(s.cp),
    "lost_per_minute": lambda s: _per_minute(s, lambda errors: errors.deleted),
    "invented_per_minute": lambda s: _per_minute(s, lambda errors: errors.inserted),
    "der": lambda s: None if s.diarization is None or s.spoken is None else (s.diarization, s.spoken),
    "jer": lambda s: None if s.jaccard is None or s.speakers is None else (s.jaccard, s.speakers),
    "word_time_error": lambda s: (sum(s.times), len(s.times)) if s.times else None,
}
"""By name: what is counted of a call, and of how much. Ratios of calls are pooled: sums of one by sums of the other."""

TITLES = {
    "wer": "words wrong, normalized (WER)",
    "wer_written": "words wrong, as written (WER)",
    "cpwer": "words wrong or with the wrong speaker (cpWER)",
    "lost_per_minute": "words lost per minute",
    "invented_per_minute": "words invented per minute",
    "der": "speech with the wrong speaker (DER)",
    "jer": "mean over speakers (JER)",
    "word_time_error": "words begin elsewhere by (s)",
}
SHARES = {"wer", "wer_written", "cpwer", "der", "jer"}


def pooled(scores: Sequence[CallScore], metric: str) -> Rate | None:
    """A metric over calls; None where none of them has it."""
    parts = _parts(scores, metric)
    if parts.size == 0 or parts[:, 1].sum() == 0:
        return None
    low, high = _interval(_resampled(parts)) if len(parts) >= FEWEST else (None, None)
    return Rate(_ratio(parts), low, high, len(parts))


def difference(one: Sequence[CallScore], other: Sequence[CallScore], metric: str) -> Rate | None:
    """By how much `other` is above `one`, over the calls that both have; resampled together."""
    names = {score.name: score for score in one}
    both = [(names[score.name], score) for score in other if score.name in names]
    pairs = [(a, b) for a, b in both if METRICS[metric](a) is not None and METRICS[metric](b) is not None]
    before, after = (_parts([pair[side] for pair in pairs], metric) for side in (0, 1))
    if not pairs or before[:, 1].sum() == 0 or after[:, 1].sum() == 0:
        return None
    low, high = (
        _interval(_resampled(after) - _resampled(before)) if len(pairs) >= FEWEST else (None, None)
    )  # the same draws of both
    return Rate(_ratio(after) - _ratio(before), low, high, len(pairs))


def slices(
    scores: Sequence[CallScore], facts: Mapping[str, Mapping[str, str]], metric: str
) -> dict[str, dict[str, Rate]]:
    """A metric by each fact of calls: `facts` has them by the call's name, such as {"language": "en"}."""
    groups: dict[str, dict[str, list[CallScore]]] = defaultdict(lambda: defaultdict(list))
    for score in scores:
        for fact, value in facts.get(score.name, {}).items():
            groups[fact][value].append(score)
    rates = {
        fact: {value: pooled(some, metric) for value, some in sorted(values.items())} for fact, values in groups.items()
    }
    return {fact: {value: rate for value, rate in some.items() if rate} for fact, some in rates.items()}


def worst(scores: Sequence[CallScore], metric: str, count: int) -> list[tuple[CallScore, float]]:
    """The calls with the highest value of a metric, that value with each."""
    parts = [(score, METRICS[metric](score)) for score in scores]
    rated = [(score, part[0] / part[1]) for score, part in parts if part and part[1]]
    return sorted(rated, key=lambda one: (-one[1], one[0].name))[:count]


def duration_band(seconds: float) -> str:
    """How long a call is, in the words of a slice."""
    for limit, name in ((60, "under 1 min"), (300, "1 to 5 min"), (900, "5 to 15 min")):
        if seconds < limit:
            return name
    return "15 min and more"


def _parts(scores: Sequence[CallScore], metric: str) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    found = [part for score in scores if (part := METRICS[metric](score)) is not None]
    return np.array(found, dtype=np.float64).reshape(-1, 2)


def _ratio(parts: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> float:
    return float(parts[:, 0].sum() / parts[:, 1].sum())


def _resampled(
    parts: "np.ndarray[tuple[int, int], np.dtype[np.float64]]",
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """The ratio of each of `RESAMPLES` draws of calls, shape (RESAMPLES,); the same draws for the same count."""
    drawn = np.random.default_rng(SEED).integers(0, len(parts), (RESAMPLES, len(parts)))
    sums = parts[drawn].sum(axis=1)
    ratios: np.ndarray[tuple[int], np.dtype[np.float64]] = np.zeros(RESAMPLES)
    np.divide(sums[:, 0], sums[:, 1], out=ratios, where=sums[:, 1] > 0)
    return ratios


def _interval(ratios: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> tuple[float, float]:
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)
