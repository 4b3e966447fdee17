"""Measured voice thresholds per embedder; a similarity means nothing without its embedder's calibration.

A calibration is a TOML file with the measurements it rests on. Built-in ones are in `diarization/calibration/`; a
setting adds others. An embedder without a calibration identifies no speaker.
"""

import tomllib
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SHIPPED = Path(__file__).parents[1] / "diarization" / "calibration"
FILE = "calibration.toml"  # name of the calibration in a checkpoint's folder


class PipelineParameters(BaseModel):
    """How a pyannote pipeline assembled by this project separates the voices of a recording."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: float = Field(gt=0, le=1)  # from one window to the next, as a share of a window
    clustering_threshold: float = Field(gt=0, le=2)  # mean of 1 - cosine up to which clusters join
    min_cluster_size: int = Field(ge=1, le=20)  # windows; smaller clusters go to the nearest larger one


class ClusteringParameters(BaseModel):
    """How windows of speech become speakers in an engine without a segmentation network."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    speech_threshold: float = Field(gt=0, lt=1)  # probability from which speech begins
    min_silence: float = Field(gt=0, le=2)  # seconds; where there is a longer pause the speaker may change
    window: float = Field(ge=0.5, le=10)  # seconds of speech in one embedding
    step: float = Field(gt=0, le=10)  # seconds from one window to the next
    threshold: float = Field(gt=0, le=2)  # mean of 1 - cosine up to which clusters join
    min_seconds: float = Field(ge=0)  # of speech; smaller clusters go to the nearest voice,
    few_seconds: float = Field(ge=0)  # but so few make a voice
    far: float = Field(ge=-1, le=1)  # whose cosine with every other is at most this
    change: float = Field(ge=0)  # sum of cosines, each 20 ms, that a change of speaker within a run has to gain
    gap: float = Field(ge=0)  # seconds between two stretches of one speaker up to which they are one


class VoiceCalibration(BaseModel):
    """Thresholds of one embedder. Cosines are -1..1; settings of the same names take precedence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: tuple[str, ...] = Field(min_length=1)  # values of `Voiceprint.model`
    threshold: float = Field(ge=-1, le=1)  # of a voice to a member's centroid, to be recognized
    margin: float = Field(ge=0, le=2)  # between the best candidate and the second
    fit: float = Field(ge=-1, le=1)  # mean among calls of one member, to be one voice
    related: float = Field(ge=-1, le=1)  # of a member's further centroid to the main one
    agreement: float = Field(ge=-1, le=1)  # of a stretch of a call to its other stretches, to be one voice
    pieces: float | None = Field(None, ge=-1, le=1)  # mean of pieces of about a second, to be one; None: not clustered
    pipeline: PipelineParameters | None = None  # None: the pipeline's own configuration says it
    clustering: ClusteringParameters | None = None  # None: voices of this embedder are not clustered by us
    center: tuple[float, ...] = ()  # mean embedding of telephone speech, subtracted from each; (): as the model says
    basis: str  # the speech and the figures that these rest on


class CalibrationInvalid(ValueError):
    """A calibration file cannot be used; the message names it."""


def calibration_of(model: str, further: Path | None = None) -> VoiceCalibration | None:
    """Return the calibration for the voiceprints of a model, or None.

    `further`: a file or folder of *.toml that goes before those that ship. Raises `CalibrationInvalid`.
    """
    return (_by_model(further).get(model) if further else None) or _by_model(SHIPPED).get(model)


@cache
def _by_model(path: Path) -> dict[str, VoiceCalibration]:
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    return {model: calibration for calibration in map(read, files) for model in calibration.models}


def read(path: Path) -> VoiceCalibration:
    """Parse a calibration file. Raises `CalibrationInvalid`."""
    try:
        return VoiceCalibration.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise CalibrationInvalid(f"{path} is not a valid calibration of an embedder: {error}") from error
