"""How likely a clause is to be a commitment, and who is to do it: a multinomial logistic regression over its features.

The weights are data, fitted by `bench/training/commitments/fit.py` on a labeled corpus; its README says on what, and
how well they do on calls that they were not fitted on.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS, LISTENER, SPEAKER, THIRD, Candidate
from pipeline.analysis.rules.commitments.features import RuleVerdict, features
from pipeline.analysis.talk import Said

FILE = Path(__file__).parent / "weights.tsv"
CLASSES = ("nobody", SPEAKER, LISTENER, THIRD)
AGREED = 0.1  # the probability from which what was offered holds, where the other party agreed to it
ASKED = 0.05  # of what was asked for: "Can you see the light?" - "Yes." asks for no deed
IN_CALL = 0.7  # of what looks done while the call lasts
SCALE = 100  # weights are kept as whole hundredths


@dataclass(frozen=True)
class CommitmentWeights:
    """`of` gives a feature's weight for each of `CLASSES`; `least` is the probability from which a commitment holds."""

    of: dict[str, tuple[int, ...]]
    least: float

    def probabilities(self, found: list[str]) -> tuple[float, ...]:
        """One for each of `CLASSES`; together they are 1."""
        sums = [0] * len(CLASSES)
        for feature in ("", *found):  # "" is there in any case
            weights = self.of.get(feature)
            if weights:
                for at, weight in enumerate(weights):
                    sums[at] += weight
        top = max(sums)
        powers = [math.exp((one - top) / SCALE) for one in sums]
        return tuple(power / sum(powers) for power in powers)

    def judge(self, candidate: Candidate, said: tuple[Said, ...], verdict: RuleVerdict) -> Candidate | None:
        """The candidate with its probability and with who does it, if it is likely enough that anybody does.

        Of what was asked for or offered, and then agreed to, it is plain who does it.
        """
        nobody, *does = self.probabilities(features(candidate, said, verdict))
        agreed = verdict.holds and candidate.form in AGREED_FORMS
        if 1 - nobody < self._needed(candidate, verdict, agreed):
            return None
        who = CLASSES[1 + does.index(max(does))]
        if agreed:
            who = LISTENER if candidate.form == "request" else SPEAKER
        return replace(candidate, does=who, probability=max(1 - nobody, self.least) if agreed else 1 - nobody)

    def _needed(self, candidate: Candidate, verdict: RuleVerdict, agreed: bool) -> float:
        """What was agreed to needs little; what the rules take for done in the call, more."""
        if agreed:
            return ASKED if candidate.form == "request" else AGREED
        return max(self.least, IN_CALL) if verdict.in_call else self.least


@cache
def shipped_weights() -> CommitmentWeights:
    """The weights that come with this package."""
    return read_weights(FILE)


def read_weights(path: Path) -> CommitmentWeights:
    """Raises ValueError for a file that does not have the form that `bench/training/commitments/fit.py` writes."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    names = head.split("\t")
    if tuple(names[1:-1]) != CLASSES:
        raise ValueError(
            f"{path} weighs {names[1:-1]}, not {CLASSES}; fit it again with bench/training/commitments/fit.py"
        )
    of = {}
    for line in lines:
        feature, *weights = line.split("\t")
        of[feature] = tuple(map(int, weights))
    return CommitmentWeights(of, float(names[-1]))
