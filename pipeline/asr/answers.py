"""Parse transcription responses of OpenAI's API: `json`, and `verbose_json` with segments or words.

Only `text` is always present. Some servers name languages in English, others by code.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.asr.plausible import plain
from pipeline.asr.words import in_words
from pipeline.domain.speech import Word
from pipeline.errors import EngineError
from pipeline.language.identification import NAMES

UNWRITTEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # controls, line breaks, direction marks
UNKNOWN_CONFIDENCE = 0.5  # of a word without probability
CODES = {name.lower(): code for code, name in NAMES.items()} | {code: code for code in NAMES}
MAX_CHARACTERS, MAX_ITEMS = 20_000, 1_000  # of the text, and words or segments, of a chunk of 30 seconds
MAX_VALUE = 1e6  # of times and log probabilities, also below 0
BEYOND = 1.0  # seconds that a word time may be outside the sound: servers count the padding


@dataclass(frozen=True, slots=True)
class Transcription:
    """A server's transcription of one chunk; times count from the start of the chunk's sound."""

    text: str
    language: str | None  # ISO 639-1; None: not in the response
    words: tuple[Word, ...] | None  # None: without times
    mean_log_probability: float  # per token; 0: not in the response
    no_speech_probability: float  # 0: not in the response


def read(response: Mapping[str, Any], seconds: float) -> Transcription:
    """Parse the response for a chunk of `seconds`. Raises `EngineError` for invalid values."""
    try:
        text = _clean(response["text"])
        segments = [dict(segment) for segment in response.get("segments") or ()]
        listed = [dict(word) for word in response.get("words") or [w for s in segments for w in s.get("words") or ()]]
        if max(len(segments), len(listed)) > MAX_ITEMS or sum(len(word["word"]) for word in listed) > MAX_CHARACTERS:
            raise ValueError(f"{len(segments)} segments and {len(listed)} words")
        weights = [max(_number(segment["end"]) - _number(segment["start"]), 0.01) for segment in segments]
        timed = _words(listed, segments, text, seconds) if listed and text else () if not text else None
        return Transcription(
            text,
            CODES.get(str(response.get("language") or "").lower()),
            timed,
            _mean(segments, weights, "avg_logprob"),
            _mean(segments, weights, "no_speech_prob"),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise EngineError("The recognition server's response contains invalid times or values.") from error


def _clean(text: str) -> str:
    """Return the text without control characters, and single spaces between words."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{len(text)} characters")
    return " ".join(UNWRITTEN.sub(" ", text).split())


def _mean(segments: Sequence[Mapping[str, Any]], weights: Sequence[float], key: str) -> float:
    weighted = [
        (_number(segment[key]), weight) for segment, weight in zip(segments, weights, strict=True) if key in segment
    ]
    return (
        sum(value * weight for value, weight in weighted) / sum(weight for _, weight in weighted) if weighted else 0.0
    )


def _words(
    listed: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, Any]], text: str, seconds: float
) -> tuple[Word, ...]:
    """Return the timed words; take their text from `text` if the words match, since word lists lack punctuation."""
    timed: list[Word] = []
    for entry in listed:
        start, end = _number(entry["start"]), _number(entry["end"])
        if not -BEYOND <= start <= end <= seconds + BEYOND:
            raise ValueError(f"a word from {start} to {end} in {seconds} s")
        word_text = _clean(entry["word"])
        if word_text:
            timed.append(Word(max(start, 0.0), end, word_text, _confidence(entry, segments)))
    written = in_words([f" {part}" for part in text.split()])
    same = [plain(word.text) for word in written] == [plain(word.text) for word in timed]
    if not same:
        return tuple(timed)
    return tuple(
        Word(word.start, word.end, mark.text, word.confidence, joined=mark.joined)
        for word, mark in zip(timed, written, strict=True)
    )


def _confidence(word: Mapping[str, Any], segments: Sequence[Mapping[str, Any]]) -> float:
    """Return the word's own probability, or else that of a token of its segment."""
    if word.get("probability") is not None:
        return round(min(max(_number(word["probability"]), 0.0), 1.0), 4)
    middle = (_number(word["start"]) + _number(word["end"])) / 2
    rated = [segment for segment in segments if "avg_logprob" in segment]
    around = [segment for segment in rated if _number(segment["start"]) <= middle <= _number(segment["end"])]
    if not around:
        return UNKNOWN_CONFIDENCE
    return round(min(1.0, math.exp(min(0.0, _number(around[0]["avg_logprob"])))), 4)


def _number(value: Any) -> float:
    number = float(value)
    if not abs(number) <= MAX_VALUE:  # NaN is not either
        raise ValueError("out of range")
    return number
