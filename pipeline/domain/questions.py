import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, Literal

QuestionType = Literal["yes/no", "choice", "number", "text", "date", "tracker"]
AskedParty = Literal["rep", "customer", "anyone"]
SAID, NOT_SAID = "said", "not said"  # what an answer comes to that is neither yes nor no nor a choice


@dataclass(frozen=True, slots=True)
class Question:
    """A question in plain words, or a tracker. Without limits it applies to every call and to the whole call.

    `first`, `last`: minutes from the first, or before the last, word of a person. `unless`: a phrase does not count in
    a sentence with one of these. `choices`: each with its phrases. `finding`: a tracker of this finding instead of
    phrases. `required`: a tracker is raised if it is missing.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    key: str
    type: QuestionType = "yes/no"
    question: str = ""
    party: AskedParty = "anyone"
    first: float | None = None
    last: float | None = None
    outgoing: bool | None = None
    languages: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()  # ids
    phrases: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    finding: Literal["recording_notice"] | None = None
    required: bool = False
    weight: float = 1.0
    version: int = 0  # counted by the database

    @property
    def has_phrases(self) -> bool:
        """Whether it can be answered without a model."""
        return bool(self.phrases) or any(self.choices.values())

    @property
    def phrase_characters(self) -> int:
        """The length of all its phrases, including those of `unless` and the choices."""
        return sum(map(len, chain(self.phrases, self.unless, *self.choices.values())))


@dataclass(frozen=True, slots=True)
class ScorecardItem:
    """A question or tracker on a scorecard, by its key.

    `points`: the share of the weight, 0..1, that an outcome earns; none given: see `points_of`. `weight`: None: that of
    the question. `auto_fail`: the whole call scores 0 where this earns nothing.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    question: str
    section: str = ""
    weight: float | None = None
    points: dict[str, float] = field(default_factory=dict)
    auto_fail: bool = False


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Questions that score a call. Without limits it applies to every call. `pass_mark`: the score that passes."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    key: str
    type: Literal["scorecard"] = "scorecard"
    title: str = ""
    pass_mark: float | None = None
    outgoing: bool | None = None
    languages: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()  # ids
    items: tuple[ScorecardItem, ...] = ()
    version: int = 0  # counted by the database


Defined = Question | Scorecard
"""What a workspace defines in a file."""


def outcomes_of(question: Question) -> tuple[str, ...]:
    """Return the possible outcomes of an answer, the keys of `points`."""
    if question.type == "yes/no":
        return ("yes", "no")
    return (*(question.choices or (SAID,)), NOT_SAID)


def points_of(question: Question) -> dict[str, float]:
    """Return the default points: full for "yes", any other answer, and a tracker that is not raised."""
    if question.type == "tracker":
        return {SAID: float(question.required), NOT_SAID: float(not question.required)}
    *good, bad = outcomes_of(question)
    return {**dict.fromkeys(good, 1.0), bad: 0.0}


def faults_of(card: Scorecard, asked: Mapping[str, Question]) -> Iterator[tuple[int, str]]:
    """Yield the number of each invalid item of a scorecard and a sentence about it. `asked`: questions by key."""
    for at, item in enumerate(card.items):
        question = asked.get(item.question)
        if question is None:
            yield at, f"items[{at}].question: there is no question or tracker {item.question!r}."
            continue
        for name in item.points:
            if name not in outcomes_of(question):
                outcomes = ", ".join(outcomes_of(question))
                yield at, f"items[{at}].points: {name!r} is no outcome of {item.question!r}; there are: {outcomes}."


# The syntax of phrases: words, `*` at the end of a word for any ending, and `...` for up to `MAX_BETWEEN` words.
MAX_BETWEEN = 5  # words that `...` stands for
MAX_GAPS = 3  # of a phrase
GAPS = ("...", "…")
WORD = re.compile(r"[぀-ヿ㐀-鿿豈-﫿฀-๿]|[^\W_]+(?:'[^\W\d_]+)*")  # one character for scripts without spaces
PART = re.compile(rf"\.\.\.|…|(?:{WORD.pattern})\*?")


def fault_of(phrase: str) -> str | None:
    """Return why a phrase cannot be looked for, and what to do; None if it can be."""
    words = [part for part in PART.findall(phrase) if part not in GAPS]
    if any(part.endswith("*") and not _has_letters(part[:-1]) for part in words):
        return "must not match every word; write letters before each *, such as cancel*, or remove it"
    return None if any(map(_has_letters, words)) else "must contain a word"


def _has_letters(word: str) -> bool:
    """Return whether anything is left of a word without its accents, which do not count in a comparison."""
    return not all(map(unicodedata.combining, unicodedata.normalize("NFKD", word)))


def has_lone_star(phrase: str) -> bool:
    """Return whether a `*` ends no word."""
    return "*" in PART.sub("", phrase)
