"""How pleased or displeased a turn is, by its words: what a pack's word lists and patterns say, weighed by rule.

The weights are round figures, the same for all languages, and none was fitted. Lexicons with negation and intensifiers
are those of Taboada et al. 2011 (Lexicon-Based Methods for Sentiment Analysis); a formula of politeness says little
about the mood of the person using it (Brown & Levinson 1987), so it weighs little, and its regrets nothing.
"""

import re
from collections import Counter
from dataclasses import dataclass

from pipeline.analysis.talk import Said
from pipeline.domain.speech import Role
from pipeline.language.pack import Pack

PATTERNS = {"warm": 1.0, "care": 0.7, "laughter": 0.7, "wishes": 0.4, "complaint": -1.0, "strong": -1.5}
WORDS = {"positive": 0.7, "polite": 0.1, "negative": -0.8, "trouble": -0.25}
INTENSIFIED, NEGATED = 1.5, -0.6
REACH = 3  # words after a negation or an intensifier that it bears on
EXCLAIMED = 0.3  # added to what a turn with an exclamation mark is already
MOST = 2.5  # of one turn, either way
_TOKEN = re.compile(r"[\w'-]+|[.,!?;:]")


@dataclass(frozen=True, slots=True)
class LexiconScore:
    """`weight` is below 0 displeased, above 0 pleased, at most `MOST` either way, 0 without words of either kind.

    `found`: how often each list of the pack fits, by the list's name; a word under a negation counts as "NAME not".
    """

    weight: float
    found: dict[str, int]


def score_turn(said: Said) -> LexiconScore:
    """What our side says of trouble is its work, not its mood: such words do not weigh for a rep."""
    found: Counter[str] = Counter()
    text = said.text.lower()
    for pattern in said.pack.patterns("tone", "neutral"):
        text, times = pattern.subn(" . ", text)
        found["neutral"] += times
    total = 0.0
    for key, weight in PATTERNS.items():
        for pattern in said.pack.patterns("tone", key):
            text, times = pattern.subn(" . ", text)
            total += weight * min(times, 2)
            found[key] += times
    total += _words(text, said.pack, said.role is Role.REP, found)
    if "!" in said.text and total:
        total += EXCLAIMED if total > 0 else -EXCLAIMED
    return LexiconScore(max(-MOST, min(MOST, total)), {key: times for key, times in found.items() if times})


def _words(text: str, pack: Pack, rep: bool, found: Counter[str]) -> float:
    """What the words weigh; adds to `found` how many of each list there are."""
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
                    found[f"{key} not" if turned else key] += 1
                    weight += 0.0 if rep and key == "trouble" else of_list
            total += weight * (INTENSIFIED if raised else 1.0) * (NEGATED if turned else 1.0)
            turned, raised = max(0, turned - 1), max(0, raised - 1)
    return total
