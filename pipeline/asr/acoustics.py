"""What the sound says about words: how loud it is where they are, and whether one channel is the other's echo.

Nothing here holds more than one chunk's samples; what is kept of it are levels, 20 a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE, Audio, Chunk, Span

FRAME = 800  # samples, 50 ms
STEP = FRAME / SAMPLE_RATE  # seconds
QUIETEST_DB = -120.0
ECHO_RATE = 8_000  # Hz; a telephone carries no more
ECHO_TAPS = 64  # 8 ms around the delay: the line's own filter
MAX_DELAY = 0.8  # seconds by which an echo may lag
MAX_COMPARED_SECONDS = 4.0  # seconds of sound that are compared


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Levels of one chunk in dB of full scale, one for each 50 ms of its sound; of pauses left out it has none."""

    starts: npt.NDArray[np.float64]  # of the frames, in the recording's time, rising
    db: npt.NDArray[np.float64]

    def between(self, start: float, end: float) -> npt.NDArray[np.float64]:
        """The levels of the frames that touch start..end; may be empty."""
        first = int(np.searchsorted(self.starts, start - STEP, side="right"))
        return self.db[first : max(first, int(np.searchsorted(self.starts, end, side="left")))]

    def loud_seconds(self, spans: Sequence[Span], above: float) -> float:
        """Seconds within `spans` that are louder than `above` dB."""
        return sum(float((self.between(s.start, s.end) > above).sum()) for s in spans) * STEP


def levels(audio: Audio, chunk: Chunk) -> Levels:
    """The levels of a chunk; samples that are missing or zero count as -120 dB."""
    starts, levels_of_pieces = [], []
    for piece in chunk.sound:
        samples = audio.cut(chunk.channel, piece.start, piece.end).astype(np.float64)
        power = np.mean(np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME) ** 2, axis=1)
        starts.append(piece.start + np.arange(len(power)) * STEP)
        levels_of_pieces.append(np.maximum(10 * np.log10(power + 1e-30), QUIETEST_DB))
    return Levels(np.concatenate(starts), np.concatenate(levels_of_pieces))


def speech_level(of_chunks: Sequence[Levels]) -> float:
    """How loud a channel's speech is: the 90th percentile of its chunks' levels; -120 dB without any."""
    every = np.concatenate([x.db for x in of_chunks]) if of_chunks else np.zeros(0)
    return float(np.quantile(every, 0.9)) if len(every) else QUIETEST_DB


@dataclass(frozen=True, slots=True)
class Shared:
    """How much of the quieter channel is a filtered copy of the louder one in a stretch."""

    quieter: int  # channel
    share: float  # of its power that the other channel's sound, delayed and filtered, explains, 0..1
    difference_db: float  # by which it is quieter, at least 0


def shared(audio: Audio, start: float, end: float) -> Shared | None:
    """Predict the quieter of two channels from the louder one between two times; None where a channel is silent.

    Delay by cross-correlation up to 0.8 s, then a filter of 64 taps by least squares (at 8 kHz). Two people who say the
    same word at once share next to nothing: their waveforms differ. At most the first 4 s are compared.
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
    """The share of `target`'s power that a filtered part of the longer `source` explains."""
    from scipy.signal import correlate

    half = ECHO_TAPS // 2
    padded = np.pad(source, (half, half + max(0, len(target) - len(source))))
    correlation = np.abs(correlate(padded, target, mode="valid", method="fft"))
    place = int(np.clip(np.argmax(correlation), half, max(half, len(padded) - len(target) - half)))
    columns = [padded[place + lag : place + lag + len(target)] for lag in range(-half, half + 1)]
    length = min(map(len, columns))
    matrix = np.stack([column[:length] for column in columns], axis=1)
    wanted = target[:length]
    weights, *_ = np.linalg.lstsq(matrix, wanted, rcond=1e-6)
    left = float(np.mean((wanted - matrix @ weights) ** 2))
    return float(np.clip(1 - left / max(float(np.mean(wanted**2)), 1e-30), 0, 1))
