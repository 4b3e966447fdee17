"""Probability that a turn is displeased, neutral or pleased, by its words: a multinomial logistic regression.

Its features are words and pairs of words, pieces of words (3 to 5 letters, which cover inflection and compounds without
a lemmatizer), the matches of the pack's word lists (see `lexicon`), length and punctuation. Features are hashed
(Weinberger et al. 2009), so that the weights are one table of bytes. `bench/training/sentiment/fit.py` fits them.
"""

import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.analysis.rules.sentiment.lexicon import LexiconScore
from pipeline.analysis.talk import SpokenTurn
from pipeline.domain.speech import Role

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILE = Path(__file__).parent / "weights.npz"
TABLE = 1 << 16  # rows of the table of weights
LABELS = ("negative", "neutral", "positive")
MAX_RUN, PIECES = 2, range(3, 6)  # words of a run; letters of a piece with the word's borders
LISTED, SHAPE = 1.0, 0.5  # scale of list and shape features; word features have length 1
_TOKEN = re.compile(r"\d+|[^\W\d_]+|[!?…]+|\.{3,}")


@dataclass(frozen=True, slots=True)
class TurnSentiment:
    """Probabilities of the labels; that of neutral is the rest."""

    negative: float
    positive: float

    @property
    def score(self) -> float:
        """The score from -1 (certainly displeased) to 1."""
        return self.positive - self.negative


@dataclass(frozen=True)
class SentimentWeights:
    """`table`: `TABLE` rows of integers in units of `unit`, a column for each of `LABELS`. `bias`: one for each of
    them.

    `rule`: the regression of `party`: a row for each of `LABELS`, a column for each of its features.
    """

    table: "NDArray[np.int8]"
    unit: float
    bias: "NDArray[np.float64]"
    rule: "NDArray[np.float64]"

    def predict(self, turn: SpokenTurn, lexicon_score: LexiconScore) -> TurnSentiment:
        import numpy as np

        features = hashed(turn, lexicon_score)
        rows = np.fromiter(features.keys(), dtype=np.int64, count=len(features))
        values = np.fromiter(features.values(), dtype=np.float64, count=len(features))
        negative, _, positive = softmax(values @ self.table[rows] * self.unit + self.bias)
        return TurnSentiment(float(negative), float(positive))


def softmax(sums: "NDArray[np.float64]") -> "NDArray[np.float64]":
    import numpy as np

    powers = np.exp(sums - sums.max())
    return np.asarray(powers / powers.sum())


@cache
def shipped_weights() -> SentimentWeights:
    return read_weights(FILE)


def read_weights(path: Path) -> SentimentWeights:
    """Read weights. Raises ValueError for a file of another form, and OSError if there is none."""
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        weights = SentimentWeights(arrays["table"], float(arrays["unit"]), arrays["bias"], arrays["rule"])
    if weights.table.shape != (TABLE, len(LABELS)):
        raise ValueError(
            f"{path} has {weights.table.shape} weights, not {(TABLE, len(LABELS))}: run bench/training/sentiment/fit.py"
        )
    return weights


def hashed(turn: SpokenTurn, lexicon_score: LexiconScore) -> dict[int, float]:
    """Return the values of the turn's features by their row of the table."""
    value_by_row: dict[int, float] = {}
    for feature, value in features(turn, lexicon_score):
        row = zlib.crc32(feature.encode()) % TABLE
        value_by_row[row] = value_by_row.get(row, 0.0) + value
    return value_by_row


def features(turn: SpokenTurn, lexicon_score: LexiconScore) -> Iterator[tuple[str, float]]:
    text, role = turn.text.lower(), "r" if turn.role is Role.REP else "c"
    language = turn.pack.language
    tokens = ["#" if token[0].isdigit() else token for token in _TOKEN.findall(text)]
    yield from _even({f"{language} w {run}" for run in _runs(["^", *tokens, "$"])})
    yield from _even({f"{language} c {piece}" for token in tokens for piece in _pieces(token)})
    for name, times in lexicon_score.counts.items():
        value = LISTED * min(times, 3) / 1.5
        yield f"x {name}", value
        yield f"{role}x {name}", value / 2
    yield from ((f"m {name}", SHAPE * value) for name, value in _shape(text, tokens, role, language) if value)


def _shape(text: str, tokens: list[str], role: str, language: str | None) -> Iterator[tuple[str, float]]:
    yield f"role {role}", 1.0
    yield f"lang {language}{role}", 0.5
    yield "len", min(len(tokens), 40) / 20
    yield "short", float(len(tokens) <= 2)
    yield "excl", float("!" in text)
    yield f"excl {role}", float("!" in text)
    yield "quest", float("?" in text)
    yield "dots", float("..." in text or "…" in text)
    yield "num", min(1.0, tokens.count("#") / 2)


def _even(names: set[str]) -> Iterator[tuple[str, float]]:
    """Scale the features to a vector of length 1, so that a long turn weighs no more than a short one."""
    return ((name, 1 / math.sqrt(len(names))) for name in sorted(names))


def _runs(tokens: Sequence[str]) -> Iterator[str]:
    for length in range(1, MAX_RUN + 1):
        for at in range(len(tokens) - length + 1):
            yield " ".join(tokens[at : at + length])


def _pieces(token: str) -> Iterator[str]:
    whole = f"<{token}>"
    for length in PIECES:
        for at in range(len(whole) - length + 1):
            yield whole[at : at + length]
