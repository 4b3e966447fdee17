"""From decoded tokens and their alignment to words, by faster-whisper's own post-processing.

`WhisperModel.find_alignment` and `add_word_timestamps` ask their `self` for one alignment and a few constants; they are
handed just those, so that an alignment made in a batch of many calls goes through the code that a single file would.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pipeline.domain.speech import Chunk, Span, Word

PREPENDED, APPENDED = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"  # faster-whisper's defaults: punctuation joined to words
SHORTEST = 0.02  # seconds; the aligner's own step, and it gives some words none


def segments(model: Any, tokenizer: Any, tokens: list[int], seconds: float) -> list[dict[str, Any]]:
    """Whisper's segments of one window, split at its time tokens; times in seconds within the window."""
    split, _, _ = model._split_segments_by_timestamps(
        tokenizer=tokenizer,
        tokens=tokens,
        time_offset=0.0,
        segment_size=frames(model, seconds),
        segment_duration=seconds,
        seek=0,
    )
    taken = sum(len(segment["tokens"]) for segment in split)
    if taken < len(tokens):  # faster-whisper would come back for an unfinished segment; a chunk is decoded once
        begin = split[-1]["end"] if split else 0.0
        split.append({"seek": 0, "start": begin, "end": max(begin, seconds), "tokens": tokens[taken:]})
    return [segment for segment in split if tokenizer.decode(segment["tokens"]).strip()]


def text_tokens(segments: Sequence[dict[str, Any]], tokenizer: Any) -> list[int]:
    """The tokens of the segments that carry text."""
    return [token for segment in segments for token in segment["tokens"] if token < tokenizer.eot]


def frames(model: Any, seconds: float) -> int:
    """Mel frames of a window that hold sound (100 a second)."""
    return min(math.ceil(seconds) * int(model.frames_per_second), int(model.feature_extractor.nb_max_frames))


def timed(
    model: Any, tokenizer: Any, segments: list[dict[str, Any]], alignment: Any, seconds: float
) -> tuple[Word, ...]:
    """The words of one window that holds so many seconds of sound, in its own time."""
    from faster_whisper import WhisperModel

    found = WhisperModel.find_alignment(
        SimpleNamespace(
            model=SimpleNamespace(align=lambda *_, **__: [alignment]), tokens_per_second=model.tokens_per_second
        ),
        tokenizer,
        [text_tokens(segments, tokenizer)],
        None,
        None,
    )
    WhisperModel.add_word_timestamps(
        SimpleNamespace(find_alignment=lambda *_, **__: found, frames_per_second=model.frames_per_second),
        [segments],
        tokenizer,
        None,
        None,
        PREPENDED,
        APPENDED,
        last_speech_timestamp=0.0,
    )
    return within([word for segment in segments for word in segment.get("words", ())], seconds)


def within(words: Sequence[dict[str, Any]], seconds: float) -> tuple[Word, ...]:
    """The aligner's words, kept inside 0..seconds and in order; those without text are dropped."""
    placed = []
    for word in words:
        text = word["word"].strip()
        if text:
            confidence = min(1.0, max(0.0, float(word["probability"])))
            placed.append(Word(float(word["start"]), float(word["end"]), text, round(confidence, 4)))
    return in_order(placed, 0.0, seconds)


def recorded(words: Sequence[Word], chunk: Chunk) -> tuple[Word, ...]:
    """Words in the time of a chunk's sound, each inside one of its `parts`, moved to the recording's time."""
    moved = []
    for word, at in zip(words, _places(words, chunk.parts), strict=True):
        shift = chunk.sound[at].start - chunk.parts[at].start
        moved.append(replace(word, start=word.start + shift, end=word.end + shift))
    return in_pieces(moved, chunk.sound)


def in_pieces(words: Sequence[Word], pieces: Sequence[Span]) -> tuple[Word, ...]:
    """The words as `in_order` leaves them, each inside that one of `pieces` which holds most of it.

    `pieces` are in order, do not overlap, and are at least one; times are those of the words. So no word reaches over
    a pause that was left out of a chunk.
    """
    ordered = in_order(words, pieces[0].start, pieces[-1].end)
    if len(pieces) == 1:
        return ordered
    held: list[list[Word]] = [[] for _ in pieces]
    for word, at in zip(ordered, _places(ordered, pieces), strict=True):
        held[at].append(word)
    return tuple(
        word for own, piece in zip(held, pieces, strict=True) for word in in_order(own, piece.start, piece.end)
    )


def _places(words: Sequence[Word], pieces: Sequence[Span]) -> list[int]:
    """For each word, in order, the index of the piece that holds most of it, else of the nearest; it never falls."""
    found: list[int] = []
    at = 0
    for word in words:
        best = at
        for i in range(at, len(pieces)):
            if pieces[i].start > word.end and i > best:
                break
            if _inside(word, pieces[i]) > _inside(word, pieces[best]):
                best = i
        found.append(best)
        at = best
    return found


def _inside(word: Word, piece: Span) -> float:
    """Seconds of the word in the piece; where it has none there, how far away it lies, below 0."""
    return min(word.end, piece.end) - max(word.start, piece.start)


def in_order(words: Sequence[Word], first: float, last: float) -> tuple[Word, ...]:
    """The words with times that rise, do not overlap and lie in first..last; each lasts at least 20 ms.

    Where there is no room for that, words share the time there is; without any time between `first` and `last` their
    times are all `first`. Times that need no change are rounded to milliseconds and else left as they are.
    """
    shortest = min(SHORTEST, max(0.0, last - first) / max(1, len(words)))
    starts: list[float] = []
    ends: list[float] = []
    for i, word in enumerate(words):  # what must come after still has to fit
        latest = last - shortest * (len(words) - i)
        start = min(max(word.start, ends[-1] if ends else first), max(first, latest))
        ends.append(min(max(word.end, start + shortest), max(start, latest + shortest)))
        starts.append(start)
    digits = 3 if shortest >= 0.002 else 9  # milliseconds would make crammed words last no time
    return tuple(
        replace(
            word,
            start=min(max(round(start, digits), first), last),
            end=min(max(round(end, digits), first), last),
        )
        for word, start, end in zip(words, starts, ends, strict=True)
    )
