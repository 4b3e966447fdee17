"""Labels for every moment of a channel: speech, silence, or a sound of the telephone network.

The speech detector finds speech, with the limits in `voice.py`. Everything else is classified by tones and keys, by
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

BETWEEN_WORDS = 0.5  # seconds of missing audio; a word may continue across a shorter gap


def label(audio: Audio, options: SpeechOptions) -> tuple[tuple[Label, ...], ...]:
    """Return each channel's labels, from 0 to the duration, without gaps or overlap.

    An empty recording has no labels. Channels are read in blocks; the figures per 20 ms that stay in memory took 38 MB
    per hour. Raises the errors of `Audio.read`.
    """
    return tuple(_label_channel(audio, channel, options) for channel in range(audio.channels))


def speech_of(labels: Sequence[Label]) -> tuple[Span, ...]:
    return tuple(Span(label.start, label.end) for label in labels if label.kind is LabelKind.SPEECH)


def events_of(labels: Sequence[Label]) -> tuple[Span, ...]:
    """Return the spans that are neither speech, silence nor noise: ringing, tones, keys, music, machines."""
    ground = (LabelKind.SPEECH, LabelKind.SILENCE, LabelKind.NOISE)
    return tuple(Span(label.start, label.end) for label in labels if label.kind not in ground)


def gaps_of(labels: Sequence[Label]) -> tuple[Span, ...]:
    """Return the gaps too long for a word to continue across them."""
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
    sounds = evidence.gather(audio, channel, frames, spoken)
    probabilities = voice.detect_again(
        audio, channel, probabilities, sounds.sounding() | (evidence.steady(frames) & ~spoken)
    )
    spans = detector.spans(probabilities, audio.length, options)
    speech = voice.frames_of(spans, probabilities, frames, sounds, options)
    canvas = Canvas(np.zeros(len(frames), np.int32))
    paint_ground(canvas, frames, speech | sounds.sounding())
    if sounds.playing.any():
        canvas.paint(sounds.playing, LabelKind.MUSIC, float(np.mean(frames.lines[sounds.playing])) * 1.5)
    canvas.paint(sounds.humming, LabelKind.NOISE, 0.6, "hum")
    for signal in sounds.signals:
        paint_signal(canvas, signal, speech, frames)
    for number in sounds.numbers:
        paint_number(canvas, number, speech)
    paint_gaps(canvas, [gap for gap in gaps if gap.duration < BETWEEN_WORDS])
    paint_speech(canvas, speech, probabilities)
    paint_gaps(canvas, [gap for gap in gaps if gap.duration >= BETWEEN_WORDS])  # padding does not reach into them
    # Dropouts cut into words, so the detector takes them for speech. Tones and music may stop abruptly.
    paint_gaps(canvas, [gap for gap in dropouts.find(audio, channel) if speech[int(gap.start * STEP) - 1]])
    return canvas.labels(audio.duration)
