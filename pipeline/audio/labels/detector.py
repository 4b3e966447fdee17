import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.speech import SAMPLE_RATE, Audio, Span
from pipeline.voice.activity import FRAME, Probabilities, probabilities, runs

PADDING = 0.2  # seconds added on both sides of each span of speech
MIN_SILENCE = 0.5  # seconds; a shorter pause does not end a span of speech
MIN_SPEECH = 0.1  # seconds; shorter speech, before padding, is dropped


class SpeechOptions(BaseModel):
    """Options of speech detection (Silero VAD from faster-whisper)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Probability from which speech begins. 0.5 misses much of 8 kHz telephone speech.
    threshold: float = Field(0.3, gt=0, lt=1)


def activity(audio: Audio, channel: int) -> Probabilities:
    """Return the probability of speech in each 32 ms of one channel; see `probabilities`. Raises `StorageError`."""

    def read(first: int, last: int) -> npt.NDArray[np.float32]:
        return audio.read(channel, first, last).astype(np.float32) / np.float32(32768)

    return probabilities(read, audio.length)


def spans(probable: Probabilities, length: int, options: SpeechOptions) -> tuple[Span, ...]:
    """Return padded spans of speech, ordered, not overlapping, inside a recording of `length` samples.

    The rules are those of `voice.activity.runs`; two spans that padding would join meet in the middle.
    """
    frame, duration = FRAME / SAMPLE_RATE, length / SAMPLE_RATE
    speech = runs(probable, options.threshold, MIN_SILENCE)
    intervals = [(run.first * frame, min(run.last * frame, duration)) for run in speech]
    intervals = [(start, end) for start, end in intervals if end - start > MIN_SPEECH]
    padded = []
    for i, (start, end) in enumerate(intervals):
        before = intervals[i - 1][1] if i else -PADDING
        after = intervals[i + 1][0] if i + 1 < len(intervals) else duration + PADDING
        first = max(0.0, start - min(PADDING, max(0.0, (start - before) / 2)))
        padded.append(Span(first, min(duration, end + min(PADDING, max(0.0, (after - end) / 2)))))
    return tuple(padded)
