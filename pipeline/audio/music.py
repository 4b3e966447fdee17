"""Hold music: sound whose spectral lines stay where they are.

Notes hold their pitch for a tenth of a second and more, several at a time, and the piece goes on without pauses for
breath; a voice glides, and breaks off at every syllable (Saunders, ICASSP 1996; Scheirer and Slaney, ICASSP 1997). The
figure is `Frames.lines`, the share of power in lines that outlast 80 ms: noise and modems 0.01, voices 0.1 to 0.4,
music 0.3 to 0.9. Voices reach into music's range, so this never judges what the speech detector is sure of.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.audio.frames import STEP, Frames

LOUD = -55.0  # dBFS; softer moments say nothing
WINDOW = 2.0  # seconds over which lines are averaged
BEGINS, GOES_ON = 0.22, 0.14  # average share of lines
MOMENT = 0.24  # seconds over which a piece's first and last moment are looked for
PAUSE = 1.5  # seconds a piece may be silent
SHORTEST = 4.0  # seconds
DRONE_HZ, DRONE_SHARE = 10.0, 0.7  # the strongest line stays so near one pitch, in such a share of the moments
MISTAKEN_SECONDS, MISTAKEN_PROBABILITY = 1.2, 0.6  # what the detector takes for speech inside a piece, and is not

Mask = npt.NDArray[np.bool_]


def find(frames: Frames, other: Mask) -> Mask:
    """True where music plays; `other` marks frames that are known to be something else (speech, tones)."""
    loud = (frames.level > LOUD) & ~other
    share = _average(np.where(loud, frames.lines, 0), loud)
    heard = _average(np.where(loud, 1, 0), np.ones(len(frames), bool)) > 0.1
    playing = _hysteresis(np.where(heard, share, 0)) & ~other
    playing = _filled(playing, round(PAUSE * STEP), ~other)
    # A window reaches beyond the piece: it begins and ends where it is heard.
    at_hand = _average(np.where(loud, frames.lines, 0), np.ones(len(frames), bool), MOMENT) >= GOES_ON
    playing = _kept(playing, at_hand, round(SHORTEST * STEP))
    for first, last in runs(playing):
        if _humming(frames, first, last):
            playing[first:last] = False
    return playing


def _humming(frames: Frames, first: int, last: int) -> bool:
    """Lines that never change, most of them below the telephone band: the mains."""
    level, low = frames.level[first:last], frames.low[first:last]
    return bool(np.median(low - level) > 0 and np.percentile(level, 90) - np.percentile(level, 10) < 4)


def drones(frames: Frames, playing: Mask) -> Mask:
    """Where what `find` took for a piece keeps one pitch all through: what a codec left of the mains' harmonics."""
    droning = np.zeros(len(frames), bool)
    for first, last in runs(playing):
        strongest = frames.first[first:last]
        steady = np.abs(strongest - np.median(strongest)) < DRONE_HZ
        droning[first:last] = np.mean(steady) > DRONE_SHARE
    return droning


def mistaken(frames: Frames, music: Mask, first: int, last: int, probability: float) -> bool:
    """Whether what the detector took for speech, frames `first` to `last`, is a moment of the music around it.

    `probability` is the detector's mean. Only short moments it is not sure of, with music right before and after: who
    speaks over music speaks for longer.
    """
    if (last - first) / STEP > MISTAKEN_SECONDS or probability > MISTAKEN_PROBABILITY:
        return False
    reach, beside = round(2 * STEP), round(0.3 * STEP)
    before, after = music[max(0, first - reach) : first], music[last : last + reach]
    surrounded = before[-beside:].all() and after[:beside].all() and min(len(before), len(after)) >= beside
    return bool(surrounded and max(float(np.mean(before)), float(np.mean(after))) > 0.9)


def _average(values: npt.NDArray[np.float32], counted: Mask, window: float = WINDOW) -> npt.NDArray[np.float32]:
    """Mean over `window` seconds of the counted values."""
    half = round(window * STEP / 2)
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    counts = np.concatenate([[0], np.cumsum(counted)])
    n = len(values)
    first, last = np.maximum(np.arange(n) - half, 0), np.minimum(np.arange(n) + half, n)
    return np.asarray((sums[last] - sums[first]) / np.maximum(counts[last] - counts[first], 1), np.float32)


def _hysteresis(share: npt.NDArray[np.float32]) -> Mask:
    """Stretches at `GOES_ON` or above that reach `BEGINS` somewhere."""
    mask = share >= GOES_ON
    for first, last in runs(mask):
        if share[first:last].max() < BEGINS:
            mask[first:last] = False
    return np.asarray(mask)


def _filled(mask: Mask, longest: int, allowed: Mask) -> Mask:
    """Gaps of at most `longest` frames between stretches filled, where `allowed` all through."""
    filled = mask.copy()
    for (_, end), (start, _) in pairwise(runs(mask)):
        if start - end <= longest and allowed[end:start].all():
            filled[end:start] = True
    return filled


def _kept(mask: Mask, loud: Mask, shortest: int) -> Mask:
    kept = np.zeros(len(mask), bool)
    for first, last in runs(mask):
        heard = np.flatnonzero(loud[first:last])
        if len(heard) and heard[-1] + 1 - heard[0] >= shortest:
            kept[first + heard[0] : first + heard[-1] + 1] = True
    return kept


def runs(mask: Mask) -> list[tuple[int, int]]:
    """(first, last exclusive) of every stretch that is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
