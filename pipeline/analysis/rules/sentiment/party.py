"""In what tone a party speaks over the whole call, from how likely each of its turns is displeased or pleased.

A second, small logistic regression (see `turn`): a few pleased or displeased turns make a party's tone, not the mean of
all, for most of any call is business. The other party counts too: its displeasure for the opposite, for reps answer it
kindly, and its pleasure for the same, for warmth is answered. So do exclamation marks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from pipeline.analysis.rules.sentiment.turn import LABELS, SentimentWeights, TurnSentiment, softmax

STRONGEST = 2  # turns

FEATURES = (
    "displeased", "pleased", "most displeased", "most pleased", "rep", "other displeased", "words",
    "other pleased", "other most pleased", "exclaimed", "one",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartySentiment:
    """`score` is the probability of pleased less that of displeased, `confidence` that of the label."""

    label: str
    score: float
    confidence: float


def party_features(
    own: Sequence[TurnSentiment], weights: Sequence[float], rep: bool, others: Sequence[TurnSentiment], exclaimed: int
) -> list[float]:
    """The values of `FEATURES`. `own` is not empty.

    `weights` are those of the turns by the word lists alone; `exclaimed` is how many of them have an exclamation mark.
    """
    root = sqrt(len(own))
    return [
        sum(one.negative for one in own) / root,
        sum(one.positive for one in own) / root,
        _strongest([one.negative for one in own]),
        _strongest([one.positive for one in own]),
        float(rep),
        fmean(one.negative for one in others) if others else 0.0,
        sum(weights) / root,
        sum(one.positive for one in others) / sqrt(len(others)) if others else 0.0,
        _strongest([one.positive for one in others]) if others else 0.0,
        exclaimed / root,
        1.0,
    ]


def predict_party(given: Sequence[float], weights: SentimentWeights) -> PartySentiment:
    """The tone for these features."""
    import numpy as np

    sure = [float(one) for one in softmax(weights.rule @ np.asarray(given))]
    negative, _, positive = sure
    return PartySentiment(LABELS[sure.index(max(sure))], positive - negative, max(sure))


def _strongest(values: Sequence[float]) -> float:
    return fmean(sorted(values, reverse=True)[:STRONGEST])
