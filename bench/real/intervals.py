"""Shares of words with bootstrap intervals.

Intervals hold 95 % of 1,000 resamples (seed 15) of what is said: an utterance that is in several calls is drawn in all
of them or in none. A comparison resamples both systems alike.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bench.real.score import EventScore, SpeechScore

RESAMPLES, SEED = 1000, 15
Ratio = Callable[[EventScore], tuple[float, float]]


def wrong(event: EventScore) -> tuple[float, float]:
    """Words wrong of words said."""
    return event.substituted + event.deleted + event.inserted, event.words


def substituted(event: EventScore) -> tuple[float, float]:
    """Words substituted of words said."""
    return event.substituted, event.words


def inserted(event: EventScore) -> tuple[float, float]:
    """Words inserted of words said."""
    return event.inserted, event.words


def deleted(event: EventScore) -> tuple[float, float]:
    """Words deleted of words said."""
    return event.deleted, event.words


def lost(event: EventScore) -> tuple[float, float]:
    """Words lost without a mark of words said."""
    return event.unmarked_deleted, event.words


def precision(event: EventScore) -> tuple[float, float]:
    """Marked words that are wrong of marked words."""
    return event.marked_wrong, event.marked_wrong + event.marked_right


def recall(event: EventScore) -> tuple[float, float]:
    """Return marked among wrong recognized words."""
    return event.marked_wrong, event.marked_wrong + event.unmarked_wrong


def unsure_precision(event: EventScore) -> tuple[float, float]:
    """Return `precision` if words with confidence below 0.5 were marked."""
    return event.unsure_wrong, event.unsure_wrong + event.unsure_right


def unsure_recall(event: EventScore) -> tuple[float, float]:
    """Return `recall` if words with confidence below 0.5 were marked."""
    return event.unsure_wrong, event.marked_wrong + event.unmarked_wrong


def misattributed(event: EventScore) -> tuple[float, float]:
    """Return words assigned to another speaker among recognized words."""
    return event.misattributed, event.attributed


def estimate(scores: Iterable[SpeechScore], ratio: Ratio) -> dict[str, float] | None:
    """Return the ratio in percent over all events, with its interval; None if the denominator is 0."""
    sums = _sums(scores, ratio)
    if not sums or not sum(below for _, below in sums.values()):
        return None
    table = np.array(list(sums.values()))
    drawn = table[_draws(len(table))].sum(axis=1)
    shares = 100 * drawn[:, 0] / np.maximum(drawn[:, 1], 1e-9)
    low, high = np.quantile(shares, (0.025, 0.975))
    value = 100 * table[:, 0].sum() / table[:, 1].sum()
    return {"value": _short(value), "low": _short(low), "high": _short(high), "of": int(table[:, 1].sum())}


def difference(ours: Iterable[SpeechScore], theirs: Iterable[SpeechScore], ratio: Ratio) -> dict[str, float] | None:
    """Ours less theirs in points of per cent, with its interval; both have the same calls."""
    own_sums, other_sums = _sums(ours, ratio), _sums(theirs, ratio)
    keys = sorted(own_sums.keys() & other_sums.keys())
    if not keys:
        return None
    a, b = np.array([own_sums[key] for key in keys]), np.array([other_sums[key] for key in keys])

    def share(table: Any) -> Any:
        return 100 * table[..., 0] / np.maximum(table[..., 1], 1e-9)

    draws = _draws(len(keys))
    apart = share(a[draws].sum(axis=1)) - share(b[draws].sum(axis=1))
    low, high = np.quantile(apart, (0.025, 0.975))
    return {"value": _short(share(a.sum(axis=0)) - share(b.sum(axis=0))), "low": _short(low), "high": _short(high)}


def _sums(scores: Iterable[SpeechScore], ratio: Ratio) -> dict[str, tuple[float, float]]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for score in scores:
        for event in score.events:
            above, below = ratio(event)
            sums[event.source][0] += above
            sums[event.source][1] += below
    return {source: (above, below) for source, (above, below) in sorted(sums.items()) if above or below}


def _draws(units: int) -> Any:
    return np.random.default_rng(SEED).integers(0, units, (RESAMPLES, units))


def _short(value: float) -> float:
    return round(float(value), 2)
