"""What every moment of a channel holds: speech, silence, or one of the sounds of the telephone network.

The speech detector says where speech is; `voice.py` has its limits. What it leaves is classified by tones and keys, by
music, and by level.
"""

from collections.abc import Sequence

import numpy as np

from pipeline.audio.labels import detector, dropouts, evidence, voice
from pipeline.audio.labels.canvas import Canvas, paint_gaps, paint_ground, paint_number, paint_signal, paint_speech
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.audio.labels.evidence import mask_of
from pipeline.audio.labels.frames import STEP, measure
from pipeline.domain.speech import Audio, Label, LabelKind, Span

BETWEEN_WORDS = 0.5  # seconds of missing audio: over less a word may go on


def label(audio: Audio, options: SpeechOptions) -> tuple[tuple[Label, ...], ...]:
    """For each channel its labels, from 0 to the duration, without gaps or overlap.

    An empty recording has no labels. Channels are read in blocks; what is kept of one, figures per 20 ms, took
    38 MB an hour. Raises what `Audio.read` raises.
    """
    return tuple(_label_channel(audio, channel, options) for channel in range(audio.channels))


def speech_of(labels: Sequence[Label]) -> tuple[Span, ...]:
    """The spans that are speech."""
    return tuple(Span(label.start, label.end) for label in labels if label.kind is LabelKind.SPEECH)


def events_of(labels: Sequence[Label]) -> tuple[Span, ...]:
    """The spans that are neither speech nor the absence of it: ringing, tones, keys, music, machines."""
    ground = (LabelKind.SPEECH, LabelKind.SILENCE, LabelKind.NOISE)
    return tuple(Span(label.start, label.end) for label in labels if label.kind not in ground)


def gaps_of(labels: Sequence[Label]) -> tuple[Span, ...]:
    """The gaps that no word lasts through."""
    gaps = (label for label in labels if label.kind is LabelKind.GAP)
    return tuple(Span(gap.start, gap.end) for gap in gaps if gap.end - gap.start >= BETWEEN_WORDS)


def _label_channel(audio: Audio, channel: int, options: SpeechOptions) -> tuple[Label, ...]:
    if not audio.length:
        return ()
    gaps = audio.gaps(channel)
    if gaps == (Span(0.0, audio.duration),):  # the recording of this leg could not be fetched
        return (Label(0.0, audio.duration, LabelKind.GAP),)
    frames = measure(audio, channel)
    probabilities = detector.activity(audio, channel)
    spoken = mask_of(detector.spans(probabilities, audio.length, options), len(frames))
    found = evidence.gather(audio, channel, frames, spoken)
    probabilities = voice.listen_again(
        audio, channel, probabilities, found.sounding() | (evidence.steady(frames) & ~spoken)
    )
    spans = detector.spans(probabilities, audio.length, options)
    speech = voice.frames_of(spans, probabilities, frames, found, options)
    canvas = Canvas(np.zeros(len(frames), np.int32))
    paint_ground(canvas, frames, speech | found.sounding())
    if found.playing.any():
        canvas.paint(found.playing, LabelKind.MUSIC, float(np.mean(frames.lines[found.playing])) * 1.5)
    canvas.paint(found.humming, LabelKind.NOISE, 0.6, "hum")
    for signal in found.signals:
        paint_signal(canvas, signal, speech, frames)
    for number in found.numbers:
        paint_number(canvas, number, speech)
    paint_gaps(canvas, [gap for gap in gaps if gap.duration < BETWEEN_WORDS])
    paint_speech(canvas, speech, probabilities)
    paint_gaps(canvas, [gap for gap in gaps if gap.duration >= BETWEEN_WORDS])  # padding does not reach into them
    # They cut into words: the detector takes them for a part of these. Tones and music may stop at once.
    paint_gaps(canvas, [gap for gap in dropouts.find(audio, channel) if speech[int(gap.start * STEP) - 1]])
    return canvas.labels(audio.duration)
