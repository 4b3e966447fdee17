"""Sentiment of a party over the whole call, from the probabilities of its turns.

A second, small logistic regression (see `turn`): a few pleased or displeased turns decide, not the mean of all, since
most of any call is business. The other party counts too: agents answer displeasure kindly, and warmth with warmth. So
do exclamation marks.
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
    """`score` is the probability of pleased minus that of displeased, `confidence` that of the label."""

    label: str
    score: float
    confidence: float


def party_features(
    turns: Sequence[TurnSentiment], weights: Sequence[float], rep: bool, others: Sequence[TurnSentiment], exclaimed: int
) -> list[float]:
    """Return the values of `FEATURES`. `turns` is not empty.

    `weights` are those of the turns by the word lists alone; `exclaimed` counts the turns with an exclamation mark.
    """
    root = sqrt(len(turns))
    return [
        sum(turn.negative for turn in turns) / root,
        sum(turn.positive for turn in turns) / root,
        _strongest([turn.negative for turn in turns]),
        _strongest([turn.positive for turn in turns]),
        float(rep),
        fmean(turn.negative for turn in others) if others else 0.0,
        sum(weights) / root,
        sum(turn.positive for turn in others) / sqrt(len(others)) if others else 0.0,
        _strongest([turn.positive for turn in others]) if others else 0.0,
        exclaimed / root,
        1.0,
    ]


def predict_party(values: Sequence[float], weights: SentimentWeights) -> PartySentiment:
    import numpy as np

    probabilities = [float(probability) for probability in softmax(weights.rule @ np.asarray(values))]
    negative, _, positive = probabilities
    return PartySentiment(LABELS[probabilities.index(max(probabilities))], positive - negative, max(probabilities))


def _strongest(values: Sequence[float]) -> float:
    return fmean(sorted(values, reverse=True)[:STRONGEST])
