"""What is learned from voices, by the settings: the policy that PostgreSQL's side of the house asks."""

import math
from collections.abc import Mapping, Sequence

from pipeline.domain.speech import Voiceprint
from pipeline.domain.voices import Centroid, Profile, VoiceSample
from pipeline.speakers import profile
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.voiceprint import clearest
from pipeline.voice.calibration import VoiceCalibration


class Voices:
    """See `pipeline.domain.voices.VoicePolicy`."""

    def __init__(self, options: RoleOptions | None = None) -> None:
        self._options = options or RoleOptions()

    def centroids(self, samples: Sequence[VoiceSample]) -> tuple[Centroid, ...]:
        return profile.centroids_of(samples, self._calibration(samples))

    def learn(self, samples: Sequence[VoiceSample], others: Mapping[str, Sequence[Voiceprint]]) -> Profile:
        return profile.learn(samples, others, self._calibration(samples))

    def whose(self, similarities: Mapping[str, float], model: str) -> str | None:
        found = clearest(similarities, self._options.calibration_of(model))
        return found.name if found else None

    def fit(self, model: str) -> float:
        calibration = self._options.calibration_of(model)
        return math.inf if calibration is None else calibration.fit

    def _calibration(self, samples: Sequence[VoiceSample]) -> VoiceCalibration | None:
        """That of the one embedder that made them."""
        return self._options.calibration_of(samples[0].voiceprint.model) if samples else None
