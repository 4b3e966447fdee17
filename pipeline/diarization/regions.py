"""Speaker spans from the voices of short windows: clustering first, then the likeliest voice at each moment."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.diarization.torch_engine import letters
from pipeline.domain.speech import SpeakerSpan
from pipeline.voice.calibration import ClusteringParameters

MOMENT = 0.02  # seconds
MAX_CLUSTERED = 6000  # windows: their distances need 144 MB; the others join the nearest voice
SURE_SECONDS = 1.0  # shorter windows are not clustered, but join the nearest voice

Vectors = npt.NDArray[np.float32]  # shape (windows, dimension), rows of unit length or NaN
Labels = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Region:
    """Position of a window: its run of speech, and its start and end in seconds."""

    run: int
    start: float
    end: float

    @property
    def duration(self) -> float:
        return self.end - self.start


def diarized(
    regions: Sequence[Region],
    vectors: Vectors,
    parameters: ClusteringParameters,
    min_speakers: int,
    max_speakers: int | None,
) -> tuple[tuple[SpeakerSpan, ...], dict[str, Vectors]]:
    """Return the speaker spans, labeled A, B, ... by first appearance, and the mean vector of each speaker's windows.

    `regions` are in order, with their `vectors`. Each run of speech has one speaker at a time; a run without any
    embedding belongs to the speaker before it. Without any embedding at all, the only speaker has no mean.
    """
    if not regions:
        return (), {}
    is_embedded: npt.NDArray[np.bool_] = np.asarray(np.isfinite(vectors).all(axis=1))
    centers = _voices(regions, vectors, is_embedded, parameters, min_speakers, max_speakers)
    cosines = np.where(is_embedded[:, None], vectors, 0) @ centers.T if len(centers) else np.zeros((len(regions), 1))
    spoken = _joined(list(_spoken(regions, cosines, is_embedded, parameters.change)), parameters.gap)
    names = letters(speaker for _, _, speaker in spoken)
    spans = tuple(SpeakerSpan(round(start, 3), round(end, 3), names[speaker]) for start, end, speaker in spoken)
    return spans, {names[at]: center for at, center in enumerate(centers) if at in names}


def _voices(
    regions: Sequence[Region],
    vectors: Vectors,
    is_embedded: npt.NDArray[np.bool_],
    parameters: ClusteringParameters,
    min_speakers: int,
    max_speakers: int | None,
) -> Vectors:
    """Return the unit vector of each voice, shape (voices, dimension); none without any embedding."""
    rows = np.flatnonzero(is_embedded & (np.array([region.duration for region in regions]) >= SURE_SECONDS))
    rows = rows if len(rows) else np.flatnonzero(is_embedded)
    if not len(rows):
        return vectors[:0]
    if len(rows) > MAX_CLUSTERED:
        rows = rows[np.linspace(0, len(rows) - 1, MAX_CLUSTERED).astype(int)]
    labels = _clusters(vectors[rows], parameters.threshold, min_speakers)
    seconds = np.bincount(labels, weights=_seconds(regions)[rows])
    voices: list[npt.NDArray[np.floating]] = []
    for at in np.argsort(-seconds, kind="stable"):
        center = _unit(vectors[rows[labels == at]].sum(axis=0))
        far = max((float(center @ other) for other in voices), default=-1.0) <= parameters.far
        if len(voices) < min_speakers or seconds[at] >= (parameters.few_seconds if far else parameters.min_seconds):
            voices.append(center)
    centers = np.stack(voices[:max_speakers])
    nearest = (vectors[rows] @ centers.T).argmax(axis=1)
    return np.stack([_unit(vectors[rows[nearest == at]].sum(axis=0)) for at in np.unique(nearest)])


def _clusters(vectors: Vectors, threshold: float, min_clusters: int) -> Labels:
    """Return the cluster of each vector, from 0: average linkage up to the threshold, at least `min_clusters`."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist

    if len(vectors) == 1:
        return np.zeros(1, np.intp)
    tree = linkage(np.maximum(pdist(vectors, "cosine"), 0), "average")
    clusters = fcluster(tree, threshold, "distance")
    if clusters.max() < min_clusters:
        clusters = fcluster(tree, min_clusters, "maxclust")
    return np.asarray(clusters - 1, np.intp)


def _seconds(regions: Sequence[Region]) -> npt.NDArray[np.float64]:
    """Return the seconds of speech that each window represents, since windows of a run overlap."""
    runs: dict[int, list[Region]] = defaultdict(list)
    for region in regions:
        runs[region.run].append(region)
    seconds = {run: (windows[-1].end - windows[0].start) / len(windows) for run, windows in runs.items()}
    return np.array([seconds[region.run] for region in regions])


def _unit(vector: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return np.asarray(vector / (np.linalg.norm(vector) or 1.0))


def _spoken(
    regions: Sequence[Region], cosines: npt.NDArray[np.floating], is_embedded: npt.NDArray[np.bool_], change: float
) -> Iterator[tuple[float, float, int]]:
    """Yield (start, end, voice) of each run's stretches; voice -1 for a run without any embedding."""
    runs: dict[int, list[int]] = defaultdict(list)
    for at, window in enumerate(regions):
        runs[window.run].append(at)
    for rows in runs.values():
        start, end = regions[rows[0]].start, regions[rows[-1]].end
        moments = max(1, round((end - start) / MOMENT))
        summed, weights = np.zeros((moments, cosines.shape[1])), np.zeros((moments, 1))
        times = start + (np.arange(moments) + 0.5) * MOMENT
        for row in rows:
            if is_embedded[row]:
                window = regions[row]
                distance = np.abs(times - (window.start + window.end) / 2)
                weight = np.clip(1 - distance / (0.5 * window.duration + MOMENT), 0, 1)
                summed += weight[:, None] * cosines[row]
                weights += weight[:, None]
        path = _likeliest(summed / np.maximum(weights, 1e-9), change) if weights.any() else np.full(moments, -1)
        cuts = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), moments]
        for first, last in pairwise(cuts):
            until = end if last == moments else start + last * MOMENT
            yield start + first * MOMENT, until, int(path[first])


def _likeliest(scores: npt.NDArray[np.float64], change: float) -> Labels:
    """Return the voice of each moment that maximizes the sum of scores minus `change` per change (Viterbi)."""
    moments, voices = scores.shape
    if voices == 1:
        return np.zeros(moments, np.intp)
    previous = np.zeros((moments, voices), np.intp)
    best = scores[0].copy()
    for at in range(1, moments):
        other = int(best.argmax())
        changed = best[other] - change > best
        previous[at] = np.where(changed, other, np.arange(voices))
        best = np.where(changed, best[other] - change, best) + scores[at]
    path = np.empty(moments, np.intp)
    path[-1] = best.argmax()
    for at in range(moments - 1, 0, -1):
        path[at - 1] = previous[at, path[at]]
    return path


def _joined(spoken: Sequence[tuple[float, float, int]], gap: float) -> list[tuple[float, float, int]]:
    """Join the stretches of one voice over short pauses, and assign those without a voice to the one before."""
    joined: list[tuple[float, float, int]] = []
    voice = next((speaker for _, _, speaker in spoken if speaker >= 0), 0)
    for start, end, speaker in spoken:
        voice = speaker if speaker >= 0 else voice
        if joined and joined[-1][2] == voice and start - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], end, voice)
        else:
            joined.append((start, end, voice))
    return joined
