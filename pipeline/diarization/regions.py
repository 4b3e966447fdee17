"""Who speaks when, from the voices of short windows: clusters first, then the likeliest voice in each moment."""

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
MOST_CLUSTERED = 6000  # windows whose distances are held at once: 144 MB; the others go to the nearest voice
SURE_SECONDS = 1.0  # windows below are not clustered, but go to the nearest voice

Vectors = npt.NDArray[np.float32]  # shape (windows, dimension), rows of unit length or NaN
Labels = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Region:
    """Where a window lies: in which run of speech, and from when to when in seconds."""

    run: int
    start: float
    end: float

    @property
    def duration(self) -> float:
        """In seconds."""
        return self.end - self.start


def diarized(
    regions: Sequence[Region], vectors: Vectors, how: ClusteringParameters, fewest: int, most: int | None
) -> tuple[tuple[SpeakerSpan, ...], dict[str, Vectors]]:
    """Return who speaks when, labeled A, B, ... by first appearance, and the mean vector of each speaker's windows.

    `regions` are in order, `vectors` theirs. Each run of speech belongs to one speaker at a time; one in which nothing
    could be embedded to the speaker before it. Where nothing could be embedded at all, one speaker has no mean.
    """
    if not regions:
        return (), {}
    known: npt.NDArray[np.bool_] = np.asarray(np.isfinite(vectors).all(axis=1))
    centers = _voices(regions, vectors, known, how, fewest, most)
    cosines = np.where(known[:, None], vectors, 0) @ centers.T if len(centers) else np.zeros((len(regions), 1))
    spoken = _joined(list(_spoken(regions, cosines, known, how.change)), how.gap)
    names = letters(speaker for _, _, speaker in spoken)
    spans = tuple(SpeakerSpan(round(start, 3), round(end, 3), names[speaker]) for start, end, speaker in spoken)
    return spans, {names[at]: center for at, center in enumerate(centers) if at in names}


def _voices(
    regions: Sequence[Region],
    vectors: Vectors,
    known: npt.NDArray[np.bool_],
    how: ClusteringParameters,
    fewest: int,
    most: int | None,
) -> Vectors:
    """Return the unit vector of each voice, shape (voices, dimension); none where nothing could be embedded."""
    rows = np.flatnonzero(known & (np.array([one.duration for one in regions]) >= SURE_SECONDS))
    rows = rows if len(rows) else np.flatnonzero(known)
    if not len(rows):
        return vectors[:0]
    if len(rows) > MOST_CLUSTERED:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_CLUSTERED).astype(int)]
    labels = _clusters(vectors[rows], how.threshold, fewest)
    held = np.bincount(labels, weights=_seconds(regions)[rows])
    kept: list[npt.NDArray[np.floating]] = []
    for at in np.argsort(-held, kind="stable"):
        center = _unit(vectors[rows[labels == at]].sum(axis=0))
        far = max((float(center @ other) for other in kept), default=-1.0) <= how.far
        if len(kept) < fewest or held[at] >= (how.few_seconds if far else how.min_seconds):
            kept.append(center)
    centers = np.stack(kept[:most])
    nearest = (vectors[rows] @ centers.T).argmax(axis=1)
    return np.stack([_unit(vectors[rows[nearest == at]].sum(axis=0)) for at in np.unique(nearest)])


def _clusters(vectors: Vectors, threshold: float, fewest: int) -> Labels:
    """Return the cluster of each vector, 0 and up: average linkage up to the threshold, at least `fewest`."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist

    if len(vectors) == 1:
        return np.zeros(1, np.intp)
    tree = linkage(np.maximum(pdist(vectors, "cosine"), 0), "average")
    found = fcluster(tree, threshold, "distance")
    if found.max() < fewest:
        found = fcluster(tree, fewest, "maxclust")
    return np.asarray(found - 1, np.intp)


def _seconds(regions: Sequence[Region]) -> npt.NDArray[np.float64]:
    """Seconds of speech that each window stands for: windows of a run overlap."""
    runs: dict[int, list[Region]] = defaultdict(list)
    for one in regions:
        runs[one.run].append(one)
    return np.array([(runs[one.run][-1].end - runs[one.run][0].start) / len(runs[one.run]) for one in regions])


def _unit(vector: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return np.asarray(vector / (np.linalg.norm(vector) or 1.0))


def _spoken(
    regions: Sequence[Region], cosines: npt.NDArray[np.floating], known: npt.NDArray[np.bool_], change: float
) -> Iterator[tuple[float, float, int]]:
    """Yield (start, end, voice) of each run's stretches. Where a run has no voice of its own its neighbor's goes on."""
    runs: dict[int, list[int]] = defaultdict(list)
    for at, one in enumerate(regions):
        runs[one.run].append(at)
    for rows in runs.values():
        start, end = regions[rows[0]].start, regions[rows[-1]].end
        moments = max(1, round((end - start) / MOMENT))
        summed, weights = np.zeros((moments, cosines.shape[1])), np.zeros((moments, 1))
        times = start + (np.arange(moments) + 0.5) * MOMENT
        for row in rows:
            if known[row]:
                one = regions[row]
                weight = np.clip(1 - np.abs(times - (one.start + one.end) / 2) / (0.5 * one.duration + MOMENT), 0, 1)
                summed += weight[:, None] * cosines[row]
                weights += weight[:, None]
        path = _likeliest(summed / np.maximum(weights, 1e-9), change) if weights.any() else np.full(moments, -1)
        cuts = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), moments]
        for first, last in pairwise(cuts):
            until = end if last == moments else start + last * MOMENT
            yield start + first * MOMENT, until, int(path[first])


def _likeliest(scores: npt.NDArray[np.float64], change: float) -> Labels:
    """Return the voice of each moment, whose scores are highest in sum less `change` for each change (Viterbi)."""
    moments, voices = scores.shape
    if voices == 1:
        return np.zeros(moments, np.intp)
    came = np.zeros((moments, voices), np.intp)
    best = scores[0].copy()
    for at in range(1, moments):
        other = int(best.argmax())
        changed = best[other] - change > best
        came[at] = np.where(changed, other, np.arange(voices))
        best = np.where(changed, best[other] - change, best) + scores[at]
    path = np.empty(moments, np.intp)
    path[-1] = best.argmax()
    for at in range(moments - 1, 0, -1):
        path[at - 1] = came[at, path[at]]
    return path


def _joined(spoken: Sequence[tuple[float, float, int]], gap: float) -> list[tuple[float, float, int]]:
    """Return the stretches with those of one voice joined over short pauses, and those of no voice given to one."""
    found: list[tuple[float, float, int]] = []
    voice = next((speaker for _, _, speaker in spoken if speaker >= 0), 0)
    for start, end, speaker in spoken:
        voice = speaker if speaker >= 0 else voice
        if found and found[-1][2] == voice and start - found[-1][1] <= gap:
            found[-1] = (found[-1][0], end, voice)
        else:
            found.append((start, end, voice))
    return found
