"""How pleased or displeased a turn is, by its words: what a pack's word lists and patterns say, weighed by rule.

The weights are round figures, the same for all languages, and none was fitted. Lexicons with negation and intensifiers
are those of Taboada et al. 2011 (Lexicon-Based Methods for Sentiment Analysis); a formula of politeness says little
about the mood of the person using it (Brown & Levinson 1987), so it weighs little, and its regrets nothing.
"""

import re

from pipeline.analysis.language import Pack
from pipeline.analysis.talk import Said
from pipeline.domain.speech import Role

PATTERNS = {"warm": 1.0, "care": 0.7, "laughter": 0.7, "wishes": 0.4, "complaint": -1.0, "strong": -1.5}
WORDS = {"positive": 0.7, "polite": 0.1, "negative": -0.8, "trouble": -0.25}
INTENSIFIED, NEGATED = 1.5, -0.6
REACH = 3  # words after a negation or an intensifier that it bears on
EXCLAIMED = 0.3  # added to what a turn with an exclamation mark is already
MOST = 2.5  # of one turn, either way


def weigh(said: Said) -> float:
    """Below 0 displeased, above 0 pleased, at most `MOST` either way; 0 without words of either kind.

    What our side says of trouble is its work, not its mood: such words do not count for a rep.
    """
    text = said.text.lower()
    for pattern in said.pack.patterns("tone", "neutral"):
        text = pattern.sub(" . ", text)
    total = 0.0
    for key, weight in PATTERNS.items():
        for pattern in said.pack.patterns("tone", key):
            text, found = pattern.subn(" . ", text)
            total += weight * min(found, 2)
    total += _words(text, said.pack, said.role is Role.REP)
    if "!" in said.text and total:
        total += EXCLAIMED if total > 0 else -EXCLAIMED
    return max(-MOST, min(MOST, total))


def _words(text: str, pack: Pack, rep: bool) -> float:
    weights = [(pack.words("tone", key), weight) for key, weight in WORDS.items() if not (rep and key == "trouble")]
    negations, intensifiers = pack.words("tone", "negations"), pack.words("tone", "intensifiers")
    total, turned, raised = 0.0, 0, 0
    for token in re.findall(r"[\w'-]+|[.,!?;:]", text):
        if not token[0].isalnum():
            turned = raised = 0
        elif token in negations:
            turned = REACH
        elif token in intensifiers:
            raised = REACH
        else:
            weight = sum(weight for words, weight in weights if token in words)
            total += weight * (INTENSIFIED if raised else 1.0) * (NEGATED if turned else 1.0)
            turned, raised = max(0, turned - 1), max(0, raised - 1)
    return total
