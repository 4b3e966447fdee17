"""In what tone a party speaks over the whole call, from how likely each of its turns is displeased or pleased.

A second, small logistic regression (see `turntone`): a few coloured turns make a party's tone, not the mean of all, for
most of any call is business; and the other party's displeasure is a sign too, of the opposite: reps answer it kindly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from pipeline.analysis.turntone import LABELS, Likely, Weights, softmax

STRONGEST = 2  # turns
UNSURE = 0.5  # a colour must be at least so probable; else the tone is neutral

FEATURES = ("displeased", "pleased", "most displeased", "most pleased", "rep", "other displeased", "words", "one")


@dataclass(frozen=True, slots=True)
class Judged:
    """`score` is the probability of pleased less that of displeased, `confidence` that of the label."""

    label: str
    score: float
    confidence: float


def features(own: Sequence[Likely], weights: Sequence[float], rep: bool, others: Sequence[Likely]) -> list[float]:
    """The values of `FEATURES`; `weights` are those of the turns by the word lists alone. `own` is not empty."""
    root = sqrt(len(own))
    return [
        sum(one.negative for one in own) / root,
        sum(one.positive for one in own) / root,
        _strongest([one.negative for one in own]),
        _strongest([one.positive for one in own]),
        float(rep),
        fmean(one.negative for one in others) if others else 0.0,
        sum(weights) / root,
        1.0,
    ]


def judge(given: Sequence[float], weights: Weights) -> Judged:
    """The tone for these features."""
    import numpy as np

    sure = [float(one) for one in softmax(weights.rule @ np.asarray(given))]
    negative, _, positive = sure
    at = sure.index(max(sure))
    label = LABELS[at] if at == 1 or sure[at] >= UNSURE else LABELS[1]
    return Judged(label, positive - negative, sure[LABELS.index(label)])


def _strongest(values: Sequence[float]) -> float:
    return fmean(sorted(values, reverse=True)[:STRONGEST])
