"""A transcript beside the known words: how many are wrong."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rapidfuzz.distance import Levenshtein


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Words substituted, dropped or invented, of the words that were said."""

    wrong: int
    said: int

    @property
    def rate(self) -> float:
        return self.wrong / self.said if self.said else float(self.wrong > 0)

    def __add__(self, other: "WordErrors") -> "WordErrors":
        return WordErrors(self.wrong + other.wrong, self.said + other.said)


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return re.sub(r"[^\w' ]", " ", text.lower().replace("-", " ")).split()


def word_errors(said: str, heard: str) -> WordErrors:
    """The Levenshtein distance over words: what the word error rate counts."""
    reference = words_of(said)
    return WordErrors(Levenshtein.distance(reference, words_of(heard)), len(reference))


def compare(expected: dict[str, Any], turns: Iterable[tuple[str, str]], separated: bool) -> WordErrors:
    """Word errors of a call's `turns` (role, text).

    Where channels are separated each role is compared with what that party said: a word under the wrong name is wrong
    twice. In a mixed recording all words are compared in the order of time.
    """
    turns = list(turns)
    segments = sorted(expected["segments"], key=lambda segment: float(segment["start"]))
    if not separated:
        return word_errors(" ".join(s["text"] for s in segments), " ".join(text for _, text in turns))
    total = WordErrors(0, 0)
    for role in ("rep", "customer"):
        said = " ".join(segment["text"] for segment in segments if segment["speaker"] == role)
        total += word_errors(said, " ".join(text for speaker, text in turns if speaker == role))
    strangers = " ".join(text for speaker, text in turns if speaker not in ("rep", "customer"))
    return total + WordErrors(len(words_of(strangers)), 0)
