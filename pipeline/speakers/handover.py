"""Which voice says each word of a mixed recording: by the diarizer's spans, and by where words allow a change.

Word times and spans are both off by a tenth of a second or two, so a span's edge often lies inside a sentence. The
likeliest sequence of voices over all words (Viterbi) weighs how far each word would lie outside its voice's spans
against changes of voice where neither a pause nor the end of a sentence allows one.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from pipeline.domain.speech import SpeakerSpan, Word

SLACK = 0.25  # seconds outside its voice's spans that cost a word 1
FURTHEST = 6.0  # cost of a word far from its voice
CHANGE = 3.0  # cost of a change of voice inside a sentence, without a pause
SENTENCE_ENDS, CLAUSE_ENDS = 2.5, 2.0  # by which it is cheaper after a full stop, after a comma
CAPITAL = 0.5  # before a word that begins like a sentence
PAUSE, LONGEST_PAUSE = 1.0, 0.5  # by which it is cheaper after a pause of at least so many seconds, less for less
CHEAPEST = 0.2  # no change costs less
SENTENCE, CLAUSE = (".", "!", "?", "…"), (",", ";", ":")


def voices_of(words: Sequence[Word], spans: Sequence[SpeakerSpan]) -> list[str]:
    """The voice of each word. `words` are those of one channel by start; without spans all are "A"'s."""
    voices = list(dict.fromkeys(span.speaker for span in spans))
    if not voices:
        return ["A"] * len(words)
    if len(voices) == 1 or not words:
        return voices[:1] * len(words)
    own = {voice: sorted((s.start, s.end) for s in spans if s.speaker == voice) for voice in voices}
    costs = {voice: _away(words[0], own[voice]) for voice in voices}
    came_from: list[dict[str, str]] = []
    for before, word in pairwise(words):
        nearest = min(costs, key=lambda voice: costs[voice])
        change = costs[nearest] + _change(before, word)
        came_from.append({voice: voice if costs[voice] <= change else nearest for voice in voices})
        costs = {voice: min(costs[voice], change) + _away(word, own[voice]) for voice in voices}
    path = [min(costs, key=lambda voice: costs[voice])]
    for step in reversed(came_from):
        path.append(step[path[-1]])
    return path[::-1]


def _away(word: Word, spans: Sequence[tuple[float, float]]) -> float:
    """What it costs that a voice with these spans says the word."""
    middle = (word.start + word.end) / 2
    at = bisect_left(spans, (middle, middle))
    near = spans[max(0, at - 1) : at + 1]
    seconds = min(max(start - middle, middle - end, 0.0) for start, end in near)
    return min(FURTHEST, seconds / SLACK)


def _change(before: Word, after: Word) -> float:
    """What a change of voice costs between two words."""
    text = before.text.rstrip("\"'”»)")
    cost = CHANGE
    if text.endswith(SENTENCE):
        cost -= SENTENCE_ENDS
    elif text.endswith(CLAUSE):
        cost -= CLAUSE_ENDS
    if after.text.strip()[:1].isupper() and after.text.strip() not in ("I", "I'm", "I'll", "I've", "I'd"):
        cost -= CAPITAL
    cost -= PAUSE * min(1.0, max(0.0, after.start - before.end) / LONGEST_PAUSE)
    return max(CHEAPEST, cost)
