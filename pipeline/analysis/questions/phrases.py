"""Finds phrases in a call word by word, regardless of case, accents, punctuation and inflection.

A word ending in `*` matches any word with this prefix; `...` matches up to `MAX_BETWEEN` words. The words of a call
are indexed once, so that a phrase is compared only where its rarest word occurs, and the comparisons are limited.
"""

import logging
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

import snowballstemmer

from pipeline.analysis.evidence import quote
from pipeline.analysis.rules import dates
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns, read
from pipeline.domain.insight import Evidence, Material
from pipeline.domain.questions import GAPS, MAX_BETWEEN, MAX_GAPS, PART, WORD, fault_of
from pipeline.domain.speech import Transcript, places_of
from pipeline.language.identification import name
from pipeline.language.pack import Pack, pack, straighten
from pipeline.language.spoken.amounts import amounts
from pipeline.language.spoken.phonetics import folded

MIN_COMPARISONS = 10_000  # of a question in any call
MAX_COMPARISONS_PER_WORD = 10  # in a longer call; a hundred phrases of the most frequent words need 1.3
COMPARISONS_OF_A_QUOTE = 20  # which take as long as the quote of a match
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a turn: without case and accents, its stem, and its characters in the turn's text."""

    text: str
    stem: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PhraseMatch:
    """A phrase in a turn: characters `first`..`last` of its text."""

    turn: SpokenTurn
    first: int
    last: int


Span = tuple[int, int]
"""The places of the first and last word of a match in the call; the last is negative, so that the longest sorts first.
"""


class TooManyComparisons(Exception):
    """The phrases of a question match too many words of the call."""


@dataclass(slots=True)
class Comparisons:
    """The comparisons that are left to a question. They are counted, not timed: equal calls get equal answers."""

    remaining: int

    def spend(self, count: int) -> None:
        """Raises `TooManyComparisons`."""
        self.remaining -= count
        if self.remaining < 0:
            raise TooManyComparisons


@lru_cache(maxsize=50_000)
def stem(word: str, language: str) -> str:
    """Return the stem of a word in lower case, without accents; the word itself if the language has no stemmer."""
    algorithm = name(language).lower()
    if algorithm not in snowballstemmer.algorithms():
        return folded(word)
    return folded(snowballstemmer.stemmer(algorithm).stemWord(word))  # new each time: stemmers have state


@lru_cache(maxsize=32)  # the text of a whole call
def tokens(text: str, language: str) -> tuple[Token, ...]:
    matches = WORD.finditer(straighten(text))
    return tuple(Token(folded(m[0]), stem(m[0].lower(), language), m.start(), m.end()) for m in matches)


@dataclass(frozen=True, slots=True)
class _Element:
    """A word of a phrase with its stem, or the beginning of a word. `between`: words allowed before it."""

    text: str
    stem: str
    prefix: bool
    between: int


_Elements = tuple[_Element, ...]


@lru_cache(maxsize=500)
def ignored(phrases: tuple[str, ...]) -> tuple[str, ...]:
    """Return the phrases that are not looked for: an earlier version has stored them."""
    faulty = tuple(phrase for phrase in phrases if fault_of(phrase))
    if faulty:
        log.warning("%d phrases are ignored: they have no word or match every word; change them", len(faulty))
    return faulty


@lru_cache(maxsize=500)  # a workspace has 100 questions
def _compiled(phrases: tuple[str, ...], language: str) -> tuple[_Elements, ...]:
    return tuple(_elements(phrase, language) for phrase in phrases if phrase not in ignored(phrases))


def _elements(phrase: str, language: str) -> _Elements:
    elements: list[_Element] = []
    between = 0
    for part in PART.findall(straighten(phrase)):
        if part in GAPS:
            between = min(between + MAX_BETWEEN, MAX_BETWEEN * MAX_GAPS)
            continue
        is_prefix = part.endswith("*")
        word_stem = "" if is_prefix else stem(part.lower(), language)
        elements.append(_Element(folded(part.removesuffix("*")), word_stem, is_prefix, between if elements else 0))
        between = 0
    return tuple(elements)


_Places = dict[int, None]  # in order


@dataclass(slots=True)
class _LanguageIndex:
    """The places of the words of one language, by text and by stem."""

    by_text: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    by_stem: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    texts: list[str] = field(default_factory=list)  # sorted
    places: dict[tuple[str, str, bool], _Places] = field(default_factory=dict)

    def places_of(self, element: _Element) -> _Places:
        key = (element.text, element.stem, element.prefix)
        if key not in self.places:
            self.places[key] = self._with_prefix(element.text) if element.prefix else self._with_form(element)
        return self.places[key]

    def _with_form(self, element: _Element) -> _Places:
        same_text, same_stem = self.by_text.get(element.text, []), self.by_stem.get(element.stem, [])
        return dict.fromkeys(sorted({*same_text, *same_stem}))

    def _with_prefix(self, prefix: str) -> _Places:
        if not self.texts:
            self.texts.extend(sorted(self.by_text))
        places: list[int] = []
        for at in range(bisect_left(self.texts, prefix), len(self.texts)):
            if not self.texts[at].startswith(prefix):
                break
            places += self.by_text[self.texts[at]]
        return dict.fromkeys(sorted(places))


class CallWords:
    """The words of a call's people, numbered in order; between two turns are more places than any `...` spans."""

    def __init__(self, turns: Turns, language: str) -> None:
        self._tokens: dict[int, tuple[SpokenTurn, Token]] = {}
        self._indexes: dict[str, _LanguageIndex] = defaultdict(_LanguageIndex)
        self._words = {turn.turn.index: places_of(turn.turn.words) for turn in turns}
        place = 0
        for turn in turns:
            of_turn = (turn.turn.language if turn.turn.language not in ("", "und") else language)[:2]
            index = self._indexes[of_turn]
            for token in tokens(turn.turn.text, of_turn):
                self._tokens[place] = turn, token
                index.by_text[token.text].append(place)
                index.by_stem[token.stem].append(place)
                place += 1
            place += MAX_BETWEEN * MAX_GAPS + 1

    def comparisons(self) -> Comparisons:
        """Return the comparisons that a question may take."""
        return Comparisons(max(MIN_COMPARISONS, MAX_COMPARISONS_PER_WORD * len(self._tokens)))

    def quote(self, match: PhraseMatch) -> Evidence:
        return quote(match.turn.turn, match.first, match.last, self._words[match.turn.turn.index])

    def match(self, span: Span) -> PhraseMatch:
        turn, token = self._tokens[span[0]]
        return PhraseMatch(turn, token.first, self._tokens[-span[1]][1].last)

    def find(self, phrases: tuple[str, ...], comparisons: Comparisons, spans: set[Span]) -> None:
        """Add each match of the phrases to `spans`. Raises `TooManyComparisons`, after those of the first phrases."""
        for language, index in self._indexes.items():
            for elements in _compiled(phrases, language):
                spans.update(_spans(elements, index, comparisons))


def _spans(elements: _Elements, index: _LanguageIndex, comparisons: Comparisons) -> Iterable[Span]:
    """Return the matches of a phrase: the shortest at each place."""
    places: list[_Places] = []
    for element in elements:
        places.append(index.places_of(element))
        comparisons.spend(1)
        if not places[-1]:
            return ()
    reached = [_starts(elements, places, comparisons)]
    for element, of_element in zip(elements[1:], places[1:], strict=True):
        comparisons.spend(len(reached[-1]) * (element.between + 1))
        skips = range(1, element.between + 2)
        reached.append({place + skip for place in reached[-1] for skip in skips if place + skip in of_element})
    ends = {place: -place for place in reached[-1]}
    for element, before in zip(reversed(elements[1:]), reversed(reached[:-1]), strict=True):
        comparisons.spend(len(before) * (element.between + 1))
        skips = range(1, element.between + 2)
        following = ((place, next((place + skip for skip in skips if place + skip in ends), None)) for place in before)
        ends = {place: ends[next_place] for place, next_place in following if next_place is not None}
    return ends.items()


def _starts(elements: _Elements, places: list[_Places], comparisons: Comparisons) -> set[int]:
    """Return the places of the first word from which the rarest word is in reach."""
    rarest = min(range(len(places)), key=lambda at: len(places[at]))
    widest = sum(element.between for element in elements[1 : rarest + 1])
    comparisons.spend(len(places[rarest]) * (widest + 1))
    distances = range(rarest, rarest + widest + 1)
    return {place - back for place in places[rarest] for back in distances if place - back in places[0]}


_last: list[tuple[Transcript, CallWords]] = []  # max. one: every question is about the same transcript


def words_of(material: Material) -> CallWords:
    """Return the indexed words of the people in a call."""
    transcript = material.transcript
    words = next((words for last, words in _last[:] if last is transcript), None)
    if words is None:
        words = CallWords(read(material), transcript.language or "")
        _last[:] = [(transcript, words)]
    return words


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
