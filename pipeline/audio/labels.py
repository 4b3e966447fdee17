"""What every moment of a channel holds: speech, silence, or one of the sounds of the telephone network.

The speech detector says where speech is; its word is overruled only by what no voice can make: tones too steady and
pure, keys, a moment it doubts itself inside music. When in doubt it is speech. What it leaves is told apart by tones,
music, and level.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.audio import keys, music, tones
from pipeline.audio.detector import FRAME, Probabilities
from pipeline.audio.frames import HOP, STEP, Frames, measure
from pipeline.domain.speech import SAMPLE_RATE, Audio, Label, LabelKind, Span

QUIET = -50.0  # dBFS; below it nobody would call it noise
HUM = 6.0  # dB by which what lies below the telephone band is louder
STEADY_MOMENT = 0.5  # seconds over which noise and silence are told apart
SHORTEST = 0.2  # seconds; shorter pieces of silence and noise join what is before them
KEYS_APART = 2.0  # seconds between keys of one number
SURE_TONE = 0.5  # seconds; what voices hold is shorter
SOFTER = 15.0  # dB below the tones
SPEECH_FROM = 0.3  # the detector's probability; only to see whether it heard more than a tone

Mask = npt.NDArray[np.bool_]


def label(
    audio: Audio, speech: Sequence[Sequence[Span]], probabilities: Sequence[Probabilities]
) -> tuple[tuple[Label, ...], ...]:
    """For each channel its labels, from 0 to the duration, without gaps or overlap.

    `speech` holds the detector's spans, `probabilities` its judgement of each 32 ms; both by channel. An empty
    recording has no labels. Memory: some figures per 20 ms of one channel at a time, 80 MB in six hours.
    """
    return tuple(
        _label_channel(audio, channel, spans, probability)
        for channel, (spans, probability) in enumerate(zip(speech, probabilities, strict=True))
    )


def speech_of(labels: Sequence[Label]) -> tuple[Span, ...]:
    """The spans that are speech."""
    return tuple(Span(label.start, label.end) for label in labels if label.kind is LabelKind.SPEECH)


@dataclass(slots=True)
class _Canvas:
    """Frames to paint on: each holds the index of what was painted there last."""

    painted: npt.NDArray[np.int32]
    events: list[Label] = field(default_factory=list)  # kind, confidence, detail; their times are not used

    def paint(self, where: Mask | slice, kind: LabelKind, confidence: float, detail: str | None = None) -> None:
        self.events.append(Label(0, 0, kind, round(min(1.0, max(0.0, confidence)), 3), detail))
        self.painted[where] = len(self.events) - 1

    def labels(self, duration: float) -> tuple[Label, ...]:
        edges = [0, *(np.flatnonzero(np.diff(self.painted)) + 1).tolist(), len(self.painted)]
        found: list[Label] = []
        for first, last in pairwise(edges):
            event = self.events[self.painted[first]]
            start, end = first * HOP / SAMPLE_RATE, min(last * HOP / SAMPLE_RATE, duration)
            if found and _joins(found[-1], event, end - start):
                found[-1] = replace(found[-1], end=end)
            else:
                found.append(replace(event, start=start, end=end))
        return tuple(found)


def _joins(before: Label, event: Label, seconds: float) -> bool:
    """Whether what follows belongs to the label before it: the same, or too short to count for itself."""
    passing = event.kind in (LabelKind.SILENCE, LabelKind.NOISE) and seconds < SHORTEST and not event.detail
    return passing or (before.kind is event.kind and before.detail == event.detail)


def _label_channel(
    audio: Audio, channel: int, speech: Sequence[Span], probabilities: Probabilities
) -> tuple[Label, ...]:
    frames = measure(audio, channel)
    if not len(frames):
        return ()
    canvas = _Canvas(np.zeros(len(frames), np.int32))
    spoken = _mask(speech, len(frames))
    signals = tones.signals(tones.find(frames))
    pressed = _numbers(keys.find(audio, channel))
    signals = [signal for signal in signals if not any(_overlap(signal, number) for number in pressed)]
    signals = [replace(signal, network=signal.network or _quiet_pauses(signal, frames)) for signal in signals]
    certain = [signal for signal in signals if _certain(signal)]
    tone = _sounding(certain, len(frames)) | _pressed(pressed, len(frames))
    playing = music.find(frames, (spoken & ~tone) | _sounding([s for s in signals if s.network], len(frames)))
    _paint_ground(canvas, frames, spoken | _sounding(signals, len(frames)) | tone | playing)
    canvas.paint(playing, LabelKind.MUSIC, float(np.mean(frames.lines[playing])) * 1.5 if playing.any() else 0)
    signals = [signal for signal in signals if signal.network or not _within(signal, playing)]
    pressed = [number for number in pressed if not playing[_frame(number[0].start)]]
    tone &= ~playing
    kept = _speech_frames(speech, probabilities, frames, tone, playing)
    for signal in signals:
        _paint_signal(canvas, signal, kept, frames)
    for number in pressed:
        _paint_number(canvas, number, kept)
    _paint_speech(canvas, kept, probabilities)
    return canvas.labels(audio.duration)


def _paint_ground(canvas: _Canvas, frames: Frames, other: Mask) -> None:
    """Silence, noise and hum, by level over half a second; `other` holds what is neither, and does not count."""
    counted = ~_widened(other, 2)  # a window of 64 ms reaches beyond its frame
    band, low = _mean(10 ** (frames.level / 10), counted), _mean(10 ** (frames.low / 10), counted)
    canvas.paint(slice(None), LabelKind.SILENCE, 0.9)
    canvas.paint(10 * np.log10(band + low) > QUIET, LabelKind.NOISE, 0.7)
    hum = (10 * np.log10(low) > QUIET) & (10 * np.log10(low) > 10 * np.log10(band) + HUM)
    canvas.paint(hum, LabelKind.NOISE, 0.7, "hum")


def _mean(power: npt.NDArray[np.floating], counted: Mask) -> npt.NDArray[np.float64]:
    """Over `STEADY_MOMENT`, of the frames that count."""
    from scipy.ndimage import uniform_filter1d

    width = round(STEADY_MOMENT * STEP)
    sums = uniform_filter1d(np.where(counted, power, 0).astype(np.float64), width, mode="nearest")
    share = uniform_filter1d(counted.astype(np.float64), width, mode="nearest")
    return np.asarray(np.maximum(sums / np.maximum(share, 0.5 / width), 1e-12))


def _mask(spans: Sequence[Span], count: int) -> Mask:
    mask = np.zeros(count, bool)
    for span in spans:
        mask[int(span.start * STEP) : int(np.ceil(span.end * STEP - 1e-6))] = True
    return mask


def _frame(seconds: float) -> int:
    return int(seconds * STEP)


def _numbers(found: Sequence[keys.Key]) -> list[list[keys.Key]]:
    """Keys that follow each other."""
    numbers: list[list[keys.Key]] = []
    for key in found:
        if numbers and key.start - numbers[-1][-1].end <= KEYS_APART:
            numbers[-1].append(key)
        else:
            numbers.append([key])
    return numbers


def _overlap(signal: tones.Signal, number: Sequence[keys.Key]) -> bool:
    """A key held long is a tone as well; a beep beside it is not its affair."""
    return any(
        tone.first < _frame(key.end) + 2 and tone.last > _frame(key.start) - 2
        for tone in signal.tones
        for key in number
    )


def _certain(signal: tones.Signal) -> bool:
    """Whether it overrules the speech detector."""
    return signal.network or any(tone.seconds >= SURE_TONE for tone in signal.tones)


def _quiet_pauses(signal: tones.Signal, frames: Frames) -> bool:
    """Whether most of what lies between the tones of a ring or a busy signal is far softer, as in no piece of music."""
    if signal.kind not in (LabelKind.RINGBACK, LabelKind.BUSY):
        return False
    pauses = [frames.level[a.last + 3 : b.first - 3] for a, b in pairwise(signal.tones)]
    between = np.concatenate(pauses) if pauses else np.zeros(0)
    if not len(between):
        return False
    sounding = np.median(np.concatenate([frames.level[tone.first : tone.last] for tone in signal.tones]))
    return bool(np.mean(between < sounding - SOFTER) > 0.5)


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
            mask[_frame(key.start) : _frame(key.end) + 1] = True
    return mask


def _within(signal: tones.Signal, playing: Mask) -> bool:
    return bool(np.mean(playing[signal.tones[0].first : signal.tones[-1].last]) > 0.5)


def _speech_frames(
    speech: Sequence[Span], probabilities: Probabilities, frames: Frames, tone: Mask, playing: Mask
) -> Mask:
    """The detector's spans without what is certainly a tone, or a moment of music."""
    count = len(frames)
    judged = probabilities[np.minimum((np.arange(count) * HOP + HOP // 2) // FRAME, len(probabilities) - 1)]
    kept = np.zeros(count, bool)
    near = _widened(tone, 5)  # the detector remembers a tone for a moment
    for span in speech:
        first, last = int(span.start * STEP), min(count, int(np.ceil(span.end * STEP - 1e-6)))
        heard = np.flatnonzero(judged[first:last] >= SPEECH_FROM)
        core = (first + int(heard[0]), first + int(heard[-1]) + 1) if len(heard) else (first, last)
        if music.mistaken(frames, playing, *core, float(np.mean(judged[slice(*core)]))):
            continue
        kept[first:last] = ~tone[first:last]
        if tone[first:last].any():  # of what is left beside the tone, pieces that are only its padding go
            for a, b in music.runs(kept[first:last]):
                piece = slice(first + a, first + b)
                if not (judged[piece] >= SPEECH_FROM)[~near[piece]].any():
                    kept[piece] = False
    return kept


def _widened(mask: Mask, reach: int) -> Mask:
    from scipy.ndimage import binary_dilation

    return np.asarray(binary_dilation(mask, iterations=reach)) if mask.any() else mask


def _paint_signal(canvas: _Canvas, signal: tones.Signal, speech: Mask, frames: Frames) -> None:
    """A telephone that rings does so in its pauses too, unless somebody speaks in them."""
    whole = np.zeros(len(speech), bool)
    for tone in signal.tones:
        whole[tone.first : tone.last] = True
    for before, after in pairwise(signal.tones):
        if not speech[before.last : after.first].any():
            whole[before.last : after.first] = True
    confidence = float(np.mean(frames.share_both[signal.tones[0].first : signal.tones[0].last]))
    canvas.paint(whole, signal.kind, confidence, signal.detail)


def _paint_number(canvas: _Canvas, number: Sequence[keys.Key], speech: Mask) -> None:
    """Keys with the pauses between them; where somebody speaks between two, the number has two labels."""
    parts: list[list[keys.Key]] = [[number[0]]]
    for before, after in pairwise(number):
        if speech[_frame(before.end) + 1 : _frame(after.start)].any():
            parts.append([after])
        else:
            parts[-1].append(after)
    for part in parts:
        where = slice(_frame(part[0].start), _frame(part[-1].end) + 1)
        canvas.paint(where, LabelKind.DTMF, 0.95, "".join(key.digit for key in part))


def _paint_speech(canvas: _Canvas, kept: Mask, probabilities: Probabilities) -> None:
    for first, last in music.runs(kept):
        judged = probabilities[first * HOP // FRAME : max(first * HOP // FRAME + 1, last * HOP // FRAME)]
        canvas.paint(slice(first, last), LabelKind.SPEECH, float(np.mean(judged)) if len(judged) else 0.5)
