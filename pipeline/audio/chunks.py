"""Where speech is, and the chunks that go to recognition."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.speech import SAMPLE_RATE, Audio, Chunk, Span

BLOCK_SECONDS = 300.0  # the detector copies what it is given several times, as floats
SEAM_SECONDS = 20.0  # a block ends at the quietest moment of its last so many seconds
QUIET_FRAME = 800  # samples, 50 ms: what counts as a moment
TOUCHING = 0.05  # seconds between spans on either side of a block's end that are one span


class SpeechOptions(BaseModel):
    """How speech is detected (Silero VAD, as it comes with faster-whisper)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: float = Field(
        0.3, gt=0, lt=1, description="Probability from which speech begins. 0.5 misses much of 8 kHz telephone speech."
    )
    padding_ms: int = Field(200, ge=0, description="Added on both sides of each span of speech, in milliseconds.")
    min_silence_ms: int = Field(500, ge=0, description="A pause shorter than this does not end a span of speech.")
    min_speech_ms: int = Field(100, ge=0, description="Speech shorter than this, before padding, is dropped.")


def find_speech(audio: Audio, options: SpeechOptions) -> tuple[tuple[Span, ...], ...]:
    """For each channel of `audio` its spans of speech in order, not overlapping, each within the recording."""
    return tuple(tuple(_find_in_channel(channel, options)) for channel in _all(audio))


def _all(audio: Audio) -> Iterable[npt.NDArray[np.int16]]:
    return (audio.read(channel, 0, audio.length) for channel in range(audio.channels))


def _find_in_channel(channel: npt.NDArray[np.int16], options: SpeechOptions) -> list[Span]:
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    vad = VadOptions(
        threshold=options.threshold,
        min_speech_duration_ms=options.min_speech_ms,
        min_silence_duration_ms=options.min_silence_ms,
        speech_pad_ms=options.padding_ms,
    )
    spans: list[Span] = []
    for start, end in _blocks(channel):
        block = channel[start:end].astype(np.float32) / np.float32(32768)
        for found in get_speech_timestamps(block, vad):
            span = Span((start + found["start"]) / SAMPLE_RATE, (start + min(found["end"], len(block))) / SAMPLE_RATE)
            if spans and span.start - spans[-1].end <= TOUCHING:
                span = Span(spans.pop().start, span.end)
            spans.append(span)
    return spans


def _blocks(channel: npt.NDArray[np.int16]) -> Iterable[tuple[int, int]]:
    """(first, last) samples of blocks of about `BLOCK_SECONDS`, parted at quiet moments."""
    size, seam = int(BLOCK_SECONDS * SAMPLE_RATE), int(SEAM_SECONDS * SAMPLE_RATE)
    start = 0
    while len(channel) - start > size:
        end = start + size - seam + _quietest(channel[start + size - seam : start + size])
        yield start, end
        start = end
    if start < len(channel):
        yield start, len(channel)


def _quietest(samples: npt.NDArray[np.int16]) -> int:
    """The middle of the quietest 50 ms; the earliest of several. `samples` holds at least 50 ms."""
    frames = samples[: len(samples) // QUIET_FRAME * QUIET_FRAME].reshape(-1, QUIET_FRAME).astype(np.float32)
    return int(np.argmin(np.mean(frames**2, axis=1))) * QUIET_FRAME + QUIET_FRAME // 2


def cut(
    speech: Sequence[Sequence[Span]], max_seconds: float, audio: Audio | None = None, max_pause: float = 2.0
) -> tuple[Chunk, ...]:
    """Chunks of at most `max_seconds` that hold all speech, channel by channel, in order of time.

    Spans of a channel with pauses of at most `max_pause` seconds between them share a chunk while they fit. A chunk
    ends inside a span only where that span alone is longer than `max_seconds`: at its quietest moment if `audio` is
    given, else in equal parts. Raises ValueError for a `max_seconds` of 1 s or less.
    """
    if max_seconds <= 1:
        raise ValueError(f"chunks of {max_seconds} s are too short to recognise")
    chunks: list[Chunk] = []
    for channel, spans in enumerate(speech):
        samples = None if audio is None else audio.read(channel, 0, audio.length)
        pieces = [piece for span in _joined(spans) for piece in _pieces(span, max_seconds, samples)]
        chunks += [Chunk(channel, span.start, span.end) for span in _gathered(pieces, max_seconds, max_pause)]
    return tuple(chunks)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Spans in order of time, those that overlap or touch made one."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        elif span.duration > 0:
            joined.append(span)
    return joined


def _pieces(span: Span, max_seconds: float, samples: npt.NDArray[np.int16] | None) -> list[Span]:
    """A span in parts of at most `max_seconds`."""
    if span.duration <= max_seconds:
        return [span]
    if samples is None:
        count = int(np.ceil(span.duration / max_seconds))
        edges = [span.start + span.duration * index / count for index in range(count)] + [span.end]
        return [Span(start, end) for start, end in pairwise(edges)]
    pieces, start = [], span.start
    while span.end - start > max_seconds:
        # The second half of what may be taken, so that parts do not get short.
        first, last = round((start + max_seconds / 2) * SAMPLE_RATE), int((start + max_seconds) * SAMPLE_RATE)
        inside = samples[first:last]
        moment = first + _quietest(inside) if len(inside) >= QUIET_FRAME else last
        pieces.append(Span(start, moment / SAMPLE_RATE))
        start = moment / SAMPLE_RATE
    return [*pieces, Span(start, span.end)]


def _gathered(pieces: Sequence[Span], max_seconds: float, max_pause: float) -> list[Span]:
    gathered: list[Span] = []
    for piece in pieces:
        if gathered and piece.start - gathered[-1].end <= max_pause and piece.end - gathered[-1].start <= max_seconds:
            gathered[-1] = Span(gathered[-1].start, piece.end)
        else:
            gathered.append(piece)
    return gathered
