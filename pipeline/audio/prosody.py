"""Pitch, loudness and voicing of a party, in slices of half a second.

Pitch is measured as periodicity, by YIN (`yin.py`): a telephone carries nothing below 300 Hz, so the fundamental of
most voices is missing, while its period is still that of the harmonics. A frame is voiced if its normalized
autocorrelation at that period is high (Boersma 1993). Sound is read in blocks; six hours of speech need 17 MB of
figures per channel plus one block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.audio import yin
from pipeline.domain.speech import SAMPLE_RATE, Audio, Prosody, Slices, Span

SLICE = 0.5  # seconds
LOWEST, HIGHEST = 65.0, 500.0  # Hz, of speaking voices, including children
TROUGH = 0.2  # YIN's absolute threshold; at its usual 0.1 high voices were measured at half their pitch
VOICED_FROM = 0.7  # autocorrelation at the period
QUIET_DB = -60.0  # of full scale: a softer frame is not voiced
SPOKEN_FRAMES = 10  # min. number of speech frames of the 25 of a slice
PITCHED_FRAMES = 3  # min. number of voiced frames for a pitch
ENERGY_FLOOR = 1e-10  # power: -100 dBFS, used for digital silence

_RATE = 8000  # Hz, of a telephone; enough for pitch
_WINDOW, _HOP = 512, 160  # samples at that rate: 64 ms hold four periods of the lowest voice, 20 ms
_BLOCK = 30.0  # seconds read at a time
_MARGIN = 0.1  # seconds on either side, so that the frames at the edges are whole

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class PitchTrack:
    """One entry per 20 ms of speech, in order of time, all of one length."""

    time: npt.NDArray[np.float64]  # middle of the frame, seconds
    pitch: Floats  # Hz; meaningless where not voiced
    voiced: npt.NDArray[np.bool_]
    power: Floats  # mean square, full scale 1


def measure(audio: Audio, speech: Sequence[Sequence[Span]]) -> Prosody:
    """Measure the voice of each channel in its `speech` spans, which are in order of time.

    A channel without speech has no slices; frames beyond the end of the recording are skipped. Raises `StorageError`.
    """
    return Prosody(SLICE, tuple(slices(track(audio, channel, spans)) for channel, spans in enumerate(speech)))


def track(audio: Audio, channel: int, speech: Sequence[Span]) -> PitchTrack:
    """Measure pitch and power of every 20 ms of `speech` in one channel."""
    parts = [_frames(audio, channel, block, spans) for block, spans in _blocks(audio.duration, speech)]
    empty = PitchTrack(np.zeros(0), np.zeros(0, np.float32), np.zeros(0, np.bool_), np.zeros(0, np.float32))
    parts = parts or [empty]
    return PitchTrack(
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.pitch for part in parts]),
        np.concatenate([part.voiced for part in parts]),
        np.concatenate([part.power for part in parts]),
    )


def slices(track: PitchTrack) -> Slices:
    """Summarize the track in slices with rounded figures; drop slices with less than 0.2 s of speech."""
    rows: list[tuple[int, float | None, float | None, float, float]] = []
    index = np.floor(track.time / SLICE + 1e-6).astype(int)
    numbers, firsts = np.unique(index, return_index=True)
    for number, first, last in zip(numbers, firsts, np.append(firsts, len(index))[1:], strict=True):
        if last - first < SPOKEN_FRAMES:
            continue
        voiced = track.voiced[first:last]
        level = 10 * np.log10(max(ENERGY_FLOOR, float(track.power[first:last].mean())))
        pitch, spread = _pitch(track.pitch[first:last][voiced])
        rows.append((int(number), pitch, spread, round(level, 1), round(float(voiced.mean()), 2)))
    columns = zip(*rows, strict=True) if rows else ((),) * 5
    return Slices(*map(tuple, columns))


def _pitch(voiced: Floats) -> tuple[float | None, float | None]:
    """Return the median in Hz and half the span of the middle two thirds in semitones: a robust standard deviation."""
    if len(voiced) < PITCHED_FRAMES:
        return None, None
    low, middle, high = np.percentile(voiced, (16, 50, 84))
    return round(float(middle), 1), round(float(6 * np.log2(high / low)), 2)


def _blocks(duration: float, speech: Sequence[Span]) -> Iterator[tuple[float, list[Span]]]:
    """Yield the start of each block with speech, and its spans cut to the block."""
    first = 0
    for number in range(int(duration // _BLOCK) + 1):
        start, end = number * _BLOCK, min((number + 1) * _BLOCK, duration)
        while first < len(speech) and speech[first].end <= start:
            first += 1
        inside = []
        for span in speech[first:]:
            if span.start >= end:
                break
            inside.append(Span(max(span.start, start), min(span.end, end)))
        if inside:
            yield start, inside


def _frames(audio: Audio, channel: int, start: float, speech: list[Span]) -> PitchTrack:
    """Measure the frames of one block whose middle is in `speech`."""
    from scipy.signal import resample_poly

    wide = audio.cut(channel, start - _MARGIN, start + _BLOCK + _MARGIN)
    before = min(start, _MARGIN)
    sound = resample_poly(wide, _RATE, SAMPLE_RATE).astype(np.float32)
    count = (len(sound) - _WINDOW) // _HOP + 1
    if count < 1:  # too short to hold a frame
        sound = np.pad(sound, (0, _WINDOW - len(sound)))
        count = 1
    time = start - before + (np.arange(count) * _HOP + _WINDOW / 2) / _RATE
    in_speech = _inside(time, speech)
    windows = np.lib.stride_tricks.sliding_window_view(sound, _WINDOW)[::_HOP][:count][in_speech]
    pitch = yin.pitch(windows, _RATE, LOWEST, HIGHEST, TROUGH)
    power = np.mean(windows**2, axis=1)
    strength = _periodicity(windows, pitch)
    loud = power > 10 ** (QUIET_DB / 10)
    inside = (pitch > LOWEST * 1.02) & (pitch < HIGHEST * 0.98)  # at an edge YIN has no trough, only the edge
    return PitchTrack(time[in_speech], pitch, loud & inside & (strength >= VOICED_FROM), power)


def _inside(time: npt.NDArray[np.float64], speech: list[Span]) -> npt.NDArray[np.bool_]:
    """Mark the times inside `speech`, whose spans are in order and do not overlap."""
    starts, ends = [span.start for span in speech], [span.end for span in speech]
    at = np.searchsorted(starts, time, side="right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (time < np.asarray(ends)[np.maximum(at, 0)])
    return inside


def _periodicity(windows: Floats, pitch: Floats) -> Floats:
    """Return the normalized autocorrelation of each window at its period: -1..1, 0 without sound."""
    lag = np.clip(np.rint(_RATE / np.maximum(pitch, LOWEST)), 1, _WINDOW // 2).astype(int)
    half = np.arange(_WINDOW // 2)
    if not len(windows):
        return np.zeros(0, np.float32)
    rest = windows - windows.mean(axis=1, keepdims=True)
    first_half = rest[:, : _WINDOW // 2]
    delayed = np.take_along_axis(rest, lag[:, None] + half[None, :], axis=1)
    norm = np.sqrt((first_half**2).sum(axis=1) * (delayed**2).sum(axis=1))
    strength: Floats = ((first_half * delayed).sum(axis=1) / np.maximum(norm, 1e-9)).astype(np.float32)
    return strength
