"""The language of a channel, from what the engine thought of each of its chunks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.domain.speech import Chunk


@dataclass(frozen=True, slots=True)
class Language:
    """`probability` is the mean over the channel's chunks, weighted by their seconds."""

    code: str  # ISO 639-1
    probability: float


def decide(chunks: Sequence[Chunk], probabilities: Sequence[Mapping[str, float]]) -> dict[int, Language]:
    """One language per channel; `probabilities[i]` belongs to `chunks[i]`.

    One decision for a whole channel, because a short "OK" alone is easily taken for another language. A channel without
    chunks is absent. Ties go to the language that comes first in the alphabet, so that a run can be repeated.
    """
    mass: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    seconds: dict[int, float] = defaultdict(float)
    for chunk, found in zip(chunks, probabilities, strict=True):
        if not found:
            continue
        weight = max(chunk.duration, 0.01)
        seconds[chunk.channel] += weight
        for code, probability in found.items():
            mass[chunk.channel][code] += weight * probability
    decided = {}
    for channel, by_code in mass.items():
        code = min(by_code, key=lambda c: (-by_code[c], c))
        decided[channel] = Language(code, min(1.0, by_code[code] / seconds[channel]))
    return decided
