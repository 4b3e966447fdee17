"""Sound, speech and texts by hand, for the tests of the safety net."""

import numpy as np

from pipeline.domain.speech import (
    SAMPLE_RATE,
    AudioAnalysis,
    AudioInMemory,
    Chunk,
    ChunkText,
    Layout,
    LayoutKind,
    Span,
    Word,
)

SECONDS = 12.0


def sounding(*stretches, channels=1, seconds=SECONDS, seed=1):
    """Noise like speech in level where `stretches` (channel, start, end) say so, and near silence elsewhere."""
    random = np.random.default_rng(seed)
    samples = random.normal(0, 3, (channels, round(seconds * SAMPLE_RATE)))
    for channel, start, end in stretches:
        first, last = round(start * SAMPLE_RATE), round(end * SAMPLE_RATE)
        samples[channel, first:last] += random.normal(0, 3000, last - first)
    return AudioInMemory(np.clip(samples, -32768, 32767).astype(np.int16))


def heard_as(speech, seconds=SECONDS, labels=()):
    kind = LayoutKind.STEREO if len(speech) == 2 else LayoutKind.MONO
    layout = Layout(kind, len(speech), len(speech), 1.0, {}, "by hand")
    return AudioAnalysis(layout, seconds, tuple(tuple(Span(*s) for s in spans) for spans in speech), (), (), labels)


def said(sentence, start, end, channel=0, chunk=None, **score):
    """A window whose words share start..end equally."""
    words = sentence.split()
    step = (end - start) / max(1, len(words))
    timed = tuple(Word(start + i * step, start + (i + 1) * step, word, 0.9) for i, word in enumerate(words))
    score = {"mean_log_probability": -0.2, "no_speech_probability": 0.01, "compression": 1.0, **score}
    return ChunkText(chunk or Chunk(channel, start, end, "en"), "en", 1.0, timed, **score)


def words_of(texts):
    return [word.text for text in texts for word in text.words]
