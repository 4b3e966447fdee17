"""From decoded tokens and their alignment to words, by faster-whisper's own post-processing.

`WhisperModel.find_alignment` and `add_word_timestamps` ask their `self` for one alignment and a few constants; they are
handed just those, so that an alignment made in a batch of many calls goes through the code that a single file would.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pipeline.domain.speech import Chunk, Word

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


def timed(model: Any, tokenizer: Any, segments: list[dict[str, Any]], alignment: Any, chunk: Chunk) -> tuple[Word, ...]:
    """The words of one chunk, in the recording's time."""
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
    return within([word for segment in segments for word in segment.get("words", ())], chunk)


def within(words: Sequence[dict[str, Any]], chunk: Chunk) -> tuple[Word, ...]:
    """Shift words to the recording's time, keep them inside the chunk and in order, drop those without text."""
    placed = []
    for word in words:
        text = word["word"].strip()
        if text:
            confidence = min(1.0, max(0.0, float(word["probability"])))
            start, end = (chunk.start + float(word[edge]) for edge in ("start", "end"))
            placed.append(Word(start, end, text, round(confidence, 4)))
    return in_order(placed, chunk.start, chunk.end)


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
