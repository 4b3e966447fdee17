"""What the words of a window give away about themselves: too many, too few, going round in circles."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.domain.speech import Span, Word

LONGEST_PERIOD = 8  # words; longer loops are seen by their compression
REPETITIONS = {1: 5, 2: 4}  # how often a period of so many words follows itself in a loop; `MORE` for longer ones
MORE = 3
LOOP_PAUSE = 2.0  # seconds: "yes" ... "yes" ... "yes" with pauses between them is a listener, not a loop


@dataclass(frozen=True, slots=True)
class Loop:
    """Words `first` to `last` (exclusive) are one group of `period` words over and over."""

    first: int
    last: int
    period: int


def plain(text: str) -> str:
    """A word without case and punctuation, to compare it; its own text where nothing else is left."""
    return re.sub(r"[^\w']", "", text.casefold()) or text


def loops(words: Sequence[Word]) -> list[Loop]:
    """Groups of words that follow themselves, in the words of one channel in order; the loops do not overlap."""
    texts = [plain(word.text) for word in words]
    found: list[Loop] = []
    first = 0
    while first < len(texts):
        best = max((_loop(words, texts, first, p) for p in range(1, LONGEST_PERIOD + 1)), key=lambda loop: loop.last)
        if best.last > first:
            found.append(best)
        first = max(best.last, first + 1)
    return found


def _loop(words: Sequence[Word], texts: Sequence[str], first: int, period: int) -> Loop:
    last = first + period
    while (
        last < len(texts)
        and texts[last] == texts[last - period]
        and words[last].start - words[last - 1].end <= LOOP_PAUSE
    ):
        last += 1
    enough = (last - first) // period >= REPETITIONS.get(period, MORE)
    return Loop(first, last if enough else first, period)


def inside(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """The parts of `spans` between two times; those of no length are left out."""
    cut = (Span(max(span.start, start), min(span.end, end)) for span in spans)
    return [span for span in cut if span.duration > 0]


def seconds(spans: Sequence[Span]) -> float:
    """Their sum."""
    return sum(span.duration for span in spans)


def without(spans: Sequence[Span], words: Sequence[Word], reach: float) -> list[Span]:
    """What is left of `spans` after the words, widened by `reach` seconds on both sides, are cut out."""
    left = list(spans)
    for word in words:
        start, end = word.start - reach, word.end + reach
        left = [
            part
            for span in left
            for part in (Span(span.start, min(span.end, start)), Span(max(span.start, end), span.end))
            if part.duration > 0
        ]
    return left


def distance(spans: Sequence[Span], word: Word) -> float:
    """Seconds between a word and the nearest of `spans`; 0 where it touches one, infinite where there is none."""
    return min((max(span.start - word.end, word.start - span.end, 0.0) for span in spans), default=float("inf"))
