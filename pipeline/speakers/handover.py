"""The voice of each word of a mixed recording: by the diarizer's spans, and by where words allow a change.

Word times and spans are both off by a tenth of a second or two, so a span's edge is often inside a sentence. The
likeliest sequence of voices over all words (Viterbi) weighs the distance of each word from its voice's spans against
changes of voice without a pause or the end of a sentence.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from pipeline.domain.speech import SpeakerSpan, Word

SLACK = 0.25  # seconds outside its voice's spans that cost 1
MAX_COST = 6.0  # cost of a word far from its voice
CHANGE = 3.0  # cost of a change of voice inside a sentence, without a pause
SENTENCE_ENDS, CLAUSE_ENDS = 2.5, 2.0  # discount after a full stop, after a comma
CAPITAL = 0.5  # discount before a word that begins like a sentence
PAUSE, FULL_PAUSE = 1.0, 0.5  # discount after a pause of at least that many seconds; proportional below
MIN_COST = 0.2  # of a change
EARLY = 1.0  # min. seconds of pause inside a sentence after its first word, which is then timed too early
SENTENCE, CLAUSE = (".", "!", "?", "…"), (",", ";", ":")


def voices_of(words: Sequence[Word], spans: Sequence[SpeakerSpan]) -> list[str]:
    """Return the voice of each word. `words` are those of one channel by start; without spans all are "A"'s."""
    voices = list(dict.fromkeys(span.speaker for span in spans))
    if not voices:
        return ["A"] * len(words)
    if len(voices) == 1 or not words:
        return voices[:1] * len(words)
    words = _next_to_sentence(words)
    spans_of = {voice: sorted((s.start, s.end) for s in spans if s.speaker == voice) for voice in voices}
    costs = {voice: _away(words[0], spans_of[voice]) for voice in voices}
    previous: list[dict[str, str]] = []
    for before, word in pairwise(words):
        nearest = min(costs, key=lambda voice: costs[voice])
        change = costs[nearest] + _change(before, word)
        previous.append({voice: voice if costs[voice] <= change else nearest for voice in voices})
        costs = {voice: min(costs[voice], change) + _away(word, spans_of[voice]) for voice in voices}
    path = [min(costs, key=lambda voice: costs[voice])]
    for step in reversed(previous):
        path.append(step[path[-1]])
    return path[::-1]


def _next_to_sentence(words: Sequence[Word]) -> list[Word]:
    """Move a first word that a pause separates from its sentence to the rest: "And" ... "what time would you like?"."""
    moved = list(words)
    for at, (word, after) in enumerate(pairwise(words)):
        opens = at == 0 or _by_text(words[at - 1], word) <= CHANGE - SENTENCE_ENDS
        if opens and after.start - word.end >= EARLY and _by_text(word, after) == CHANGE:
            moved[at] = replace(word, start=after.start - (word.end - word.start), end=after.start)
    return moved


def _away(word: Word, spans: Sequence[tuple[float, float]]) -> float:
    """Return the cost of assigning the word to a voice with these spans."""
    middle = (word.start + word.end) / 2
    at = bisect_left(spans, (middle, middle))
    near = spans[max(0, at - 1) : at + 1]
    seconds = min(max(start - middle, middle - end, 0.0) for start, end in near)
    return min(MAX_COST, seconds / SLACK)


def _change(before: Word, after: Word) -> float:
    pause = PAUSE * min(1.0, max(0.0, after.start - before.end) / FULL_PAUSE)
    return max(MIN_COST, _by_text(before, after) - pause)


def _by_text(before: Word, after: Word) -> float:
    text = before.text.rstrip("\"'”»)")
    cost = CHANGE
    if text.endswith(SENTENCE):
        cost -= SENTENCE_ENDS
    elif text.endswith(CLAUSE):
        cost -= CLAUSE_ENDS
    if after.text.strip()[:1].isupper() and after.text.strip() not in ("I", "I'm", "I'll", "I've", "I'd"):
        cost -= CAPITAL
    return cost
