"""Levels of words, and echoes between channels. Only one chunk's samples are in memory, and 20 levels per second."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE, Audio, Chunk, Span

FRAME = 800  # samples, 50 ms
STEP = FRAME / SAMPLE_RATE  # seconds
QUIETEST_DB = -120.0
ECHO_RATE = 8_000  # Hz; enough for a telephone line
ECHO_TAPS = 64  # 8 ms around the delay: the filter of the line
MAX_DELAY = 0.8  # seconds by which an echo may lag
MAX_COMPARED_SECONDS = 4.0  # seconds of sound


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Levels of one chunk in dB of full scale, one per 50 ms of its sound; skipped pauses have none."""

    starts: npt.NDArray[np.float64]  # of the frames, in the recording's time, ascending
    db: npt.NDArray[np.float64]

    def between(self, start: float, end: float) -> npt.NDArray[np.float64]:
        """Return the levels of the frames that touch start..end; may be empty."""
        first = int(np.searchsorted(self.starts, start - STEP, side="right"))
        return self.db[first : max(first, int(np.searchsorted(self.starts, end, side="left")))]

    def loud_seconds(self, spans: Sequence[Span], above: float) -> float:
        """Return the seconds within `spans` that are louder than `above` dB."""
        return sum(float((self.between(s.start, s.end) > above).sum()) for s in spans) * STEP


def levels(audio: Audio, chunk: Chunk) -> Levels:
    """Return the levels of a chunk; missing and zero samples count as -120 dB."""
    starts, levels_of_pieces = [], []
    for piece in chunk.sound:
        samples = audio.cut(chunk.channel, piece.start, piece.end).astype(np.float64)
        power = np.mean(np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME) ** 2, axis=1)
        starts.append(piece.start + np.arange(len(power)) * STEP)
        levels_of_pieces.append(np.maximum(10 * np.log10(power + 1e-30), QUIETEST_DB))
    return Levels(np.concatenate(starts), np.concatenate(levels_of_pieces))


def speech_level(chunk_levels: Sequence[Levels]) -> float:
    """Return the level of a channel's speech: the 90th percentile of its chunks' levels, or -120 dB without any."""
    all_levels = np.concatenate([x.db for x in chunk_levels]) if chunk_levels else np.zeros(0)
    return float(np.quantile(all_levels, 0.9)) if len(all_levels) else QUIETEST_DB


@dataclass(frozen=True, slots=True)
class Shared:
    """Similarity of two channels between two times: how far the quieter is a filtered copy of the louder."""

    quieter: int  # channel
    share: float  # of its power that the other channel's sound, delayed and filtered, explains, 0..1
    difference_db: float  # level difference, 0 or more


def shared(audio: Audio, start: float, end: float) -> Shared | None:
    """Predict the quieter of two channels from the louder one between two times; None if a channel is silent.

    Finds the delay by cross-correlation up to 0.8 s, then fits a filter of 64 taps by least squares (at 8 kHz). Two
    people who say the same word at once share almost nothing: their waveforms differ. Compares the first 4 s only.
    """
    end = min(end, start + MAX_COMPARED_SECONDS)
    pair = [_narrow(audio, channel, start, end) for channel in (0, 1)]
    power = [float(np.mean(x**2)) if len(x) else 0.0 for x in pair]
    if min(power) < 1e-9 or min(map(len, pair)) < 4 * ECHO_TAPS:  # -90 dB, 32 ms
        return None
    quieter = int(np.argmin(power))
    source = _narrow(audio, 1 - quieter, max(0.0, start - MAX_DELAY), end + MAX_DELAY)
    share = _explained(pair[quieter], source)
    return Shared(quieter, share, 10 * float(np.log10(power[1 - quieter] / power[quieter])))


def _narrow(audio: Audio, channel: int, start: float, end: float) -> npt.NDArray[np.float64]:
    from scipy.signal import resample_poly

    samples = audio.cut(channel, start, end)
    if not len(samples):
        return np.zeros(0)
    return np.asarray(resample_poly(samples.astype(np.float64), 1, SAMPLE_RATE // ECHO_RATE))


def _explained(target: npt.NDArray[np.float64], source: npt.NDArray[np.float64]) -> float:
    """Return the share of `target`'s power that a filtered part of the longer `source` explains."""
    from scipy.signal import correlate

    half = ECHO_TAPS // 2
    padded = np.pad(source, (half, half + max(0, len(target) - len(source))))
    correlation = np.abs(correlate(padded, target, mode="valid", method="fft"))
    place = int(np.clip(np.argmax(correlation), half, max(half, len(padded) - len(target) - half)))
    columns = [padded[place + lag : place + lag + len(target)] for lag in range(-half, half + 1)]
    length = min(map(len, columns))
    matrix = np.stack([column[:length] for column in columns], axis=1)
    reference = target[:length]
    weights, *_ = np.linalg.lstsq(matrix, reference, rcond=1e-6)
    residual = float(np.mean((reference - matrix @ weights) ** 2))
    return float(np.clip(1 - residual / max(float(np.mean(reference**2)), 1e-30), 0, 1))
