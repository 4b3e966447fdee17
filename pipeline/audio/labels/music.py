"""Hold music: sound whose spectral lines stay where they are.

Notes hold their pitch for a tenth of a second and more, several at a time, and the piece goes on without pauses for
breath; a voice glides, and breaks off at every syllable (Saunders, ICASSP 1996; Scheirer and Slaney, ICASSP 1997). The
figure is `Frames.lines`, the share of power in lines that outlast 80 ms: noise and modems 0.01, voices 0.1 to 0.4,
music 0.3 to 0.9. Voices reach into music's range, so this never judges what the speech detector is sure of.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.audio.labels.frames import STEP, Frames

LOUD = -55.0  # dBFS; softer moments say nothing
WINDOW = 2.0  # seconds over which lines are averaged
BEGINS, GOES_ON = 0.22, 0.14  # average share of lines
MOMENT = 0.24  # seconds over which a piece's first and last moment are looked for
PAUSE = 1.5  # seconds a piece may be silent
SHORTEST = 4.0  # seconds
STRAY_SECONDS, STRAY_PAUSE = 1.0, 0.3  # a first or last moment so short, so far from the rest, is no part of a piece
MEMORY, FADING = 2.0, 0.2  # seconds in which a line is remembered; a note that begins is new for so long
SAME_HZ = 15.0
MOVES_ON = 0.03  # share of the moments with a new line
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
    return _without_strays(playing, loud, other)


def machines(frames: Frames, playing: Mask) -> Mask:
    """Return which of the pieces that `find` found are machines: mains hum, motors, fans, a mobile phone's buzz.

    Music moves on to other notes; a machine repeats its lines, in whatever order a codec brings them out. Moments whose
    strongest line was not the strongest in the two seconds before: real music 3.8 % or more of ten seconds, machines up
    to 3 %, a motor with an uneven load up to 5 %, through mu-law, GSM and AMR at 4.75 kbit/s.
    """
    found = np.zeros(len(frames), bool)
    for first, last in runs(playing):
        found[first:last] = _share_new(frames.first[first:last]) <= MOVES_ON
    return found


def _share_new(strongest: npt.NDArray[np.float32]) -> float:
    """The share of the moments, after `MEMORY`, whose line (Hz) is new; of a piece that is shorter, 0."""
    memory, skipped = round(MEMORY * STEP), round(FADING * STEP)
    count = len(strongest) - memory
    new = 0
    for at in range(0, count, 3000):  # a minute: what is held at a time is 90 times as much
        here = strongest[at : at + 3000 + memory]
        before = np.lib.stride_tricks.sliding_window_view(here, memory - skipped)[: len(here) - memory]
        new += int(np.sum(np.abs(before - here[memory:, None]).min(axis=1) > SAME_HZ))
    return new / count if count > 0 else 0.0


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


def _without_strays(playing: Mask, loud: Mask, other: Mask) -> Mask:
    """Pieces without a first or last moment that a pause divides from them, where speech or a tone is next to it: it is
    a word of who speaks.
    """
    kept = playing.copy()
    pause, longest = round(STRAY_PAUSE * STEP), STRAY_SECONDS * STEP
    for first, last in runs(playing):
        sounds = runs(_filled(loud[first:last], pause, np.ones(last - first, bool)))
        if len(sounds) < 2:
            continue
        if sounds[0][1] - sounds[0][0] < longest and other[max(0, first - pause) : first].any():
            kept[first : first + sounds[1][0]] = False
        if sounds[-1][1] - sounds[-1][0] < longest and other[last : last + pause].any():
            kept[first + sounds[-2][1] : last] = False
    return kept


def runs(mask: Mask) -> list[tuple[int, int]]:
    """(first, last exclusive) of every stretch that is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
