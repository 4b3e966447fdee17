"""How like two voices are by one model says little by another: the cosines at which this project decides, by model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Cosines, -1..1. Settings of the same names go before them."""

    threshold: float  # of a voice to a member's centroid, to be recognised
    fit: float  # mean among calls of one member, to be one voice
    related: float  # of a member's further centroid to the main one
    agreement: float  # of a stretch of a call to its other stretches, to be one voice


SCALES = {"pyannote demo": Scale(threshold=0.92, fit=0.7, related=0.6, agreement=0.7)}
"""Set on synthetic voices by `bench/voiceprints.py`, by the name that a voiceprint's `model` has."""

OTHERS = Scale(threshold=0.5, fit=0.4, related=0.3, agreement=0.3)
"""For models that have not been measured. Those trained on real voices have their equal error rate at cosines of about
0.2 to 0.35, as far as it is published; these lie well above, so as to abstain rather than err.
"""


def scale(model: str) -> Scale:
    """The scale of a model by the name that its voiceprints carry."""
    return SCALES.get(model, OTHERS)
