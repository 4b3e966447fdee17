"""What is learnt from voices, by the settings: the policy that PostgreSQL's side of the house asks."""

from collections.abc import Mapping, Sequence

from pipeline.domain.speech import Voiceprint
from pipeline.domain.voices import Centroid, Profile, Sample
from pipeline.speakers import profile
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.voiceprint import clearest


class Voices:
    """See `pipeline.domain.voices.VoicePolicy`."""

    def __init__(self, options: RoleOptions | None = None) -> None:
        self._options = options or RoleOptions()

    def centroids(self, samples: Sequence[Sample]) -> tuple[Centroid, ...]:
        return profile.centroids_of(samples, self._options.profile)

    def learn(self, samples: Sequence[Sample], others: Mapping[str, Sequence[Voiceprint]]) -> Profile:
        return profile.learn(samples, others, self._options.profile)

    def whose(self, similarities: Mapping[str, float], model: str) -> str | None:
        found = clearest(similarities, model, self._options.voice)
        return found.name if found else None

    def fit(self, model: str) -> float:
        return self._options.profile.of(model).fit
