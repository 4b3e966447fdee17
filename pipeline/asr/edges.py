"""Word edges moved to where the sound begins and ends.

The aligner places edges in steps of 20 ms by the decoder's attention, which wanders into the pauses beside a word. The
level says better where a pause is: a start that lies in one is moved to the onset within its word, an end that lies in
one back to the offset, and an end that cuts sound off is moved on to the offset, at most `REACH` and never into the
next word. Between words without a pause nothing changes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE, Span, Word

FRAME = 160  # samples, 10 ms
SPEECH_DB = 30.0  # a frame this far below the chunk's loud ones lies in a pause
FLOOR_DB = 6.0  # as does one this close to the chunk's floor
REACH = 0.4  # seconds by which an end may be moved on


def snapped(words: Sequence[Word], samples: npt.NDArray[np.float32], parts: Sequence[Span]) -> tuple[Word, ...]:
    """`words` of a chunk with edges moved; texts and their order stay.

    `samples` are the chunk's sound, shape (n,), and times count in it; `parts` are its pieces there (`Chunk.parts`),
    which no edge is moved out of.
    """
    loud = _loud(samples)
    borders = [part.end for part in parts]
    result = []
    for i, word in enumerate(words):
        following = words[i + 1].start if i + 1 < len(words) else borders[-1]
        border = borders[min(bisect_right(borders, word.start), len(borders) - 1)]
        first, last = _frame(word.start), _frame(word.end)
        onset = _onset(loud, first, last)
        start = word.start if onset is None else onset * FRAME / SAMPLE_RATE
        offset = _offset(loud, max(first, onset or 0), last, _frame(min(following, border, word.end + REACH)))
        end = word.end if offset is None else offset * FRAME / SAMPLE_RATE
        result.append(replace(word, start=start, end=end) if start < end else word)
    return tuple(result)


def _onset(loud: npt.NDArray[np.bool_], first: int, last: int) -> int | None:
    """The first loud frame of a word that begins in a pause; None where it does not or is all pause."""
    if first < 0 or loud[first : first + 2].any():
        return None
    found = np.flatnonzero(loud[first:last])
    return first + int(found[0]) if len(found) else None


def _offset(loud: npt.NDArray[np.bool_], first: int, last: int, limit: int) -> int | None:
    """The frame at which a word's sound ends: before `last` if that lies in a pause, up to `limit` if it does not."""
    last = min(last, len(loud))
    if last - first < 3:
        return None
    if not loud[last - 2 : last].any():
        found = np.flatnonzero(loud[first:last])
        return first + int(found[-1]) + 1 if len(found) else None
    if loud[last - 1] and limit > last:
        quiet = np.flatnonzero(~loud[last:limit])
        return last + int(quiet[0]) if len(quiet) else min(limit, len(loud))
    return None


def _loud(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    if not len(frames):
        return np.zeros(0, dtype=np.bool_)
    db = 10 * np.log10(np.mean(frames**2, axis=1) + 1e-12)
    loud: npt.NDArray[np.bool_] = db > max(np.quantile(db, 0.95) - SPEECH_DB, np.quantile(db, 0.05) + FLOOR_DB)
    return loud


def _frame(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE / FRAME)
