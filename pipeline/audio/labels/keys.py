"""Telephone keys: DTMF as in ITU-T Q.23, received as in Q.24.

Every 5 ms the power at the eight frequencies is compared with the total in a window of 24 ms. A key is one row and one
column with nearly all the power for 40 ms; harmonics and formants of a voice leave too much elsewhere (talk-off).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.audio.labels.frames import blocks
from pipeline.domain.speech import SAMPLE_RATE, Audio

ROWS, COLUMNS = (697, 770, 852, 941), (1209, 1336, 1477, 1633)  # Hz
KEYS = "123A456B789C*0#D"
HOP, WINDOW = 80, 384  # samples: 5 ms, 24 ms
BLOCK_FRAMES = 6000  # half a minute
MIN_LEVEL = -45.0  # dBFS
PURE = 0.8  # min. share of the window's power in the two tones
TWIST_DB = (-10.0, 8.0)  # of the column over the row: the limits of Q.24, and 2 dB for codecs
MIN_FRAMES = 4  # a tone of 40 ms fills about this many windows of 24 ms


@dataclass(frozen=True, slots=True)
class Key:
    """One key, pressed from `start` to `end` (seconds)."""

    start: float
    end: float
    digit: str


def find(audio: Audio, channel: int) -> list[Key]:
    """Return the keys of one channel, in order of time; reads half a minute at a time."""
    digits = [_digits(samples) for _, samples in blocks(audio, channel, HOP, WINDOW, BLOCK_FRAMES)]
    if not digits:
        return []
    row = np.concatenate(digits)
    edges = np.flatnonzero(np.diff(row)) + 1
    pressed = []
    for first, last in zip([0, *edges], [*edges, len(row)], strict=True):
        if row[first] >= 0 and last - first >= MIN_FRAMES:
            pressed.append(Key(first * HOP / SAMPLE_RATE, last * HOP / SAMPLE_RATE, KEYS[row[first]]))
    return _whole(pressed)


def _whole(pressed: list[Key]) -> list[Key]:
    """Merge a key that was interrupted for max. 20 ms."""
    whole: list[Key] = []
    for key in pressed:
        if whole and whole[-1].digit == key.digit and key.start - whole[-1].end <= 0.02:
            whole[-1] = Key(whole[-1].start, key.end, key.digit)
        else:
            whole.append(key)
    return whole


def _digits(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """Return the index into `KEYS` per frame, -1 for none."""
    window = np.hanning(WINDOW).astype(np.float32)
    views = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP] * window
    t = np.arange(WINDOW) / SAMPLE_RATE
    basis = np.exp(-2j * np.pi * np.outer(t, ROWS + COLUMNS)).astype(np.complex64)
    parts = np.concatenate([basis.real, basis.imag], axis=1).astype(np.float32)
    projected = views @ parts
    power = 2 * (projected[:, :8] ** 2 + projected[:, 8:] ** 2) / window.sum() ** 2
    total = (views**2).sum(axis=1) / (window**2).sum() + 1e-12
    row, column = np.argmax(power[:, :4], axis=1), np.argmax(power[:, 4:], axis=1)
    low, high = power[:, :4].max(axis=1) + 1e-15, power[:, 4:].max(axis=1) + 1e-15
    twist = 10 * np.log10(high / low)
    is_key = (low + high) / total >= PURE
    is_key &= (twist >= TWIST_DB[0]) & (twist <= TWIST_DB[1]) & (10 * np.log10(total) > MIN_LEVEL)
    return np.where(is_key, row * 4 + column, -1).astype(np.int8)
