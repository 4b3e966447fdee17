"""Scores a turn by a pack's word lists and patterns.

The weights are round figures, the same for all languages, and none was fitted. Lexicons with negation and intensifiers
follow Taboada et al. 2011 (Lexicon-Based Methods for Sentiment Analysis); a polite formula shows little of the mood of
its user (Brown & Levinson 1987), so its weight is small, and that of its regrets zero.
"""

import re
from collections import Counter
from dataclasses import dataclass

from pipeline.analysis.talk import SpokenTurn
from pipeline.domain.speech import Role
from pipeline.language.pack import Pack

PATTERNS = {"warm": 1.0, "care": 0.7, "laughter": 0.7, "wishes": 0.4, "complaint": -1.0, "strong": -1.5}
WORDS = {"positive": 0.7, "polite": 0.1, "negative": -0.8, "trouble": -0.25}
INTENSIFIED, NEGATED = 1.5, -0.6
REACH = 3  # words that a negation or an intensifier affects
EXCLAIMED = 0.3  # added in the direction of a turn with an exclamation mark
MAX_WEIGHT = 2.5  # of one turn, either way
_TOKEN = re.compile(r"[\w'-]+|[.,!?;:]")


@dataclass(frozen=True, slots=True)
class LexiconScore:
    """`weight`: negative if displeased, positive if pleased, within -`MAX_WEIGHT`..`MAX_WEIGHT`, 0 without listed
    words.

    `counts`: matches by the name of the pack's list; a word under a negation counts as "NAME not".
    """

    weight: float
    counts: dict[str, int]


def score_turn(turn: SpokenTurn) -> LexiconScore:
    """Score a turn. An agent's words for trouble have no weight: they describe the work, not the mood."""
    counts: Counter[str] = Counter()
    text = turn.text.lower()
    for pattern in turn.pack.patterns("tone", "neutral"):
        text, times = pattern.subn(" . ", text)
        counts["neutral"] += times
    total = 0.0
    for key, weight in PATTERNS.items():
        for pattern in turn.pack.patterns("tone", key):
            text, times = pattern.subn(" . ", text)
            total += weight * min(times, 2)
            counts[key] += times
    total += _words(text, turn.pack, turn.role is Role.REP, counts)
    if "!" in turn.text and total:
        total += EXCLAIMED if total > 0 else -EXCLAIMED
    total = max(-MAX_WEIGHT, min(MAX_WEIGHT, total))
    return LexiconScore(total, {key: times for key, times in counts.items() if times})


def _words(text: str, pack: Pack, rep: bool, counts: Counter[str]) -> float:
    """Return the weight of the words; add the matches of each list to `counts`."""
    lists = [(key, pack.words("tone", key), weight) for key, weight in WORDS.items()]
    negations, intensifiers = pack.words("tone", "negations"), pack.words("tone", "intensifiers")
    total, turned, raised = 0.0, 0, 0
    for token in _TOKEN.findall(text):
        if not token[0].isalnum():
            turned = raised = 0
        elif token in negations:
            turned = REACH
        elif token in intensifiers:
            raised = REACH
        else:
            weight = 0.0
            for key, words, of_list in lists:
                if token in words:
                    counts[f"{key} not" if turned else key] += 1
                    weight += 0.0 if rep and key == "trouble" else of_list
            total += weight * (INTENSIFIED if raised else 1.0) * (NEGATED if turned else 1.0)
            turned, raised = max(0, turned - 1), max(0, raised - 1)
    return total
