import json
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from pipeline.domain.speech import Voiceprint
from pipeline.voice.calibration import VoiceCalibration

MIN_SPEAKERS = 10
MIN_RECORDINGS = 2  # of each speaker
MARGIN = 0.1
ABOVE_STRANGERS = 0.03  # margin of the threshold above the most similar pair of different voices


class CannotCalibrate(ValueError):
    """The recordings do not separate voices, or are too few; the message says which."""


def calibrate(prints: Mapping[str, Sequence[Voiceprint]]) -> VoiceCalibration:
    """Return the calibration of one embedder from labeled voiceprints, by speaker.

    The threshold exceeds every cosine of different voices, so that strangers are not identified; members whose calls
    differ more are then not identified either. Raises `CannotCalibrate`.
    """
    usable = {name: voiceprints for name, voiceprints in prints.items() if len(voiceprints) >= MIN_RECORDINGS}
    if len(usable) < MIN_SPEAKERS:
        raise CannotCalibrate(
            f"{len(usable)} speakers have {MIN_RECORDINGS} recordings with enough speech; {MIN_SPEAKERS} are needed."
        )
    everything = [(name, voiceprint) for name, voiceprints in sorted(usable.items()) for voiceprint in voiceprints]
    same: list[float] = []
    different: list[float] = []
    for (first_name, a), (second_name, b) in combinations(everything, 2):
        (same if first_name == second_name else different).append(float(np.dot(a.vector, b.vector)))
    likely, strange = float(np.quantile(same, 0.05)), float(np.quantile(different, 0.99))
    threshold = max(different) + ABOVE_STRANGERS
    if threshold >= float(np.median(same)):
        raise CannotCalibrate(
            f"Different voices reach a cosine of {max(different):.2f}, half of the same voices only "
            f"{np.median(same):.2f}: this embedder cannot separate them."
        )
    fit = min(threshold, (likely + strange) / 2)
    within = [voiceprint.agreement for _, voiceprint in everything if voiceprint.agreement is not None]
    agreement = (float(np.quantile(within, 0.01)) + strange) / 2 if within else fit
    return VoiceCalibration(
        models=(everything[0][1].model,),
        threshold=round(threshold, 2),
        margin=MARGIN,
        fit=round(fit, 2),
        related=round(min(fit, strange), 2),
        agreement=round(agreement, 2),
        basis=f"{len(usable)} speakers, {len(everything)} recordings. Same voice: {len(same)} pairs, 5th percentile "
        f"{likely:.2f}, median {np.median(same):.2f}. Different voices: {len(different)} pairs, 99th percentile "
        f"{strange:.2f}, highest {max(different):.2f}.",
    )


def as_toml(calibration: VoiceCalibration) -> str:
    """Return the file that `pipeline.voice.calibration.read` reads."""
    values = calibration.model_dump(exclude={"pipeline", "clustering", "center"}, exclude_none=True)  # TOML has no null
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
