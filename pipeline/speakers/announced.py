"""How much words are those of an announcement: patterns and learned weights by language, in log odds.

`announcements/LANGUAGE.json` holds regular expressions on text as `plain` makes it, by kind (`WEIGHTS`): what menus,
queues, mailboxes, conferences and failed calls say, and what only people say. `sets` are parts that patterns share, as
{NAME}. What the patterns do not name, `machine_words.py` may know.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

from pipeline.speakers.plain import plain

FOLDER = Path(__file__).parent / "announcements"
WEIGHTS = {
    "sure": 4.5,
    "likely": 2.5,
    "voicemail": 2.5,
    "recording_notice": 1.5,
    "hint": 1.0,
    "person": -1.2,
    "reported": -8.0,
}
"""Log odds for "a machine says this" of each pattern of a kind that is found."""
MOST = {"sure": 2, "likely": 2, "voicemail": 2, "recording_notice": 1, "hint": 2, "person": 3, "reported": 1}
"""How many patterns of a kind count."""
LEARNED = (-1.5, 2.5)
"""Between these bounds the learned weights count: they were fitted on few texts, and overlap with the patterns."""


@dataclass(frozen=True, slots=True)
class AnnouncementScore:
    """What a stretch of words says about who speaks. `score` is in log odds for a machine."""

    score: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)  # patterns found, by kind, at most `MOST`
    words: str = ""  # what tells a machine, as `plain` text


def evidence(text: str, language: str, learned: bool = True) -> AnnouncementScore:
    """The evidence in a text; none in a language without a file. `learned`: whether the learned weights count too."""
    patterns = patterns_of(language)
    if not patterns:
        return AnnouncementScore()
    said = plain(text).replace("ß", "ss")
    counts: dict[str, int] = {}
    telling: list[str] = []
    for kind, own in patterns.items():
        found = [match.group() for pattern in own if (match := pattern.search(said))]
        if found:
            counts[kind] = min(len(found), MOST[kind])
            if WEIGHTS[kind] > 0 and kind != "hint":
                telling += found
    score = sum(WEIGHTS[kind] * count for kind, count in counts.items())
    if learned:
        score += min(max(log_odds(said, weights_of(language)), LEARNED[0]), LEARNED[1])
    return AnnouncementScore(score, counts, "; ".join(telling))


@cache
def patterns_of(language: str) -> dict[str, tuple[re.Pattern[str], ...]]:
    """The patterns of a language by kind; none where it has no file."""
    path = FOLDER / f"{language}.json"
    if not path.is_file():
        return {}
    lists = json.loads(path.read_text(encoding="utf-8"))
    sets: dict[str, str] = lists.pop("sets")
    return {kind: tuple(re.compile(_filled(pattern, sets)) for pattern in own) for kind, own in lists.items()}


def _filled(pattern: str, sets: Mapping[str, str]) -> str:
    for name, value in sets.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return "".join(c for c in unicodedata.normalize("NFD", pattern) if not unicodedata.combining(c))


WORDS_FOLDER = Path(__file__).parent / "announcements" / "words"


SCALE = 100  # weights are kept as whole hundredths


LEAST_WORDS = 3  # fewer say too little


def features(said: str) -> frozenset[str]:
    """The words of a `plain` text and its pairs of neighbors; numbers are "#", since digits say nothing."""
    words = ["#" if word.isdigit() else word for word in said.split()]
    return frozenset((*words, *(f"{a} {b}" for a, b in pairwise(words))))


def log_odds(said: str, weights: Mapping[str, int]) -> float:
    """Evidence, in log odds, that a machine says a `plain` text; 0 of few words and without weights."""
    if not weights or len(said.split()) < LEAST_WORDS:
        return 0.0
    return (weights[""] + sum(weights.get(one, 0) for one in features(said))) / SCALE


@cache
def weights_of(language: str) -> dict[str, int]:
    """The weight of each feature, in hundredths; that of "" is there in any case. Empty without a file."""
    path = WORDS_FOLDER / f"{language}.tsv"
    if not path.is_file():
        return {}
    rows = (line.rpartition("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {feature: int(weight) for feature, _, weight in rows}
