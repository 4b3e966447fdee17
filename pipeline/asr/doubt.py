"""How probable it is that a recognized word is wrong: a logistic model over what the recognizer says of it.

Its weights are fitted on real speech for each family of an engine's models (`bench/real/doubt.py`) and lie in
`calibration/` with the figures they rest on. A model that was not measured is judged by its family: English-only where
its name ends in .en, else multilingual. What one engine calls sure says nothing of another's: the words of an engine
without a calibration are not marked so.
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
FEATURES = ("confidence", "support", "beside", "near")
BOUNDS = (0.0001, 0.9999)  # of a confidence: its logarithm must be finite
UNKNOWN = 1.0  # support where the recognizer gave one hypothesis only

Floats = npt.NDArray[np.float64]


class DoubtCalibration(BaseModel):
    """The model of one family of recognizers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    intercept: float
    weights: dict[str, float]  # by name of `FEATURES`, each once
    threshold: float = Field(gt=0, lt=1)  # probability of being wrong from which a word is marked
    basis: str  # the speech and the figures that these rest on


class DoubtCalibrationInvalid(ValueError):
    """A calibration file cannot be used; the message names it."""


def supports(words: Sequence[str], hypotheses: Sequence[tuple[Sequence[str], float]]) -> tuple[float, ...]:
    """Return for each word the share of the hypotheses that have it there, by their probability, 0..1.

    `hypotheses` are the words of each and its log probability; without any, nothing is known and () returned. Case and
    punctuation do not count.
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
    """Return what is known of each word of a window, shape (words, features), in the order of `FEATURES`.

    confidence: log odds of the word's own. support: see `supports`. beside, near: how improbable the words next to it
    and the ones after those are, 0..2; beyond the window nothing is.
    """
    if not text.words:
        return np.zeros((0, len(FEATURES)))
    confidence = np.clip([word.confidence for word in text.words], *BOUNDS)
    supported = text.supports if len(text.supports) == len(text.words) else [UNKNOWN] * len(text.words)
    around = np.pad(1 - confidence, 2)
    beside, near = around[1:-3] + around[3:-1], around[:-4] + around[4:]
    return np.column_stack([np.log(confidence / (1 - confidence)), supported, beside, near])


def risks(text: ChunkText, calibration: DoubtCalibration) -> Floats:
    """Return the probability of each word of a window that it is wrong, shape (words,), 0..1."""
    return risks_of(features(text), calibration)


def risks_of(values: Floats, calibration: DoubtCalibration) -> Floats:
    """Return the same of `features`, shape (words,)."""
    weights = np.array([calibration.weights[name] for name in FEATURES])
    probabilities: Floats = 1 / (1 + np.exp(-(calibration.intercept + values @ weights)))
    return probabilities


def family(engine: str) -> str:
    """Return the family of a recognizer by its name ("faster-whisper tiny.en int8")."""
    return ENGLISH_ONLY if any(part.endswith(".en") for part in engine.split()) else MULTILINGUAL


def file_of(engine: str) -> Path:
    """Return where the calibration of a recognizer's family ships; there is none of an engine that was not measured."""
    return SHIPPED / f"{engine.partition(' ')[0]}.{family(engine)}.toml"


def calibration_of(engine: str) -> DoubtCalibration | None:
    """Return the calibration that ships for the family of a recognizer; None: its engine was not measured."""
    path = file_of(engine)
    return read(path) if path.is_file() else None


@cache
def read(path: Path) -> DoubtCalibration:
    """Return what a file says. Raises `DoubtCalibrationInvalid`."""
    try:
        calibration = DoubtCalibration.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise DoubtCalibrationInvalid(f"{path} is no calibration of doubt: {error}") from error
    if set(calibration.weights) != set(FEATURES):
        raise DoubtCalibrationInvalid(
            f"{path} weighs {', '.join(calibration.weights)}; needed are {', '.join(FEATURES)}."
        )
    return calibration
