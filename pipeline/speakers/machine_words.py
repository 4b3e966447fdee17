"""How much words sound like a machine's by which words and pairs of words they are: a logistic regression.

It knows what the patterns of `announced.py` do not name. The weights are data, `announcements/words/LANGUAGE.tsv`,
fitted by `bench/training/announcements/fit.py` on real prompts and on what people say in calls; the prior of the
corpus is taken out of them, so that what comes out is evidence and no probability.
"""

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).parent / "announcements" / "words"
SCALE = 100  # weights are kept as whole hundredths
LEAST_WORDS = 3  # fewer say too little


def features(said: str) -> frozenset[str]:
    """The words of a `plain` text and its pairs of neighbors; numbers are "#", since digits say nothing."""
    words = ["#" if word.isdigit() else word for word in said.split()]
    return frozenset((*words, *(f"{a} {b}" for a, b in pairwise(words))))


def log_odds(said: str, weights: Mapping[str, int]) -> float:
    """Evidence, in log odds, that a machine says a `plain` text; 0 of few words and without weights."""
    if not weights or len(said.split()) < LEAST_WORDS:
        return 0.0
    return (weights[""] + sum(weights.get(one, 0) for one in features(said))) / SCALE


@cache
def weights_of(language: str) -> dict[str, int]:
    """The weight of each feature, in hundredths; that of "" is there in any case. Empty without a file."""
    path = FOLDER / f"{language}.tsv"
    if not path.is_file():
        return {}
    rows = (line.rpartition("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {feature: int(weight) for feature, _, weight in rows}
