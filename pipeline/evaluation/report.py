from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.evaluation.extraction import MatchCounts
from pipeline.evaluation.score import CallScore, Errors

RESAMPLES, SEED = 1000, 7
MIN_CALLS = 5  # for a meaningful interval

Floats = npt.NDArray[np.float64]
Parts = tuple[float, float]  # of a ratio: numerator, denominator
Metric = Callable[[CallScore], Parts | None]


@dataclass(frozen=True, slots=True)
class Rate:
    """A pooled ratio. `low`, `high`: 95 % bootstrap interval over calls; None for fewer than `MIN_CALLS`."""

    value: float
    low: float | None
    high: float | None
    calls: int


def _share(errors: Errors | None) -> Parts | None:
    return None if errors is None else (errors.all, errors.reference)


def _per_minute(score: CallScore, count: Callable[[Errors], int]) -> Parts | None:
    return None if score.normalized is None else (count(score.normalized), score.seconds / 60)


def _f1(counts: MatchCounts | None) -> Parts | None:
    return None if counts is None else (2 * counts.correct, counts.predicted + counts.expected)


METRICS: dict[str, Metric] = {
    "wer": lambda s: _share(s.normalized),
    "wer_written": lambda s: _share(s.written),
    "cpwer": lambda s: _share(s.cp),
    "lost_per_minute": lambda s: _per_minute(s, lambda errors: errors.deleted),
    "invented_per_minute": lambda s: _per_minute(s, lambda errors: errors.inserted),
    "der": lambda s: None if s.diarization is None or s.spoken is None else (s.diarization, s.spoken),
    "jer": lambda s: None if s.jaccard is None or s.speakers is None else (s.jaccard, s.speakers),
    "word_time_error": lambda s: (sum(s.times), len(s.times)) if s.times else None,
    "task_f1": lambda s: _f1(s.tasks),
    "action_f1": lambda s: _f1(s.actions),
    "contact_f1": lambda s: _f1(s.contact),
    "rtfx": lambda s: (s.seconds, s.processing) if s.processing else None,
    "cost_per_audio_hour": lambda s: None if s.cost is None else (s.cost, s.seconds / 3600),
}
"""Numerator and denominator of a call, by metric. Ratios are pooled: sum of numerators by sum of denominators."""

TITLES = {
    "wer": "word errors, normalized (WER)",
    "wer_written": "word errors, as written (WER)",
    "cpwer": "word errors including wrong speakers (cpWER)",
    "lost_per_minute": "missed words per minute",
    "invented_per_minute": "invented words per minute",
    "der": "diarization errors (DER)",
    "jer": "diarization errors per speaker (JER)",
    "word_time_error": "mean error of word starts (s)",
    "task_f1": "correct tasks (F1)",
    "action_f1": "correct actions (F1)",
    "contact_f1": "correct contact fields (F1)",
    "rtfx": "audio seconds per processing second (RTFx)",
    "cost_per_audio_hour": "cost per hour of audio",
}
SHARES = {"wer", "wer_written", "cpwer", "der", "jer", "task_f1", "action_f1", "contact_f1"}
DURATION_BANDS = {"under 1 min": 60.0, "1 to 5 min": 300.0, "5 to 15 min": 900.0, "15 min and more": np.inf}
"""Upper ends in seconds, the shortest first."""
MORE_IS_BETTER = {"task_f1", "action_f1", "contact_f1", "rtfx"}


def pooled(scores: Sequence[CallScore], metric: str) -> Rate | None:
    parts = _parts(scores, metric)
    if parts.size == 0 or parts[:, 1].sum() == 0:
        return None
    low, high = _interval(_resampled(parts)) if len(parts) >= MIN_CALLS else (None, None)
    return Rate(_ratio(parts), low, high, len(parts))


def difference(baseline: Sequence[CallScore], other: Sequence[CallScore], metric: str) -> Rate | None:
    """Return by how much `other` is above `baseline`, over the calls that both have; resampled together."""
    names = {score.name: score for score in baseline}
    both = [(names[score.name], score) for score in other if score.name in names]
    pairs = [(a, b) for a, b in both if METRICS[metric](a) is not None and METRICS[metric](b) is not None]
    before, after = (_parts([pair[side] for pair in pairs], metric) for side in (0, 1))
    if not pairs or before[:, 1].sum() == 0 or after[:, 1].sum() == 0:
        return None
    low = high = None
    if len(pairs) >= MIN_CALLS:
        low, high = _interval(_resampled(after) - _resampled(before))  # paired: the same samples for both
    return Rate(_ratio(after) - _ratio(before), low, high, len(pairs))


def value_of(score: CallScore, metric: str) -> float | None:
    part = METRICS[metric](score)
    return part[0] / part[1] if part and part[1] else None


def duration_band(seconds: float) -> str:
    return next(band for band, limit in DURATION_BANDS.items() if seconds < limit)


def _parts(scores: Sequence[CallScore], metric: str) -> Floats:
    parts = [part for score in scores if (part := METRICS[metric](score)) is not None]
    return np.array(parts, dtype=np.float64).reshape(-1, 2)


def _ratio(parts: Floats) -> float:
    return float(parts[:, 0].sum() / parts[:, 1].sum())


def _resampled(parts: Floats) -> Floats:
    """Return the ratio of `RESAMPLES` bootstrap samples of calls; the same samples for the same number of calls."""
    samples = np.random.default_rng(SEED).integers(0, len(parts), (RESAMPLES, len(parts)))
    sums = parts[samples].sum(axis=1)
    ratios: Floats = np.zeros(RESAMPLES)
    np.divide(sums[:, 0], sums[:, 1], out=ratios, where=sums[:, 1] > 0)
    return ratios


def _interval(ratios: Floats) -> tuple[float, float]:
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)
