import re
import string
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.domain.speech import Chunk, Span, Word, text_of

MAX_COMPRESSION = 2.4  # text with a higher gzip ratio repeats itself (Whisper's threshold)
MAX_NO_SPEECH = 0.6  # probability above which words are doubtful (Whisper's threshold)
MAX_PERIOD = 8  # words; the compression ratio detects longer loops
REPETITIONS = {1: 5, 2: 4}  # min. repetitions by period in words; `MORE` for longer ones
MORE = 3
MAX_SHORT_WORD = 1.0  # seconds of a short drawn-out word; 99 % of real words up to 12 letters last 0.85 or less
PER_WORD, PER_LETTER = 0.4, 0.1  # seconds; more than a long word takes ("circumstances" 1.2)
PER_SPELLED_CHARACTER = 0.5  # seconds per character of what may be spelled out: numbers, addresses, initials
MAX_WORDS_PER_SECOND = 7.0  # of speech; more are suspect
RUSHED_FROM, RUSH = 5, 12.0  # words, and an impossible rate of words per second
MAX_COPY_WORDS = 100  # a copy is a sentence or two of one window
LOOP_PAUSE = 2.0  # seconds: "yes" ... "yes" ... "yes" with longer pauses is a listener, not a loop


@dataclass(frozen=True, slots=True)
class Loop:
    """Words `first` to `last` (exclusive) that repeat one group of `period` words."""

    first: int
    last: int
    period: int


def plain(text: str) -> str:
    """Return a word without case and punctuation, for comparison; unchanged if nothing else remains."""
    return re.sub(r"[^\w']", "", text.casefold()) or text


def compression(words: Sequence[Word], chunk: Chunk) -> float:
    """Return characters per compressed byte in the piece with most repetition of a chunk; 0 without words.

    Pieces are separate: a listener who says "yes" now and then is no loop.
    """
    texts = (text_of(w for w in words if p.start <= w.start < p.end).encode() for p in chunk.sound)
    return max((len(text) / len(zlib.compress(text)) for text in texts if text), default=0.0)


def longest(text: str) -> float:
    """Return the longest plausible duration of a word in seconds, by its characters: 1 or more.

    An aligner that misses speech stretches the adjacent word over it.
    """
    stripped = text.strip(string.punctuation + "¿¡“”…")
    parts = [part for part in re.split(r"[-'’]", stripped) if part]
    if all(part.isalpha() for part in parts) and not stripped.isupper() and any(len(part) > 1 for part in parts):
        return max(MAX_SHORT_WORD, PER_WORD + PER_LETTER * sum(map(len, parts)))
    return max(MAX_SHORT_WORD, PER_SPELLED_CHARACTER * len(stripped))


def loops(words: Sequence[Word]) -> list[Loop]:
    """Return repeated groups of words of one channel, in order; the loops do not overlap."""
    texts = [plain(word.text) for word in words]
    result: list[Loop] = []
    first = 0
    while first < len(texts):
        best = max((_loop(words, texts, first, p) for p in range(1, MAX_PERIOD + 1)), key=lambda loop: loop.last)
        if best.last > first:
            result.append(best)
        first = max(best.last, first + 1)
    return result


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


def copies(words: Sequence[Word]) -> list[range]:
    """Return copied passages that were not spoken, among the words of one channel in order.

    A recognizer that writes a sentence twice has sound for only one of them, and the aligner squeezes the other. A
    sentence spoken twice takes its time.
    """
    texts = [plain(word.text) for word in words]
    passages: list[range] = []
    first = 0
    while first + RUSHED_FROM <= len(words):
        rush = range(first, first + RUSHED_FROM)
        copy = _copy(words, texts, rush) if _rate(words, rush) > RUSH else None
        if copy:
            passages.append(copy)
        first = copy.stop if copy else first + 1
    return passages


def _copy(words: Sequence[Word], texts: Sequence[str], rush: range) -> range | None:
    """Return the longest passage around a rush that repeats an adjacent one and is faster than speech."""
    for period in range(MAX_COPY_WORDS, RUSHED_FROM - 1, -1):
        if texts[rush.start : rush.stop] not in _neighbors(texts, rush, period):
            continue
        for start in range(max(0, rush.stop - period), min(rush.start, len(texts) - period) + 1):
            part = range(start, start + period)
            is_repeated = texts[part.start : part.stop] in _neighbors(texts, part, period)
            if is_repeated and _rate(words, part) > MAX_WORDS_PER_SECOND:
                return part
    return None


def _neighbors(texts: Sequence[str], part: range, period: int) -> tuple[Sequence[str], Sequence[str]]:
    before, after = part.start - period, part.start + period
    return texts[max(0, before) : max(0, before + len(part))], texts[after : after + len(part)]


def _rate(words: Sequence[Word], part: range) -> float:
    return len(part) / max(1e-6, words[part[-1]].end - words[part[0]].start)


def inside(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """Return the parts of `spans` between two times, without those of no length."""
    cut = (Span(max(span.start, start), min(span.end, end)) for span in spans)
    return [span for span in cut if span.duration > 0]


def without(spans: Sequence[Span], words: Sequence[Word], reach: float) -> list[Span]:
    """Return `spans` without the words, which are widened by `reach` seconds on both sides.

    A word longer than plausible (`longest`) is cut out only for that duration from its start.
    """
    remaining = list(spans)
    for word in words:
        start, end = word.start - reach, min(word.end, word.start + longest(word.text)) + reach
        remaining = [
            part
            for span in remaining
            for part in (Span(span.start, min(span.end, start)), Span(max(span.start, end), span.end))
            if part.duration > 0
        ]
    return remaining


def distance(spans: Sequence[Span], word: Word) -> float:
    """Return the seconds between a word and the nearest of `spans`; 0 if it touches one, infinite without any."""
    return min((max(span.start - word.end, word.start - span.end, 0.0) for span in spans), default=float("inf"))
