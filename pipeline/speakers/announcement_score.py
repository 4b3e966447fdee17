"""Evidence in words for an announcement: patterns and fitted weights by language, in log odds.

`announcements/LANGUAGE.json` has regular expressions on text in the form of `plain`, by kind (`WEIGHTS`): phrases of
menus, queues, mailboxes, conferences and failed calls, and phrases that only people use. `sets` are parts that patterns
share, as {NAME}.

`announcements/words/LANGUAGE.tsv` has weights of words and word pairs, a logistic regression fitted by
`bench/training/announcements/fit.py` on real prompts and on people's words in calls. The prior of the corpus is
subtracted, so the sum is evidence, not a probability.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).parent / "announcements"
WORDS_FOLDER = FOLDER / "words"
SCALE = 100  # fitted weights are stored as integer hundredths
MIN_WORDS = 3  # fewer are no evidence
WEIGHTS = {
    "sure": 4.5,
    "likely": 2.5,
    "voicemail": 2.5,
    "recording_notice": 1.5,
    "hint": 1.0,
    "person": -1.2,
    "reported": -8.0,
}
"""Log odds for a machine of each matching pattern of a kind."""
MAX_COUNTS = {"sure": 2, "likely": 2, "voicemail": 2, "recording_notice": 1, "hint": 2, "person": 3, "reported": 1}
"""Max. number of patterns of a kind that count."""
LEARNED = (-1.5, 2.5)
"""Bounds of the fitted weights: they are from few texts, and overlap with the patterns."""


@dataclass(frozen=True, slots=True)
class AnnouncementScore:
    """Evidence in a stretch of words. `score` is in log odds for a machine."""

    score: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)  # matching patterns by kind, max. `MAX_COUNTS`
    words: str = ""  # that indicate a machine, as `plain` text


def evidence(text: str, language: str, learned: bool = True) -> AnnouncementScore:
    """Return the evidence in a text; none for a language without a file. `learned`: include fitted weights."""
    patterns = patterns_of(language)
    if not patterns:
        return AnnouncementScore()
    words = plain(text).replace("ß", "ss")
    counts: dict[str, int] = {}
    machine_words: list[str] = []
    for kind, kind_patterns in patterns.items():
        matches = [match.group() for pattern in kind_patterns if (match := pattern.search(words))]
        if matches:
            counts[kind] = min(len(matches), MAX_COUNTS[kind])
            if WEIGHTS[kind] > 0 and kind != "hint":
                machine_words += matches
    score = sum(WEIGHTS[kind] * count for kind, count in counts.items())
    if learned:
        score += min(max(log_odds(words, weights_of(language)), LEARNED[0]), LEARNED[1])
    return AnnouncementScore(score, counts, "; ".join(machine_words))


@cache
def patterns_of(language: str) -> dict[str, tuple[re.Pattern[str], ...]]:
    path = FOLDER / f"{language}.json"
    if not path.is_file():
        return {}
    lists = json.loads(path.read_text(encoding="utf-8"))
    sets: dict[str, str] = lists.pop("sets")
    return {
        kind: tuple(re.compile(_filled(pattern, sets)) for pattern in kind_patterns)
        for kind, kind_patterns in lists.items()
    }


def _filled(pattern: str, sets: Mapping[str, str]) -> str:
    for name, value in sets.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return "".join(c for c in unicodedata.normalize("NFD", pattern) if not unicodedata.combining(c))


def features(text: str) -> frozenset[str]:
    """Return the words of a `plain` text and its pairs of neighbors, with "#" for numbers."""
    words = ["#" if word.isdigit() else word for word in text.split()]
    return frozenset((*words, *(f"{a} {b}" for a, b in pairwise(words))))


def log_odds(text: str, weights: Mapping[str, int]) -> float:
    """Return the log odds for a machine by a `plain` text's words; 0 for few words or without weights."""
    if not weights or len(text.split()) < MIN_WORDS:
        return 0.0
    return (weights[""] + sum(weights.get(feature, 0) for feature in features(text))) / SCALE


@cache
def weights_of(language: str) -> dict[str, int]:
    """Return the weight of each feature in hundredths, always including "" (the bias); empty without a file."""
    path = WORDS_FOLDER / f"{language}.tsv"
    if not path.is_file():
        return {}
    rows = (line.rpartition("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {feature: int(weight) for feature, _, weight in rows}


def plain(text: str) -> str:
    """Return lower case without accents, punctuation (except apostrophes) and repeated spaces, to compare phrases."""
    text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(c))
    return " ".join(re.sub(r"[^\w' ]", " ", text.replace("’", "'")).split())
