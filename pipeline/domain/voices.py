"""What members sound like, learnt from their calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pipeline.domain.speech import Voiceprint


class Standing(StrEnum):
    """What a sample does for its member's profile."""

    ENROLLED = "enrolled"
    WAITING = "waiting"  # good, but too few calls agree as yet
    QUARANTINED = "quarantined"  # kept, with the reason, and not learnt from


@dataclass(frozen=True, slots=True)
class VoiceSample:
    """The rep's voice in one call."""

    key: str  # the call
    voiceprint: Voiceprint
    approved: bool = False  # a person has heard it: it is sound, and the member's


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a sample; `reasons`: of `speakers.gate.QUALITY_ISSUES` or `speakers.profile.OUTLIERS`."""

    standing: Standing
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Centroid:
    """A mean voice of a member, and what it rests on."""

    voiceprint: Voiceprint  # unit vector; its seconds are those of all its calls
    calls: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A member's voice by one model. No centroids: nothing decides yet. `verdicts` are by the samples' keys."""

    centroids: tuple[Centroid, ...]
    verdicts: dict[str, Verdict]


class VoicePolicy(Protocol):
    """What is learnt from voices; `pipeline.speakers.policy.Voices` is the one."""

    def centroids(self, samples: Sequence[VoiceSample]) -> tuple[Centroid, ...]:
        """What a member sounds like by their own calls, apart from all others; empty while too few agree."""

    def learn(self, samples: Sequence[VoiceSample], others: Mapping[str, Sequence[Voiceprint]]) -> Profile:
        """The profile that a member's samples make, given what other members sound like by theirs."""

    def whose(self, similarities: Mapping[str, float], model: str) -> str | None:
        """The member whose voice it is by cosines to all members' centroids; None where that is not clear."""

    def fit(self, model: str) -> float:
        """The cosine from which two voices of a model may be one; infinite where its embedder has no calibration."""
