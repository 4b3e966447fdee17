from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from pipeline.analysis.questions.phrases import PhraseMatch
from pipeline.analysis.rules import dates
from pipeline.analysis.talk import Sentence, SpokenTurn
from pipeline.domain.insight import Evidence, Material
from pipeline.language.pack import Pack, pack
from pipeline.language.spoken.amounts import amounts

MAX_TEXT = 300  # characters of an answer
_EDGES = " ,;:.!?…-"


@dataclass(frozen=True, slots=True)
class SpokenValue:
    """A value and its source, the characters `first`..`last` of the turn."""

    value: str | float
    first: int
    last: int


def sentence_of(turn: SpokenTurn, first: int) -> Sentence | None:
    at = bisect_right(turn.sentences, first, key=lambda sentence: sentence.first) - 1
    return turn.sentences[at] if at >= 0 and first < turn.sentences[at].last else None


def numbers(text: str, pack: Pack) -> Iterator[SpokenValue]:
    """Yield the numbers of a text, in figures or words, in order."""
    return (SpokenValue(amount.value, amount.first, amount.last) for amount in amounts(text, pack))


def value_of(kind: str, match: PhraseMatch, material: Material) -> SpokenValue | None:
    """Return the number, date or text of a phrase: after it in its sentence, else before it; a text only after it.

    Raises ZoneInfoNotFoundError for an unknown zone.
    """
    sentence = sentence_of(match.turn, match.first)
    if sentence is None:
        return None
    if kind == "text":
        return _text(match, sentence)
    if kind == "date":
        return _date(sentence, material)
    values = _numbers(sentence.text, sentence.pack.language, sentence.pack.country)
    placed = [SpokenValue(value.value, value.first + sentence.first, value.last + sentence.first) for value in values]
    behind = [value for value in placed if value.first >= match.last]
    before = [value for value in placed if value.last <= match.first]
    return behind[0] if behind else before[-1] if before else None


@lru_cache(maxsize=8192)  # the sentences of a day: each is read once, not for each match of each question
def _numbers(text: str, language: str | None, country: str | None) -> tuple[SpokenValue, ...]:
    return tuple(numbers(text, pack(language, country)))


def _date(sentence: Sentence, material: Material) -> SpokenValue | None:
    now = dates.local(material.call.start_time, material.roster.time_zone)
    value = _day(sentence.text, sentence.pack.language, sentence.pack.country, now)
    return value and SpokenValue(value.value, sentence.first + value.first, sentence.first + value.last)


@lru_cache(maxsize=8192)
def _day(text: str, language: str | None, country: str | None, now: datetime) -> SpokenValue | None:
    due = dates.find(text, pack(language, country), now)
    return SpokenValue(due.day.isoformat(), due.first, due.last) if due and due.day else None


def _text(match: PhraseMatch, sentence: Sentence) -> SpokenValue | None:
    """Return the rest of the sentence; if it is empty, the next sentence."""
    text = match.turn.turn.text
    rest = text[match.last : sentence.last].strip(_EDGES)
    if not rest:
        following = sentence_of(match.turn, min(sentence.last + 1, len(text) - 1))
        if following is None or following.first <= sentence.first:
            return None
        sentence, rest = following, text[following.first : following.last].strip(_EDGES)
    first = text.find(rest, min(match.last, sentence.last) if sentence.first <= match.first else sentence.first)
    return SpokenValue(rest[:MAX_TEXT], first, first + len(rest)) if rest else None


def mean_confidence(evidence: Evidence, turn: SpokenTurn) -> float:
    """Return the mean confidence of the words of a quote, 0..1."""
    confidences = [w.confidence for w in turn.turn.words if w.start >= evidence.start and w.end <= evidence.end]
    return round(sum(confidences) / len(confidences), 2) if confidences else 0.0
