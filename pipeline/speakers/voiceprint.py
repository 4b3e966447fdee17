from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.domain.speech import Voiceprint
from pipeline.voice.calibration import VoiceCalibration


@dataclass(frozen=True, slots=True)
class VoiceMatch:
    """The candidate with the most similar voice."""

    name: str
    similarity: float  # cosine, -1..1
    margin: float  # above the next candidate; above -1 if there is none


def similarity(a: Voiceprint, b: Voiceprint) -> float | None:
    """Return the cosine of two voiceprints, -1..1; None if model or length differ."""
    if a.model != b.model or len(a.vector) != len(b.vector):
        return None
    cosine = float(np.dot(a.vector, b.vector))
    return max(-1.0, min(1.0, cosine)) if np.isfinite(cosine) else None


def match(
    voiceprint: Voiceprint | None,
    candidates: Mapping[str, Sequence[Voiceprint]],
    calibration: VoiceCalibration | None,
) -> VoiceMatch | None:
    """Return the matching candidate, or None: no similar one, two similar ones, or no calibration for the embedder.

    A candidate with several voiceprints counts by the most similar one. Voiceprints of other models are skipped.
    """
    if voiceprint is None:
        return None
    best: dict[str, float] = {}
    for name, voiceprints in candidates.items():
        similarities = [s for s in (similarity(voiceprint, other) for other in voiceprints) if s is not None]
        if similarities:
            best[name] = max(similarities)
    return clearest(best, calibration)


def clearest(similarities: Mapping[str, float], calibration: VoiceCalibration | None) -> VoiceMatch | None:
    """Return the most similar candidate, or None under the conditions of `match`."""
    if not similarities or calibration is None:
        return None
    ranked = sorted(similarities, key=lambda name: (-similarities[name], name))
    first = similarities[ranked[0]]
    second = similarities[ranked[1]] if len(ranked) > 1 else -1.0
    if first < calibration.threshold or first - second < calibration.margin:
        return None
    return VoiceMatch(ranked[0], first, first - second)
