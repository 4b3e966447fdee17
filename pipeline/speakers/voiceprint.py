"""Whose voice is it: a voiceprint against those that are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.speech import Voiceprint
from pipeline.speakers.scales import scale


class MatchOptions(BaseModel):
    """When a voice counts as recognised."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Cosine that the best candidate must reach; left out: the scale of the model.",
    )
    margin: float = Field(0.10, ge=0, le=2, description="How far the best candidate must lie above the second.")


@dataclass(frozen=True, slots=True)
class Match:
    """The candidate whose voice it is."""

    name: str
    similarity: float  # cosine, -1..1
    margin: float  # above the next candidate; above -1 if there is none


def similarity(a: Voiceprint, b: Voiceprint) -> float | None:
    """Cosine of two voiceprints, -1..1; None where they cannot be compared: other models, other lengths."""
    if a.model != b.model or len(a.vector) != len(b.vector):
        return None
    cosine = float(np.dot(a.vector, b.vector))
    return max(-1.0, min(1.0, cosine)) if np.isfinite(cosine) else None


def match(
    voiceprint: Voiceprint | None,
    candidates: Mapping[str, Sequence[Voiceprint]],
    options: MatchOptions | None = None,
) -> Match | None:
    """The candidate whose voice it is, or None: too unlike all, or too like two.

    A candidate with several voiceprints counts by the most similar one. Those of other models are passed over.
    """
    if voiceprint is None:
        return None
    best: dict[str, float] = {}
    for name, known in candidates.items():
        found = [s for s in (similarity(voiceprint, other) for other in known) if s is not None]
        if found:
            best[name] = max(found)
    return clearest(best, voiceprint.model, options)


def clearest(similarities: Mapping[str, float], model: str, options: MatchOptions | None = None) -> Match | None:
    """The candidate whose voice it is by its similarity, or None: too unlike all, or too like two."""
    options = options or MatchOptions()
    if not similarities:
        return None
    ranked = sorted(similarities, key=lambda name: (-similarities[name], name))
    first = similarities[ranked[0]]
    second = similarities[ranked[1]] if len(ranked) > 1 else -1.0
    threshold = scale(model).threshold if options.threshold is None else options.threshold
    if first < threshold or first - second < options.margin:
        return None
    return Match(ranked[0], first, first - second)
