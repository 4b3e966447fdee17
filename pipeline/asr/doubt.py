"""Probability that a recognized word is wrong: a logistic model over the recognizer's scores.

Weights are fitted on real speech for each family of an engine's models (`bench/real/doubt.py`) and stored in
`calibration/` with the measurements behind them. A model without a measurement uses its family: English-only if its
name ends in .en, else multilingual. Confidences of different engines are not comparable, so an engine without a
calibration gets no such marks.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.asr.plausible import plain
from pipeline.domain.speech import ChunkText

SHIPPED = Path(__file__).parent / "calibration"
ENGLISH_ONLY, MULTILINGUAL = "english-only", "multilingual"
FEATURES = ("confidence", "support", "beside", "near")  # language: ok
BOUNDS = (0.0001, 0.9999)  # of a confidence, so that its log odds are finite
UNKNOWN = 1.0  # support if the recognizer returned one hypothesis only

Floats = npt.NDArray[np.float64]


class DoubtCalibration(BaseModel):
    """Calibration for one family of recognizers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    intercept: float
    weights: dict[str, float]  # by name of `FEATURES`, each once
    threshold: float = Field(gt=0, lt=1)  # min. probability of being wrong for a mark
    basis: str  # the speech and measurements behind the weights


class DoubtCalibrationInvalid(ValueError):
    """A calibration file cannot be used; the message names it."""


def supports(words: Sequence[str], hypotheses: Sequence[tuple[Sequence[str], float]]) -> tuple[float, ...]:
    """Return for each word the share of the hypotheses that contain it there, weighted by their probability, 0..1.

    `hypotheses` holds the words and the log probability of each; without any, returns (). Ignores case and punctuation.
    """
    from rapidfuzz.distance import Levenshtein

    if not hypotheses:
        return ()
    references = [plain(word) for word in words]
    scores = np.array([score for _, score in hypotheses])
    weights = np.exp(scores - scores.max())
    shares = np.zeros(len(references))
    for (hypothesis, _), weight in zip(hypotheses, weights / weights.sum(), strict=True):
        for block in Levenshtein.opcodes(references, [plain(word) for word in hypothesis]):
            if block.tag == "equal":
                shares[block.src_start : block.src_end] += weight
    return tuple(round(min(1.0, float(share)), 4) for share in shares)


def features(text: ChunkText) -> Floats:
    """Return the features of each word of a window, shape (words, features), in the order of `FEATURES`.

    Log odds of the word's confidence; its support (see `supports`); summed improbability, 0..2, of the two adjacent
    words and of the two words next to those, 0 beyond the window.
    """
    if not text.words:
        return np.zeros((0, len(FEATURES)))
    confidence = np.clip([word.confidence for word in text.words], *BOUNDS)
    supported = text.supports if len(text.supports) == len(text.words) else [UNKNOWN] * len(text.words)
    around = np.pad(1 - confidence, 2)
    adjacent, near = around[1:-3] + around[3:-1], around[:-4] + around[4:]
    return np.column_stack([np.log(confidence / (1 - confidence)), supported, adjacent, near])


def risks(text: ChunkText, calibration: DoubtCalibration) -> Floats:
    """Return the probability that each word of a window is wrong, shape (words,), 0..1."""
    return risks_of(features(text), calibration)


def risks_of(values: Floats, calibration: DoubtCalibration) -> Floats:
    """Return the probabilities for an array of `features`, shape (words,)."""
    weights = np.array([calibration.weights[name] for name in FEATURES])
    probabilities: Floats = 1 / (1 + np.exp(-(calibration.intercept + values @ weights)))
    return probabilities


def family(engine: str) -> str:
    """Return the family of a recognizer by its name ("faster-whisper tiny.en int8")."""
    return ENGLISH_ONLY if any(part.endswith(".en") for part in engine.split()) else MULTILINGUAL


def file_of(engine: str) -> Path:
    """Return the path of the shipped calibration of a recognizer's family; the file may not exist."""
    return SHIPPED / f"{engine.partition(' ')[0]}.{family(engine)}.toml"


def calibration_of(engine: str) -> DoubtCalibration | None:
    """Return the shipped calibration of a recognizer's family, or None if its engine was not measured."""
    path = file_of(engine)
    return read(path) if path.is_file() else None


@cache
def read(path: Path) -> DoubtCalibration:
    """Read a calibration file. Raises `DoubtCalibrationInvalid`."""
    try:
        calibration = DoubtCalibration.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise DoubtCalibrationInvalid(f"{path} is not a valid doubt calibration: {error}") from error
    if set(calibration.weights) != set(FEATURES):
        raise DoubtCalibrationInvalid(
            f"{path} has weights for {', '.join(calibration.weights)}; expected {', '.join(FEATURES)}."
        )
    return calibration
