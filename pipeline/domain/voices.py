from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pipeline.domain.speech import Voiceprint


class KeptVoices(StrEnum):
    """Whose voiceprints a workspace stores."""

    OFF = "off"  # none
    CONSENTED = "consented"  # of members with a consent that is neither expired nor withdrawn
    ALL = "all"  # of all agents: workspaces of releases before consents, until they choose


class Standing(StrEnum):
    """How a sample counts in its member's profile."""

    ENROLLED = "enrolled"
    WAITING = "waiting"  # valid, but too few calls agree so far
    QUARANTINED = "quarantined"  # stored with the reason, but not learned from


@dataclass(frozen=True, slots=True)
class VoiceSample:
    """The rep's voice in one call."""

    key: str  # the call
    voiceprint: Voiceprint
    approved: bool = False  # a person confirmed the voice


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision about a sample; `reasons`: of `speakers.gate.QUALITY_ISSUES` or `speakers.profile.OUTLIERS`."""

    standing: Standing
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Centroid:
    """Mean voice of a member, and its basis."""

    voiceprint: Voiceprint  # unit vector; its seconds are those of all its calls
    calls: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A member's voice by one model. Without centroids nothing is decided. `verdicts` are by sample key."""

    centroids: tuple[Centroid, ...]
    verdicts: dict[str, Verdict]


class VoicePolicy(Protocol):
    """Rules of voice learning; implemented by `pipeline.speakers.profile.Voices`."""

    def centroids(self, samples: Sequence[VoiceSample]) -> tuple[Centroid, ...]:
        """Return a member's centroids from their own calls alone; empty while too few agree."""

    def learn(self, samples: Sequence[VoiceSample], others: Mapping[str, Sequence[Voiceprint]]) -> Profile:
        """Return the profile of a member's samples, given the voices of other members."""

    def whose(self, similarities: Mapping[str, float], model: str) -> str | None:
        """Return the member of a voice by its cosines to all members' centroids; None if ambiguous."""

    def fit(self, model: str) -> float:
        """Return the cosine above which two voices of a model may be the same; infinite without a calibration."""
