"""A transcript beside the known words: how many are wrong."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rapidfuzz.distance import Levenshtein

MACHINE = "machine"  # role of an announcement or a voicemail greeting
ROLES = ("rep", "customer", MACHINE)
LONGEST = 4  # words of a number: "two hundred and ten"


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


def words_of(text: str, language: str | None = None) -> list[str]:
    """Lower-case words without punctuation.

    With a `language` that the analysis has a pack of, numbers are compared as figures, one word for each: "$200" and
    "two hundred dollars", "4729" and "four seven two nine" are the same.
    """
    plain = re.sub(r"\$\s?([\d.,]*\d)", r"\1 dollars ", text.lower())
    words = re.sub(r"[^\w' ]", " ", plain.replace("-", " ")).split()
    return words if language is None else list(_with_figures(words, language))


def word_errors(said: str, heard: str, language: str | None = None) -> WordErrors:
    """The Levenshtein distance over words: what the word error rate counts."""
    reference = words_of(said, language)
    return WordErrors(Levenshtein.distance(reference, words_of(heard, language)), len(reference))


def turns_by_role(transcript: Any) -> list[tuple[str, str]]:
    """(role, text) of each turn; what a machine says has the role `MACHINE`."""
    roles = {speaker.label: str(speaker.role) for speaker in transcript.speakers}
    return [(MACHINE if turn.machine else roles[turn.speaker], turn.text) for turn in transcript.turns]


def compare(expected: dict[str, Any], turns: Iterable[tuple[str, str]], separated: bool) -> WordErrors:
    """Word errors of a call's `turns` (role, text).

    Where channels are separated each role is compared with what that party said: a word under the wrong name is wrong
    twice. In a mixed recording all words are compared in the order of time.
    """
    turns, language = list(turns), expected.get("language")
    segments = sorted(expected["segments"], key=lambda segment: float(segment["start"]))
    if not separated:
        heard = " ".join(text for _, text in turns)
        return word_errors(" ".join(segment["text"] for segment in segments), heard, language)
    total = WordErrors(0, 0)
    for role in ROLES:
        said = " ".join(segment["text"] for segment in segments if segment["speaker"] == role)
        total += word_errors(said, " ".join(text for speaker, text in turns if speaker == role), language)
    strangers = " ".join(text for speaker, text in turns if speaker not in ROLES)
    return total + WordErrors(len(words_of(strangers, language)), 0)


def _with_figures(words: list[str], language: str) -> Iterable[str]:
    """`words` with every number as its figures, each a word."""
    from pipeline.analysis.rules.numbers import number
    from pipeline.language.pack import pack

    known = pack(language)
    first = 0
    while first < len(words):
        for last in range(min(len(words), first + LONGEST), first, -1):
            value = number(" ".join(words[first:last]), known)
            if value is not None:
                yield from words[first] if words[first].isdigit() and last == first + 1 else str(value)
                break
        else:
            yield words[first]
        first = last
