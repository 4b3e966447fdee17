import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.audio.labels import detector
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.spans import union
from pipeline.domain.speech import SAMPLE_RATE, Audio, Chunk, Span

QUIET_FRAME = 800  # samples, 50 ms
CLOSE_PAUSE = 2.0  # seconds: a longer pause ends a chunk or is skipped; in long silence recognizers invent words


def find_speech(audio: Audio, options: SpeechOptions) -> tuple[tuple[Span, ...], ...]:
    """Return each channel's spans of speech: ordered, not overlapping, within the recording.

    This is the detector's result alone; `labels.label` decides which of it is speech.
    """
    return tuple(
        detector.spans(detector.activity(audio, channel), audio.length, options) for channel in range(audio.channels)
    )


def _quietest(samples: npt.NDArray[np.int16]) -> int:
    """Return the middle of the quietest 50 ms, the earliest of several; `samples` has at least 50 ms."""
    frames = samples[: len(samples) // QUIET_FRAME * QUIET_FRAME].reshape(-1, QUIET_FRAME).astype(np.float32)
    return int(np.argmin(np.mean(frames**2, axis=1))) * QUIET_FRAME + QUIET_FRAME // 2


def cut(
    speech: Sequence[Sequence[Span]],
    max_seconds: float,
    audio: Audio | None = None,
    max_skipped_pause: float = 0.0,
    events: Sequence[Sequence[Span]] = (),
    max_pause: float = CLOSE_PAUSE,
    gaps: Sequence[Sequence[Span]] = (),
) -> tuple[Chunk, ...]:
    """Cut all speech into chunks of max. `max_seconds` of sound, channel by channel, in order of time.

    Spans of a channel share a chunk, pauses included, while they fit and pauses are max. `max_pause` seconds. Across a
    longer pause, up to `max_skipped_pause` and without any of the channel's `events`, they share a chunk of several
    pieces that skips the pause. No chunk crosses one of the channel's `gaps`. A chunk ends inside a span only if that
    span alone exceeds `max_seconds`: at its quietest moment if `audio` is passed, else in equal parts. Raises
    `ValueError` for a `max_seconds` of 1 s or less.
    """
    if max_seconds <= 1:
        raise ValueError(f"chunks of {max_seconds} s are too short to recognize")
    chunks: list[Chunk] = []
    for channel, spans in enumerate(speech):
        pieces = [
            piece for span in union(spans) if span.duration > 0 for piece in _pieces(span, max_seconds, channel, audio)
        ]
        between = tuple(kind[channel] if channel < len(kind) else () for kind in (events, gaps))
        for group in _gathered(pieces, max_seconds, max_pause, max_skipped_pause, *between):
            packed = tuple(group) if len(group) > 1 else ()
            chunks.append(Chunk(channel, group[0].start, group[-1].end, pieces=packed))
    return tuple(chunks)


def _pieces(span: Span, max_seconds: float, channel: int, audio: Audio | None) -> list[Span]:
    if span.duration <= max_seconds:
        return [span]
    if audio is None:
        count = int(np.ceil(span.duration / max_seconds))
        edges = [span.start + span.duration * index / count for index in range(count)] + [span.end]
        return [Span(start, end) for start, end in pairwise(edges)]
    pieces, start = [], span.start
    while span.end - start > max_seconds:
        # Only the second half, so that parts do not get short.
        first, last = round((start + max_seconds / 2) * SAMPLE_RATE), int((start + max_seconds) * SAMPLE_RATE)
        inside = audio.read(channel, first, last)
        moment = first + _quietest(inside) if len(inside) >= QUIET_FRAME else last
        pieces.append(Span(start, moment / SAMPLE_RATE))
        start = moment / SAMPLE_RATE
    return [*pieces, Span(start, span.end)]


def _gathered(
    pieces: Sequence[Span],
    max_seconds: float,
    max_pause: float,
    max_skipped_pause: float,
    events: Sequence[Span],
    gaps: Sequence[Span],
) -> list[list[Span]]:
    groups: list[list[Span]] = []
    seconds = 0.0  # of sound in the last group
    for piece in pieces:
        pause = piece.start - groups[-1][-1].end if groups else math.inf
        if groups and _holds(gaps, groups[-1][-1].end, piece.start):
            pause = math.inf
        if pause <= max_pause and seconds + pause + piece.duration <= max_seconds:
            groups[-1][-1] = Span(groups[-1][-1].start, piece.end)
            seconds += pause + piece.duration
        elif (
            max_pause < pause <= max_skipped_pause
            and seconds + piece.duration <= max_seconds
            and not _holds(events, groups[-1][-1].end, piece.start)
        ):
            groups[-1].append(piece)
            seconds += piece.duration
        else:
            groups.append([piece])
            seconds = piece.duration
    return groups


def _holds(events: Sequence[Span], start: float, end: float) -> bool:
    """Return whether one of the events (ordered, not overlapping) overlaps the interval."""
    first = bisect_right(events, start, key=lambda event: event.end)
    return first < len(events) and events[first].start < end
