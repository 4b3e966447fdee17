"""Labels are painted, later over earlier, on frames of 20 ms, so they can neither overlap nor leave gaps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.audio.labels import keys, tones
from pipeline.audio.labels.evidence import Mask, frame_of, widened
from pipeline.audio.labels.frames import HOP, STEP, Frames
from pipeline.audio.labels.music import runs
from pipeline.domain.speech import SAMPLE_RATE, Label, LabelKind, Span
from pipeline.voice.activity import FRAME, Probabilities

QUIET = -50.0  # dBFS; softer sound is silence
HUM = 6.0  # dB by which the power below the telephone band is higher
STEADY_MOMENT = 0.5  # seconds over which noise and silence are separated
MIN_SECONDS = 0.2  # seconds; shorter pieces of silence and noise join the label before them


@dataclass(slots=True)
class Canvas:
    """Frames to paint on; `painted` has the index in `events` of the last paint per frame."""

    painted: npt.NDArray[np.int32]
    events: list[Label] = field(default_factory=list)  # kind, confidence, detail; their times are not used

    def paint(self, where: Mask | slice, kind: LabelKind, confidence: float, detail: str | None = None) -> None:
        """Paint frames over earlier paint; `confidence` is clipped to 0..1."""
        self.events.append(Label(0, 0, kind, round(min(1.0, max(0.0, confidence)), 3), detail))
        self.painted[where] = len(self.events) - 1

    def labels(self, duration: float) -> tuple[Label, ...]:
        """Return the labels in order, up to the duration; equal neighbors are merged."""
        edges = [0, *(np.flatnonzero(np.diff(self.painted)) + 1).tolist(), len(self.painted)]
        labels: list[Label] = []
        for first, last in pairwise(edges):
            event = self.events[self.painted[first]]
            start, end = first * HOP / SAMPLE_RATE, min(last * HOP / SAMPLE_RATE, duration)
            if labels and _joins(labels[-1], event, end - start):
                labels[-1] = replace(labels[-1], end=end)
            else:
                labels.append(replace(event, start=start, end=end))
        return tuple(labels)


def _joins(before: Label, event: Label, seconds: float) -> bool:
    """Return whether a label continues the one before it: the same, or too short for a label."""
    passing = event.kind in (LabelKind.SILENCE, LabelKind.NOISE) and seconds < MIN_SECONDS and not event.detail
    return passing or (before.kind is event.kind and before.detail == event.detail)


def paint_ground(canvas: Canvas, frames: Frames, other: Mask) -> None:
    """Paint silence, noise and hum by the level over half a second; `other` marks frames that are neither."""
    counted = ~widened(other, 2)  # a window of 64 ms reaches beyond its frame
    band, low = _mean(10 ** (frames.level / 10), counted), _mean(10 ** (frames.low / 10), counted)
    canvas.paint(slice(None), LabelKind.SILENCE, 0.9)
    canvas.paint(10 * np.log10(band + low) > QUIET, LabelKind.NOISE, 0.7)
    hum = (10 * np.log10(low) > QUIET) & (10 * np.log10(low) > 10 * np.log10(band) + HUM)
    canvas.paint(hum, LabelKind.NOISE, 0.7, "hum")


def _mean(power: npt.NDArray[np.floating], counted: Mask) -> npt.NDArray[np.float64]:
    """Average over `STEADY_MOMENT`, counting only some frames."""
    from scipy.ndimage import uniform_filter1d

    width = round(STEADY_MOMENT * STEP)
    sums = uniform_filter1d(np.where(counted, power, 0).astype(np.float64), width, mode="nearest")
    share = uniform_filter1d(counted.astype(np.float64), width, mode="nearest")
    return np.asarray(np.maximum(sums / np.maximum(share, 0.5 / width), 1e-12))


def paint_signal(canvas: Canvas, signal: tones.Signal, speech: Mask, frames: Frames) -> None:
    """Paint a signal including the pauses of a ring, except pauses with speech."""
    whole = np.zeros(len(speech), bool)
    for tone in signal.tones:
        whole[tone.first : tone.last] = True
    for before, after in pairwise(signal.tones):
        if not speech[before.last : after.first].any():
            whole[before.last : after.first] = True
    confidence = float(np.mean(frames.share_both[signal.tones[0].first : signal.tones[0].last]))
    canvas.paint(whole, signal.kind, confidence, signal.detail)


def paint_number(canvas: Canvas, number: Sequence[keys.Key], speech: Mask) -> None:
    """Paint keys with the pauses between them; speech between two keys splits the label."""
    parts: list[list[keys.Key]] = [[number[0]]]
    for before, after in pairwise(number):
        if speech[frame_of(before.end) + 1 : frame_of(after.start)].any():
            parts.append([after])
        else:
            parts[-1].append(after)
    for part in parts:
        where = slice(frame_of(part[0].start), frame_of(part[-1].end) + 1)
        canvas.paint(where, LabelKind.DTMF, 0.95, "".join(key.digit for key in part))


def paint_gaps(canvas: Canvas, gaps: Sequence[Span]) -> None:
    for gap in gaps:
        canvas.paint(slice(math.ceil(gap.start * STEP), math.floor(gap.end * STEP)), LabelKind.GAP, 1.0)


def paint_speech(canvas: Canvas, speech: Mask, probabilities: Probabilities) -> None:
    for first, last in runs(speech):
        probability = probabilities[first * HOP // FRAME : max(first * HOP // FRAME + 1, last * HOP // FRAME)]
        canvas.paint(slice(first, last), LabelKind.SPEECH, float(np.mean(probability)) if len(probability) else 0.5)
