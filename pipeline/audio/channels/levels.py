from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE, Audio

Floats = npt.NDArray[np.float32]
Samples = npt.NDArray[np.int16]

FRAME = 320  # samples, 20 ms
BLOCK = FRAME * 3000  # samples, a minute: read at a time
LOWEST, HIGHEST = 250, 3400  # Hz: telephone speech without hum and hiss
QUIET_DB = -65.0  # of full scale: below it a channel is silent
NOTHING_DB = -110.0  # digital silence
RISE_DB = 6.0  # over a channel's noise floor: it carries sound
SHOWS_FLOOR = 50  # frames, 1 s; a shorter recording may be a single word
LIVE_SECONDS = 0.3  # min. sound of a live channel


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """Sound above a channel's noise floor. `levels` in dB of full scale and `frames` have one entry per 20 ms."""

    levels: Floats
    frames: npt.NDArray[np.bool_]
    floor: float  # dB of full scale

    @property
    def seconds(self) -> float:
        return float(self.frames.sum()) * FRAME / SAMPLE_RATE

    @property
    def loudest(self) -> float:
        """Level of the loudest 20 ms in dB of full scale; digital silence if empty."""
        return float(self.levels.max(initial=NOTHING_DB))

    @property
    def live(self) -> bool:
        return self.seconds >= LIVE_SECONDS


def activity(audio: Audio, channel: int) -> Activity:
    """Find sound above a channel's noise floor; hiss and hum alone do not count."""
    levels = frame_levels(audio, channel)
    if not len(levels):
        return Activity(levels, np.zeros(0, np.bool_), QUIET_DB)
    recorded = _recorded(levels)
    floor = max(QUIET_DB, float(np.percentile(recorded, 10))) if len(recorded) >= SHOWS_FLOOR else QUIET_DB
    rising = levels > floor + RISE_DB
    neighbors = np.pad(rising, 1)
    lasting = rising & (neighbors[:-2] | neighbors[2:])  # a click is one frame; speech lasts
    return Activity(levels, lasting, floor)


def _recorded(levels: Floats) -> Floats:
    """Trim the digital silence around a leg that begins later or ends earlier than the other one."""
    sounding = np.flatnonzero(levels > NOTHING_DB)
    return levels[sounding[0] : sounding[-1] + 1] if len(sounding) else levels


def frame_levels(audio: Audio, channel: int) -> Floats:
    """Return the level of each whole 20 ms of the telephone band, in dB of full scale; reads a minute at a time."""
    levels = []
    for start in range(0, audio.length // FRAME * FRAME, BLOCK):
        block = in_band(audio.read(channel, start, start + BLOCK))
        frames = block[: len(block) // FRAME * FRAME].reshape(-1, FRAME)
        levels.append(10 * np.log10(np.mean(frames**2, axis=1) + 1e-12))
    return np.concatenate(levels).astype(np.float32) if levels else np.zeros(0, np.float32)


def padded(audio: Audio, channel: int, first: int, last: int) -> npt.NDArray[np.int16]:
    """Return samples `first` to `last`, with silence outside the recording."""
    inside = audio.read(channel, first, last)
    if len(inside) == last - first:
        return inside
    before = min(max(0, -first), last - first)
    return np.pad(inside, (before, last - first - before - len(inside)))


def in_band(samples: Samples) -> Floats:
    """Return samples as floats in -1..1 between 250 and 3400 Hz (Butterworth, second order on each side)."""
    from scipy.signal import sosfilt

    filters, settled = _filters()
    floats = samples.astype(np.float32) / np.float32(32768)
    filtered: Floats = sosfilt(filters, floats, zi=settled * (floats[0] if len(floats) else 0))[0]
    return filtered


@cache
def _filters() -> tuple[Floats, Floats]:
    """Design the filters once per process, since that is slow; the second result is the state without a click."""
    from scipy.signal import butter, sosfilt_zi

    filters = butter(2, (LOWEST, HIGHEST), "bandpass", fs=SAMPLE_RATE, output="sos").astype(np.float32)
    return filters, sosfilt_zi(filters).astype(np.float32)
