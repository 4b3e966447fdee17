"""Move word edges to where the sound begins and ends.

The aligner places edges in steps of 20 ms by the decoder's attention, which wanders into pauses next to a word. The
level locates pauses better: a start in a pause moves to the onset within its word, an end in a pause moves back to the
offset, and an end that cuts sound off moves forward to the offset, by up to `REACH` and never into the next word. Edges
between words without a pause do not change.

A word longer than plausible was stretched over sound without words. It is shortened to its beginning, or to its end if
that is louder, so that the uncovered sound counts as missing speech.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pipeline.asr.plausible import longest
from pipeline.asr.words import in_pieces, recorded
from pipeline.domain.speech import SAMPLE_RATE, Chunk, Span, Word
from pipeline.errors import EngineError

FRAME = 160  # samples, 10 ms
SPEECH_DB = 30.0  # a frame this far below the chunk's loud ones is in a pause
FLOOR_DB = 6.0  # as is one this close to the chunk's floor
QUIETEST_DB = -120.0
REACH = 0.4  # seconds that an end may move forward
LOUDER_DB = 3.0  # a stretched word was spoken at its end if its end is louder than its beginning by this


def check_sound(samples: npt.NDArray[np.float32], chunk: Chunk, longest: float) -> None:
    """Raise `EngineError` for a chunk's sound that is empty, longer than `longest` seconds, or not finite."""
    seconds = len(samples) / SAMPLE_RATE
    if not 0 < seconds <= longest + 0.5:
        raise EngineError(f"A chunk has {seconds:.1f} s; this model accepts up to {longest:g} s.")
    if not np.isfinite(samples).all():
        raise EngineError(f"Samples of channel {chunk.channel} at {chunk.start:.1f} s are not finite numbers.")


def placed(words: Sequence[Word], samples: npt.NDArray[np.float32], chunk: Chunk) -> tuple[Word, ...]:
    """Move word edges, and convert times from the chunk's sound to the recording."""
    moved = snapped(in_pieces(words, chunk.parts), samples, chunk.parts)
    return recorded(in_pieces(moved, chunk.parts), chunk)


def snapped(words: Sequence[Word], samples: npt.NDArray[np.float32], parts: Sequence[Span]) -> tuple[Word, ...]:
    """Return the words of a chunk with edges moved; their text and order do not change.

    `samples` are the chunk's sound, shape (n,), and times count in it; `parts` are its pieces there (`Chunk.parts`). No
    edge leaves its piece.
    """
    db = _levels(samples)
    loud = _loud(db)
    words = [_shortened(word, db) for word in words]
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
    """Return the first loud frame of a word that begins in a pause; None if it does not, or is all pause."""
    if first < 0 or loud[first : first + 2].any():
        return None
    loud_frames = np.flatnonzero(loud[first:last])
    return first + int(loud_frames[0]) if len(loud_frames) else None


def _offset(loud: npt.NDArray[np.bool_], first: int, last: int, limit: int) -> int | None:
    """Return the frame where a word's sound ends: before `last` if that is in a pause, else up to `limit`."""
    last = min(last, len(loud))
    if last - first < 3:
        return None
    if not loud[last - 2 : last].any():
        loud_frames = np.flatnonzero(loud[first:last])
        return first + int(loud_frames[-1]) + 1 if len(loud_frames) else None
    if loud[last - 1] and limit > last:
        quiet = np.flatnonzero(~loud[last:limit])
        return last + int(quiet[0]) if len(quiet) else min(limit, len(loud))
    return None


def _shortened(word: Word, db: npt.NDArray[np.float64]) -> Word:
    """Shorten a word to its maximum length: to its beginning, or to its end if that is louder."""
    max_seconds = longest(word.text)
    if word.end - word.start <= max_seconds:
        return word
    head, tail = (_mean(db, start, start + max_seconds) for start in (word.start, word.end - max_seconds))
    return (
        replace(word, start=word.end - max_seconds)
        if tail > head + LOUDER_DB
        else replace(word, end=word.start + max_seconds)
    )


def _mean(db: npt.NDArray[np.float64], start: float, end: float) -> float:
    """Return the mean level between two times, by power; -120 dB without sound."""
    power = 10 ** (db[max(0, _frame(start)) : max(0, _frame(end))] / 10)
    return 10 * float(np.log10(power.mean())) if len(power) else QUIETEST_DB


def _levels(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    db: npt.NDArray[np.float64] = 10 * np.log10(np.mean(frames**2, axis=1) + 10 ** (QUIETEST_DB / 10))
    return db


def _loud(db: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    if not len(db):
        return np.zeros(0, dtype=np.bool_)
    loud: npt.NDArray[np.bool_] = db > max(np.quantile(db, 0.95) - SPEECH_DB, np.quantile(db, 0.05) + FLOOR_DB)
    return loud


def _frame(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE / FRAME)
