"""Probability that a clause is a commitment, and by whom: a multinomial logistic regression over its features.

The weights are data, fitted by `bench/training/commitments/fit.py` on a labeled corpus; its README has the corpus and
the accuracy on other calls.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS, LISTENER, SPEAKER, THIRD, Candidate
from pipeline.analysis.rules.commitments.features import RuleVerdict, features
from pipeline.analysis.talk import Turns

FILE = Path(__file__).parent / "weights.tsv"
CLASSES = ("nobody", SPEAKER, LISTENER, THIRD)  # language: ok
MIN_AGREED = 0.05  # min. probability of what the other party accepted: "Can you see the light?" - "Yes." is none
DAY_AGREED = 0.5  # min. probability of a day that was accepted: "Half eight?" - "Lovely." has no words to weigh
SCALE = 100  # weights are stored in hundredths


@dataclass(frozen=True)
class CommitmentWeights:
    """`by_feature`: a feature's weight for each of `CLASSES`; `min_probability`: the threshold of a candidate."""

    by_feature: dict[str, tuple[int, ...]]
    min_probability: float

    def probabilities(self, names: list[str]) -> tuple[float, ...]:
        """Return the probability of each of `CLASSES`; the sum is 1."""
        sums = [0] * len(CLASSES)
        for feature in ("", *names):  # "" is the bias
            weights = self.by_feature.get(feature)
            if weights:
                for at, weight in enumerate(weights):
                    sums[at] += weight
        top = max(sums)
        powers = [math.exp((total - top) / SCALE) for total in sums]
        return tuple(power / sum(powers) for power in powers)

    def judge(self, candidate: Candidate, turns: Turns, verdict: RuleVerdict) -> Candidate | None:
        """Return the candidate with its probability and actor if it is likely enough; None otherwise.

        The form of an accepted offer or request decides the actor.
        """
        none, *by_actor = self.probabilities(features(candidate, turns, verdict))
        agreed = verdict.holds and candidate.form in AGREED_FORMS
        likely = max(1 - none, DAY_AGREED if agreed and candidate.is_bare else 0)
        if likely < (MIN_AGREED if agreed else self.min_probability):
            return None
        actor = CLASSES[1 + by_actor.index(max(by_actor))]
        if agreed:
            actor = LISTENER if candidate.form == "request" else SPEAKER
        return replace(candidate, actor=actor, probability=likely)


@cache
def shipped_weights() -> CommitmentWeights:
    return read_weights(FILE)


def read_weights(path: Path) -> CommitmentWeights:
    """Read weights. Raises ValueError for a file in another form than `bench/training/commitments/fit.py` writes."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    names = head.split("\t")
    if tuple(names[1:-1]) != CLASSES:
        raise ValueError(
            f"{path} has weights for {names[1:-1]}, not {CLASSES}; fit it again with bench/training/commitments/fit.py"
        )
    weights_by_feature = {}
    for line in lines:
        feature, *weights = line.split("\t")
        weights_by_feature[feature] = tuple(map(int, weights))
    return CommitmentWeights(weights_by_feature, float(names[-1]))
