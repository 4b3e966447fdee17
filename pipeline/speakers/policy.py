import math
from collections.abc import Mapping, Sequence

from pipeline.domain.speech import Voiceprint
from pipeline.domain.voices import Centroid, Profile, VoiceSample
from pipeline.speakers import profile
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.voiceprint import clearest
from pipeline.voice.calibration import VoiceCalibration


class Voices:
    """The calibrated rules of voices; see `pipeline.domain.voices.VoicePolicy`."""

    def __init__(self, options: RoleOptions | None = None) -> None:
        self._options = options or RoleOptions()

    def centroids(self, samples: Sequence[VoiceSample]) -> tuple[Centroid, ...]:
        return profile.centroids_of(samples, self._calibration(samples))

    def learn(self, samples: Sequence[VoiceSample], others: Mapping[str, Sequence[Voiceprint]]) -> Profile:
        return profile.learn(samples, others, self._calibration(samples))

    def whose(self, similarities: Mapping[str, float], model: str) -> str | None:
        best = clearest(similarities, self._options.calibration_of(model))
        return best.name if best else None

    def fit(self, model: str) -> float:
        calibration = self._options.calibration_of(model)
        return math.inf if calibration is None else calibration.fit

    def _calibration(self, samples: Sequence[VoiceSample]) -> VoiceCalibration | None:
        """Return the calibration of the samples' common embedder."""
        return self._options.calibration_of(samples[0].voiceprint.model) if samples else None
