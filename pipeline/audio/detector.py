"""How probable speech is, moment by moment (Silero VAD as it comes with faster-whisper), and the spans made of it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.speech import SAMPLE_RATE, Audio, Span

FRAME = 512  # samples, 32 ms: what the detector judges at a time
BLOCK_SECONDS = 300.0  # read at a time; the detector copies what it is given several times, as floats
SEAM_SECONDS = 20.0  # a block ends at the quietest frame of its last so many seconds: the detector begins anew there
HYSTERESIS = 0.15  # speech that has begun goes on until its probability is this far below the threshold

Probabilities = npt.NDArray[np.float32]  # shape (frames,), 0..1


class SpeechOptions(BaseModel):
    """How speech is detected (Silero VAD, as it comes with faster-whisper)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: float = Field(
        0.3, gt=0, lt=1, description="Probability from which speech begins. 0.5 misses much of 8 kHz telephone speech."
    )
    padding_ms: int = Field(200, ge=0, description="Added on both sides of each span of speech, in milliseconds.")
    min_silence_ms: int = Field(500, ge=0, description="A pause shorter than this does not end a span of speech.")
    min_speech_ms: int = Field(100, ge=0, description="Speech shorter than this, before padding, is dropped.")


def activity(audio: Audio, channel: int) -> Probabilities:
    """The probability of speech in each 32 ms of one channel; the last frame may be partly outside the recording.

    Reads five minutes at a time. An empty recording has no frames.
    """
    from faster_whisper.vad import get_vad_model

    model = get_vad_model()
    found = []
    for samples in _blocks(audio, channel):
        missing = -len(samples) % FRAME
        block = np.pad(samples, (0, missing)).astype(np.float32) / np.float32(32768)
        found.append(np.asarray(model(block), np.float32).reshape(-1))
    return np.concatenate(found) if found else np.zeros(0, np.float32)


def _blocks(audio: Audio, channel: int) -> Iterator[npt.NDArray[np.int16]]:
    """Pieces of about `BLOCK_SECONDS`, whole frames all but the last, parted at quiet frames."""
    size = int(BLOCK_SECONDS * SAMPLE_RATE) // FRAME * FRAME
    seam = int(SEAM_SECONDS * SAMPLE_RATE) // FRAME * FRAME
    start = 0
    while start < audio.length:
        block = audio.read(channel, start, start + size)
        if start + size < audio.length:
            frames = block[size - seam :].reshape(-1, FRAME).astype(np.float32)
            quiet = int(np.argmin(np.mean(frames**2, axis=1)))
            block = block[: size - seam + (quiet + 1) * FRAME]
        yield block
        start += len(block)


class _Run(NamedTuple):
    """Frames `first` to `last` (exclusive) that are speech."""

    first: int
    last: int


def spans(probabilities: Probabilities, length: int, options: SpeechOptions) -> tuple[Span, ...]:
    """Spans of speech in order, not overlapping, padded, inside a recording of `length` samples.

    The rules are those of Silero's own `get_speech_timestamps`: speech begins at the threshold, ends `HYSTERESIS` below
    it if it stays there for the shortest pause; two spans that padding would join meet in the middle.
    """
    padding, shortest = options.padding_ms / 1000, options.min_speech_ms / 1000
    frame, duration = FRAME / SAMPLE_RATE, length / SAMPLE_RATE
    runs = [(r.first * frame, min(r.last * frame, duration)) for r in _runs(probabilities, options)]
    runs = [(start, end) for start, end in runs if end - start > shortest]
    found = []
    for i, (start, end) in enumerate(runs):
        before = runs[i - 1][1] if i else -padding
        after = runs[i + 1][0] if i + 1 < len(runs) else duration + padding
        first = max(0.0, start - min(padding, max(0.0, (start - before) / 2)))
        found.append(Span(first, min(duration, end + min(padding, max(0.0, (after - end) / 2)))))
    return tuple(found)


def _runs(probabilities: Probabilities, options: SpeechOptions) -> Iterator[_Run]:
    """Speech by threshold and hysteresis, pauses that are too short filled."""
    lower = max(options.threshold - HYSTERESIS, 0.01)
    pause = options.min_silence_ms / 1000 * SAMPLE_RATE / FRAME
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
