"""How probable speech is, moment by moment (Silero VAD as it comes with faster-whisper), and the spans made of it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.speech import SAMPLE_RATE, Audio, Span

FRAME = 512  # samples, 32 ms: what the detector judges at a time
CONTEXT = 64  # samples before a frame that the detector hears with it
BLOCK = 1000  # frames judged at a time: what it holds meanwhile grows with them, 40 MB here
PADDING = 0.2  # seconds added on both sides of each span of speech
MIN_SILENCE = 0.5  # seconds; a shorter pause does not end a span of speech
MIN_SPEECH = 0.1  # seconds; shorter speech, before padding, is dropped
HYSTERESIS = 0.15  # speech that has begun goes on until its probability is this far below the threshold

Probabilities = npt.NDArray[np.float32]  # shape (frames,), 0..1


class SpeechOptions(BaseModel):
    """How speech is detected (Silero VAD, as it comes with faster-whisper)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Probability from which speech begins. 0.5 misses much of 8 kHz telephone speech.
    threshold: float = Field(0.3, gt=0, lt=1)


def activity(audio: Audio, channel: int) -> Probabilities:
    """The probability of speech in each 32 ms of one channel; the last frame may be partly outside the recording.

    Reads half a minute at a time, and the detector goes on where it stopped, as if it had heard all of it at once. An
    empty recording has no frames. May raise `StorageError`.
    """
    from faster_whisper.vad import get_vad_model

    detector = get_vad_model().session  # its own call takes a whole recording, and forgets it
    hidden, cell = np.zeros((2, 1, 1, 128), np.float32)
    before = np.zeros(CONTEXT, np.float32)
    found = [np.zeros(0, np.float32)]
    for first in range(0, audio.length, BLOCK * FRAME):
        samples = audio.read(channel, first, first + BLOCK * FRAME)
        frames = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME).astype(np.float32) / np.float32(32768)
        contexts = np.concatenate([before[None], frames[:-1, -CONTEXT:]])
        before = frames[-1, -CONTEXT:]
        given = {"input": np.concatenate([contexts, frames], axis=1), "h": hidden, "c": cell}
        probable, hidden, cell = detector.run(None, given)
        found.append(probable.reshape(-1))
    return np.concatenate(found)


class _Run(NamedTuple):
    """Frames `first` to `last` (exclusive) that are speech."""

    first: int
    last: int


def spans(probabilities: Probabilities, length: int, options: SpeechOptions) -> tuple[Span, ...]:
    """Spans of speech in order, not overlapping, padded, inside a recording of `length` samples.

    The rules are those of Silero's own `get_speech_timestamps`: speech begins at the threshold, ends `HYSTERESIS` below
    it if it stays there for the shortest pause; two spans that padding would join meet in the middle.
    """
    frame, duration = FRAME / SAMPLE_RATE, length / SAMPLE_RATE
    runs = [(r.first * frame, min(r.last * frame, duration)) for r in _runs(probabilities, options)]
    runs = [(start, end) for start, end in runs if end - start > MIN_SPEECH]
    found = []
    for i, (start, end) in enumerate(runs):
        before = runs[i - 1][1] if i else -PADDING
        after = runs[i + 1][0] if i + 1 < len(runs) else duration + PADDING
        first = max(0.0, start - min(PADDING, max(0.0, (start - before) / 2)))
        found.append(Span(first, min(duration, end + min(PADDING, max(0.0, (after - end) / 2)))))
    return tuple(found)


def _runs(probabilities: Probabilities, options: SpeechOptions) -> Iterator[_Run]:
    """Speech by threshold and hysteresis, pauses that are too short filled."""
    lower = max(options.threshold - HYSTERESIS, 0.01)
    pause = MIN_SILENCE * SAMPLE_RATE / FRAME
    first, quiet = -1, -1  # where speech began, and where it may have ended
    for i in np.flatnonzero((probabilities >= options.threshold) | (probabilities < lower)).tolist():
        if probabilities[i] >= options.threshold:
            first, quiet = (i if first < 0 else first), -1
        elif first >= 0:
            quiet = i if quiet < 0 else quiet
            if i - quiet >= pause:
                yield _Run(first, quiet)
                first, quiet = -1, -1
    if first >= 0:
        yield _Run(first, len(probabilities))
