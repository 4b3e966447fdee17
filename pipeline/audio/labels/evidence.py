from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.audio.labels import keys, music, tones
from pipeline.audio.labels.frames import STEP, Frames
from pipeline.domain.speech import Audio, LabelKind, Span

KEYS_APART = 2.0  # max. seconds between keys of one number
SURE_TONE = 0.5  # seconds; tones of voices are shorter
SURE_KEY = 0.06  # seconds; a shorter single key may be two notes of a piece
ALONE = 0.5  # seconds
SOFTER = 15.0  # dB below the tones
AUDIBLE = -50.0  # dBFS
STEADY_SECONDS, STEADY_DB = 1.0, 4.0  # duration and max. range of the constant level of a hiss or hum

Mask = npt.NDArray[np.bool_]  # one value per 20 ms frame
Number = list[keys.Key]


@dataclass(frozen=True, slots=True, eq=False)
class SoundEvidence:
    """The sounds of one channel; masks have a value per frame."""

    signals: tuple[tones.Signal, ...]
    numbers: tuple[Number, ...]  # keys that follow each other
    tone: Mask  # tones and keys that no voice can produce
    playing: Mask  # music
    humming: Mask  # machines with lines as steady as those of music

    def sounding(self) -> Mask:
        """Mark the frames with any of the sounds."""
        return self.playing | self.humming | self.tone | _sounding(self.signals, len(self.tone))


def gather(audio: Audio, channel: int, frames: Frames, spoken: Mask) -> SoundEvidence:
    """Detect the sounds of a channel; `spoken` marks frames that the speech detector took for speech."""
    count = len(frames)
    numbers = _numbers(keys.find(audio, channel))
    signals = [s for s in tones.signals(tones.find(frames)) if not any(_overlap(s, number) for number in numbers)]
    signals = [replace(s, network=s.network or _quiet_pauses(s, frames)) for s in signals]
    tone = _sounding([s for s in signals if _certain(s)], count) | _pressed(numbers, count)
    apart = [s for s in signals if s.network or _alone(s, frames)]
    reliable = [number for number in numbers if len(number) > 1 or number[0].end - number[0].start > SURE_KEY]
    playing = music.find(frames, (spoken & ~tone) | _sounding(apart, count) | _pressed(reliable, count))
    signals = [s for s in signals if s in apart or not _within(s, playing)]
    numbers = [number for number in numbers if not playing[frame_of(number[0].start)]]
    humming = music.machines(frames, playing)
    return SoundEvidence(tuple(signals), tuple(numbers), tone & ~playing, playing & ~humming, humming)


def steady(frames: Frames) -> Mask:
    """Mark sound of a constant level for a second or more, as in hiss and hum; speech is never that steady."""
    from scipy.ndimage import maximum_filter1d, minimum_filter1d

    width = round(STEADY_SECONDS * STEP)
    level = np.maximum(frames.level, frames.low)
    even = maximum_filter1d(level, width) - minimum_filter1d(level, width) < STEADY_DB
    even &= level > AUDIBLE
    return np.asarray(maximum_filter1d(even.astype(np.uint8), width).astype(bool))


def _numbers(pressed: Sequence[keys.Key]) -> list[Number]:
    numbers: list[Number] = []
    for key in pressed:
        if numbers and key.start - numbers[-1][-1].end <= KEYS_APART:
            numbers[-1].append(key)
        else:
            numbers.append([key])
    return numbers


def _overlap(signal: tones.Signal, number: Sequence[keys.Key]) -> bool:
    """Return whether a tone is a long key press; a beep next to a key is not."""
    return any(
        tone.first < frame_of(key.end) + 2 and tone.last > frame_of(key.start) - 2
        for tone in signal.tones
        for key in number
    )


def _certain(signal: tones.Signal) -> bool:
    return signal.network or any(tone.seconds >= SURE_TONE for tone in signal.tones)


def _quiet_pauses(signal: tones.Signal, frames: Frames) -> bool:
    """Return whether a ring or busy signal is much softer in most of its pauses, unlike any piece of music."""
    if signal.kind not in (LabelKind.RINGBACK, LabelKind.BUSY):
        return False
    pauses = [frames.level[a.last + 3 : b.first - 3] for a, b in pairwise(signal.tones)]
    between = np.concatenate(pauses) if pauses else np.zeros(0)
    if not len(between):
        return False
    sounding = np.median(np.concatenate([frames.level[tone.first : tone.last] for tone in signal.tones]))
    return bool(np.mean(between < sounding - SOFTER) > 0.5)


def _alone(signal: tones.Signal, frames: Frames) -> bool:
    """Return whether half a second before and after is much softer; a musical note has other notes next to it."""
    first, last, reach = signal.tones[0].first, signal.tones[-1].last, round(ALONE * STEP)
    surroundings = np.concatenate(
        [frames.level[max(0, first - reach) : max(0, first - 3)], frames.level[last + 3 : last + reach]]
    )
    sounding = np.median(frames.level[first : signal.tones[0].last])
    return not len(surroundings) or bool(np.mean(surroundings < sounding - SOFTER) > 0.9)


def _sounding(signals: Sequence[tones.Signal], count: int) -> Mask:
    mask = np.zeros(count, bool)
    for signal in signals:
        for tone in signal.tones:
            mask[tone.first : tone.last] = True
    return mask


def _pressed(numbers: Sequence[Sequence[keys.Key]], count: int) -> Mask:
    mask = np.zeros(count, bool)
    for number in numbers:
        for key in number:
            mask[frame_of(key.start) : frame_of(key.end) + 1] = True
    return mask


def _within(signal: tones.Signal, playing: Mask) -> bool:
    return bool(np.mean(playing[signal.tones[0].first : signal.tones[-1].last]) > 0.5)


def mask_of(spans: Sequence[Span], count: int) -> Mask:
    """Mark every frame that a span touches."""
    mask = np.zeros(count, bool)
    for span in spans:
        mask[int(span.start * STEP) : int(np.ceil(span.end * STEP - 1e-6))] = True
    return mask


def frame_of(seconds: float) -> int:
    return int(seconds * STEP)


def widened(mask: Mask, reach: int) -> Mask:
    from scipy.ndimage import binary_dilation

    return np.asarray(binary_dilation(mask, iterations=reach)) if mask.any() else mask
