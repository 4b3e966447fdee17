import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rapidfuzz.distance import Levenshtein

MACHINE = "machine"  # role of an announcement or a voicemail greeting
ROLES = ("rep", "customer", MACHINE)
MAX_NUMBER_WORDS = 4  # "two hundred and ten"


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Words substituted, dropped or invented, of the words of the reference."""

    wrong: int
    words: int

    @property
    def rate(self) -> float:
        return self.wrong / self.words if self.words else float(self.wrong > 0)

    def __add__(self, other: "WordErrors") -> "WordErrors":
        return WordErrors(self.wrong + other.wrong, self.words + other.words)


def words_of(text: str, language: str | None = None) -> list[str]:
    """Return lower-case words without punctuation.

    With a `language` that the analysis has a pack for, numbers are compared as figures, one word for each: "$200" and
    "two hundred dollars", "4729" and "four seven two nine" are the same.
    """
    plain = re.sub(r"\$\s?([\d.,]*\d)", r"\1 dollars ", text.lower())
    words = re.sub(r"[^\w' ]", " ", plain.replace("-", " ")).split()
    return words if language is None else list(_with_figures(words, language))


def word_errors(reference_text: str, hypothesis: str, language: str | None = None) -> WordErrors:
    """Return the Levenshtein distance over words, as in the word error rate."""
    reference_words = words_of(reference_text, language)
    return WordErrors(Levenshtein.distance(reference_words, words_of(hypothesis, language)), len(reference_words))


def turns_by_role(transcript: Any) -> list[tuple[str, str]]:
    roles = {speaker.label: str(speaker.role) for speaker in transcript.speakers}
    return [(MACHINE if turn.machine else roles[turn.speaker], turn.text) for turn in transcript.turns]


def compare(expected: dict[str, Any], turns: Iterable[tuple[str, str]], separated: bool) -> WordErrors:
    """Return the word errors of a call's `turns` (role, text).

    With separated channels each role is compared with that party's words: a word of the wrong role counts twice. In a
    mixed recording all words are compared in the order of time.
    """
    turns, language = list(turns), expected.get("language")
    segments = sorted(expected["segments"], key=lambda segment: float(segment["start"]))
    if not separated:
        hypothesis = " ".join(text for _, text in turns)
        return word_errors(" ".join(segment["text"] for segment in segments), hypothesis, language)
    total = WordErrors(0, 0)
    for role in ROLES:
        reference = " ".join(segment["text"] for segment in segments if segment["speaker"] == role)
        total += word_errors(reference, " ".join(text for speaker, text in turns if speaker == role), language)
    strangers = " ".join(text for speaker, text in turns if speaker not in ROLES)
    return total + WordErrors(len(words_of(strangers, language)), 0)


def _with_figures(words: list[str], language: str) -> Iterable[str]:
    """Yield `words` with every number as figures, one word per digit string."""
    from pipeline.language.pack import pack
    from pipeline.language.spoken.numbers import number

    language_pack = pack(language)
    first = 0
    while first < len(words):
        for last in range(min(len(words), first + MAX_NUMBER_WORDS), first, -1):
            value = number(" ".join(words[first:last]), language_pack)
            if value is not None:
                yield from words[first] if words[first].isdigit() and last == first + 1 else str(value)
                break
        else:
            yield words[first]
        first = last
