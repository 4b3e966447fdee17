"""Hold music: sound whose spectral lines stay in place.

Notes hold their pitch for a tenth of a second and more, several at a time, and a piece continues without pauses for
breath; a voice glides and breaks off at every syllable (Saunders, ICASSP 1996; Scheirer and Slaney, ICASSP 1997). The
measure is `Frames.lines`, the share of power in lines that outlast 80 ms: noise and modems 0.01, voices 0.1 to 0.4,
music 0.3 to 0.9. Voices reach into music's range, so confident results of the speech detector are never overridden.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.audio.labels.frames import STEP, Frames

LOUD = -55.0  # dBFS; softer moments are ignored
WINDOW = 2.0  # seconds over which lines are averaged
BEGINS, CONTINUES = 0.22, 0.14  # average share of lines
MOMENT = 0.24  # seconds over which the edges of a piece are searched
PAUSE = 1.5  # max. silence within a piece in seconds
MIN_SECONDS = 4.0  # seconds
STRAY_SECONDS, STRAY_PAUSE = 1.0, 0.3  # a shorter first or last moment after a longer pause is not part of a piece
MEMORY, FADING = 2.0, 0.2  # seconds for which a line is remembered, and for which a beginning note is new
SAME_HZ = 15.0
MAX_NEW_SHARE = 0.03  # max. share of a machine's moments with a new line
MISTAKEN_SECONDS, MISTAKEN_PROBABILITY = 1.2, 0.6  # max. of false speech inside a piece

Mask = npt.NDArray[np.bool_]


def find(frames: Frames, other: Mask) -> Mask:
    """Mark frames with music; `other` marks frames with other sounds (speech, tones)."""
    loud = (frames.level > LOUD) & ~other
    share = _average(np.where(loud, frames.lines, 0), loud)
    audible = _average(np.where(loud, 1, 0), np.ones(len(frames), bool)) > 0.1
    playing = _hysteresis(np.where(audible, share, 0)) & ~other
    playing = filled(playing, round(PAUSE * STEP), ~other)
    # A window reaches beyond the piece, whose edges are where it is audible.
    present = _average(np.where(loud, frames.lines, 0), np.ones(len(frames), bool), MOMENT) >= CONTINUES
    playing = _trimmed(playing, present, round(MIN_SECONDS * STEP))
    return _without_strays(playing, loud, other)


def machines(frames: Frames, playing: Mask) -> Mask:
    """Return which of the pieces that `find` marked are machines: mains hum, motors, fans, a mobile phone's buzz.

    Music moves to other notes; a machine repeats its lines, in whatever order a codec reproduces them. The share of
    moments with a line that was not the strongest in the two seconds before: real music 3.8 % or more of ten seconds,
    machines up to 3 %, a motor with an uneven load up to 5 %, through mu-law, GSM and AMR at 4.75 kbit/s.
    """
    humming = np.zeros(len(frames), bool)
    for first, last in runs(playing):
        humming[first:last] = _share_new(frames.first[first:last]) <= MAX_NEW_SHARE
    return humming


def _share_new(strongest: npt.NDArray[np.float32]) -> float:
    """Return the share of moments after `MEMORY` with a new line (Hz); 0 for a shorter piece."""
    memory, skipped = round(MEMORY * STEP), round(FADING * STEP)
    count = len(strongest) - memory
    new = 0
    for at in range(0, count, 3000):  # a minute: the views need 90 times as much
        block = strongest[at : at + 3000 + memory]
        before = np.lib.stride_tricks.sliding_window_view(block, memory - skipped)[: len(block) - memory]
        new += int(np.sum(np.abs(before - block[memory:, None]).min(axis=1) > SAME_HZ))
    return new / count if count > 0 else 0.0


def mistaken(frames: Frames, music: Mask, first: int, last: int, probability: float) -> bool:
    """Return whether detected speech, frames `first` to `last`, is a moment of the music around it.

    `probability` is the detector's mean. Only short, uncertain moments with music right before and after qualify:
    speech over music lasts longer.
    """
    if (last - first) / STEP > MISTAKEN_SECONDS or probability > MISTAKEN_PROBABILITY:
        return False
    reach, margin = round(2 * STEP), round(0.3 * STEP)
    before, after = music[max(0, first - reach) : first], music[last : last + reach]
    surrounded = before[-margin:].all() and after[:margin].all() and min(len(before), len(after)) >= margin
    return bool(surrounded and max(float(np.mean(before)), float(np.mean(after))) > 0.9)


def _average(values: npt.NDArray[np.float32], counted: Mask, window: float = WINDOW) -> npt.NDArray[np.float32]:
    """Return the mean over `window` seconds of the counted values."""
    half = round(window * STEP / 2)
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    counts = np.concatenate([[0], np.cumsum(counted)])
    n = len(values)
    first, last = np.maximum(np.arange(n) - half, 0), np.minimum(np.arange(n) + half, n)
    return np.asarray((sums[last] - sums[first]) / np.maximum(counts[last] - counts[first], 1), np.float32)


def _hysteresis(share: npt.NDArray[np.float32]) -> Mask:
    """Mark stretches at or above `CONTINUES` that reach `BEGINS` somewhere."""
    mask = share >= CONTINUES
    for first, last in runs(mask):
        if share[first:last].max() < BEGINS:
            mask[first:last] = False
    return np.asarray(mask)


def filled(mask: Mask, longest: int, allowed: Mask | None = None) -> Mask:
    """Fill gaps of max. `longest` frames between stretches, if they are `allowed` throughout."""
    whole = mask.copy()
    for (_, end), (start, _) in pairwise(runs(mask)):
        if start - end <= longest and (allowed is None or allowed[end:start].all()):
            whole[end:start] = True
    return whole


def _trimmed(mask: Mask, loud: Mask, shortest: int) -> Mask:
    trimmed = np.zeros(len(mask), bool)
    for first, last in runs(mask):
        audible = np.flatnonzero(loud[first:last])
        if len(audible) and audible[-1] + 1 - audible[0] >= shortest:
            trimmed[first + audible[0] : first + audible[-1] + 1] = True
    return trimmed


def _without_strays(playing: Mask, loud: Mask, other: Mask) -> Mask:
    """Trim a first or last moment that a pause separates from its piece, next to speech or a tone: it is a word."""
    trimmed = playing.copy()
    pause, longest = round(STRAY_PAUSE * STEP), STRAY_SECONDS * STEP
    for first, last in runs(playing):
        sounds = runs(filled(loud[first:last], pause))
        if len(sounds) < 2:
            continue
        if sounds[0][1] - sounds[0][0] < longest and other[max(0, first - pause) : first].any():
            trimmed[first : first + sounds[1][0]] = False
        if sounds[-1][1] - sounds[-1][0] < longest and other[last : last + pause].any():
            trimmed[first + sounds[-2][1] : last] = False
    return trimmed


def runs(mask: Mask) -> list[tuple[int, int]]:
    """Return (first, last exclusive) of every true stretch."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
