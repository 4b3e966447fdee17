"""The voice profile of a member: a few centroids of their calls, and which calls are enrolled.

A profile is a function of the set of samples, never of their order or of an earlier profile. So a removed sample leaves
no trace, a bad first sample spoils nothing, and a profile cannot drift by learning from its own matches.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import Voiceprint
from pipeline.domain.voices import Centroid, Profile, Standing, Verdict, VoiceSample
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.voiceprint import clearest
from pipeline.voice.calibration import VoiceCalibration

Vectors = npt.NDArray[np.float64]  # shape (samples, dimension), unit length

OUTLIERS = {
    "unlike_others": "does not fit the member's other calls",
    "another_member": "fits another member better",
}
"""Why a sample without quality issues is not enrolled."""


MIN_CALLS = 3  # that must agree on a profile
SECONDS = 30.0  # of clean speech in those calls
MAX_CENTROIDS = 3  # for example a headset, a mobile, a desk phone


def learn(
    samples: Sequence[VoiceSample],
    others: Mapping[str, Sequence[Voiceprint]],
    calibration: VoiceCalibration | None,
    seconds: float = SECONDS,
) -> Profile:
    """Compute the profile of a member's samples; all have one model and one length of vector.

    `others`: the voices of other members by their calls alone (`centroids_of`). A sample that fits one of them (`fit`),
    and better than its member's other calls, is not enrolled: the best match must be mutual. An approved sample is
    enrolled despite both, once enough calls agree on a profile. Without a calibration nothing is enrolled, approved or
    not.
    """
    if calibration is None:
        reasons = {s.key: tuple(dict.fromkeys((*s.voiceprint.quality_issues, "not_calibrated"))) for s in samples}
        return Profile((), {key: Verdict(Standing.QUARANTINED, why) for key, why in reasons.items()})
    good = _in_order(samples)
    sound = {sample.key for sample in good}
    verdicts = {
        s.key: Verdict(Standing.QUARANTINED, s.voiceprint.quality_issues) for s in samples if s.key not in sound
    }
    foreign = _foreign(good, [voiceprint for prints in others.values() for voiceprint in prints], calibration.fit)
    refused = {s.key for s, away in foreign if away and not s.approved}
    verdicts |= {key: Verdict(Standing.QUARANTINED, ("another_member",)) for key in refused}
    candidates = [s for s in good if s.key not in refused]
    groups = _enrolled(candidates, calibration, seconds)
    enrolled = {s.key for group in groups for s in group}
    enough = bool(groups)
    for sample in candidates:
        if sample.key in enrolled:
            verdicts[sample.key] = Verdict(Standing.ENROLLED)
        elif enough:
            verdicts[sample.key] = Verdict(Standing.QUARANTINED, ("unlike_others",))
        else:
            verdicts[sample.key] = Verdict(Standing.WAITING)
    return Profile(tuple(_centroid(group) for group in groups), verdicts)


def centroids_of(samples: Sequence[VoiceSample], calibration: VoiceCalibration | None) -> tuple[Centroid, ...]:
    """Return a member's voice by their calls alone, independent of other members; empty while too few calls agree."""
    if calibration is None:
        return ()
    return tuple(_centroid(group) for group in _enrolled(_in_order(samples), calibration))


def _in_order(samples: Sequence[VoiceSample]) -> list[VoiceSample]:
    return sorted((s for s in samples if s.approved or not s.voiceprint.quality_issues), key=lambda s: s.key)


def _foreign(
    samples: Sequence[VoiceSample], others: Sequence[Voiceprint], fit: float
) -> list[tuple[VoiceSample, bool]]:
    """Return whether each sample fits another member, and better than the rest of its member's samples."""
    dimension = len(samples[0].voiceprint.vector) if samples else 0
    others = [voiceprint for voiceprint in others if len(voiceprint.vector) == dimension]
    if len(samples) < 2 or not others:
        return [(sample, False) for sample in samples]
    vectors, other_vectors = _vectors([s.voiceprint for s in samples]), _vectors(others)
    total = vectors.sum(axis=0)
    result = []
    for sample, vector in zip(samples, vectors, strict=True):
        rest = total - vector
        length = float(np.linalg.norm(rest))
        like_own = float(vector @ rest) / length if length > 1e-9 else -1.0
        like_other = float((other_vectors @ vector).max())
        result.append((sample, like_other >= fit and like_other > like_own))
    return result


def _enrolled(
    samples: Sequence[VoiceSample], calibration: VoiceCalibration, seconds: float = SECONDS
) -> list[list[VoiceSample]]:
    """Return the groups of samples for centroids, the main one first; none while no group is large enough.

    The main group must have more than half of the samples: if two voices share a member, neither is enrolled.
    """
    if not samples:
        return []
    groups = _alike(samples, calibration.fit)
    if not _enough(groups[0], seconds) or 2 * len(groups[0]) <= len(samples):
        return []
    main = _centroid(groups[0]).voiceprint.vector
    chosen = [groups[0]]
    for group in groups[1:]:
        related = float(np.dot(main, _centroid(group).voiceprint.vector)) >= calibration.related
        if related and _enough(group, seconds) and len(chosen) < MAX_CENTROIDS:
            chosen.append(group)
    enrolled = {sample.key for group in chosen for sample in group}
    approved = [sample for sample in samples if sample.approved and sample.key not in enrolled]
    return chosen + _alike(approved, calibration.fit)[: max(0, MAX_CENTROIDS - len(chosen))]


def _enough(group: Sequence[VoiceSample], seconds: float) -> bool:
    return len(group) >= MIN_CALLS and sum(sample.voiceprint.speech_seconds for sample in group) >= seconds


def _alike(samples: Sequence[VoiceSample], fit: float) -> list[list[VoiceSample]]:
    """Cluster samples, the largest group first: groups join up to a mean cosine of `fit` (average linkage)."""
    if len(samples) < 2:
        return [[sample] for sample in samples]
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    vectors = _vectors([s.voiceprint for s in samples])
    distances = np.clip(1 - vectors @ vectors.T, 0, 2)
    np.fill_diagonal(distances, 0)
    labels = fcluster(linkage(squareform(distances, checks=False), "average"), 1 - fit, "distance")
    groups = [[s for s, at in zip(samples, labels, strict=True) if at == label] for label in np.unique(labels)]
    return sorted(groups, key=lambda group: (-len(group), group[0].key))


def _centroid(group: Sequence[VoiceSample]) -> Centroid:
    """Average the group; every call counts the same, whatever its length."""
    mean = _vectors([s.voiceprint for s in group]).mean(axis=0)
    vector = tuple(float(x) for x in mean / np.linalg.norm(mean))
    seconds = round(sum(s.voiceprint.speech_seconds for s in group), 2)
    return Centroid(Voiceprint(vector, group[0].voiceprint.model, seconds), len(group))


def _vectors(prints: Sequence[Voiceprint]) -> Vectors:
    return np.array([voiceprint.vector for voiceprint in prints], np.float64)


class Voices:
    """The calibrated rules of voices; see `pipeline.domain.voices.VoicePolicy`."""

    def __init__(self, options: RoleOptions | None = None) -> None:
        self._options = options or RoleOptions()

    def centroids(self, samples: Sequence[VoiceSample]) -> tuple[Centroid, ...]:
        return centroids_of(samples, self._calibration(samples))

    def learn(self, samples: Sequence[VoiceSample], others: Mapping[str, Sequence[Voiceprint]]) -> Profile:
        return learn(samples, others, self._calibration(samples))

    def whose(self, similarities: Mapping[str, float], model: str) -> str | None:
        best = clearest(similarities, self._options.calibration_of(model))
        return best.name if best else None

    def fit(self, model: str) -> float:
        calibration = self._options.calibration_of(model)
        return math.inf if calibration is None else calibration.fit

    def _calibration(self, samples: Sequence[VoiceSample]) -> VoiceCalibration | None:
        return self._options.calibration_of(samples[0].voiceprint.model) if samples else None
