"""Finds phrases in a transcript word by word, regardless of case, accents, punctuation and inflection.

A word ending in `*` matches any word with this prefix; `...` matches up to `MAX_BETWEEN` words.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import snowballstemmer

from pipeline.analysis.rules.people.phonetics import folded
from pipeline.analysis.talk import SpokenTurn
from pipeline.language.identification import name
from pipeline.language.pack import straighten

MAX_BETWEEN = 5  # words that `...` stands for
GAP = "..."
_TOKEN = re.compile(r"[぀-ヿ㐀-鿿豈-﫿฀-๿]|[^\W_]+(?:'[^\W\d_]+)*")  # one character for scripts without spaces
_IN_PHRASE = re.compile(rf"\.\.\.|…|(?:{_TOKEN.pattern})\*?")


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


@lru_cache(maxsize=50_000)
def stem(word: str, language: str) -> str:
    """Return the stem of a word in lower case, without accents; the word itself if the language has no stemmer."""
    algorithm = name(language).lower()
    if algorithm not in snowballstemmer.algorithms():
        return folded(word)
    return folded(snowballstemmer.stemmer(algorithm).stemWord(word))  # new each time: stemmers have state


@lru_cache(maxsize=4096)
def tokens(text: str, language: str) -> tuple[Token, ...]:
    matches = _TOKEN.finditer(straighten(text))
    return tuple(Token(folded(m[0]), stem(m[0].lower(), language), m.start(), m.end()) for m in matches)


@lru_cache(maxsize=4096)
def _known(text: str, language: str) -> frozenset[str]:
    return frozenset(form for token in tokens(text, language) for form in (token.text, token.stem))


@dataclass(frozen=True, slots=True)
class _Element:
    """A part of a phrase: a word with its stem, the beginning of a word, or a gap."""

    text: str
    stem: str = ""
    prefix: bool = False

    def matches(self, token: Token) -> bool:
        if self.prefix:
            return token.text.startswith(self.text)
        return self.text == token.text or self.stem == token.stem


_GAP = _Element(GAP)


@lru_cache(maxsize=20_000)
def _elements(phrase: str, language: str) -> tuple[_Element, ...]:
    elements: list[_Element] = []
    for part in _IN_PHRASE.findall(straighten(phrase)):
        if part in (GAP, "…"):
            elements.append(_GAP)
        elif part.endswith("*"):
            elements.append(_Element(folded(part[:-1]), prefix=True))
        else:
            elements.append(_Element(folded(part), stem(part.lower(), language)))
    while elements and elements[-1] is _GAP:
        elements.pop()
    while elements and elements[0] is _GAP:
        elements.pop(0)
    return tuple(elements)


def _end(elements: Sequence[_Element], at: int, words: Sequence[Token], place: int) -> int | None:
    """Return the place after the last word if the elements from `at` match the words from `place`."""
    if at == len(elements):
        return place
    if elements[at] is _GAP:
        for skipped in range(MAX_BETWEEN + 1):
            if (end := _end(elements, at + 1, words, place + skipped)) is not None:
                return end
        return None
    if place >= len(words) or not elements[at].matches(words[place]):
        return None
    return _end(elements, at + 1, words, place + 1)


def find(phrases: Iterable[str], turn: SpokenTurn, language: str) -> Iterator[PhraseMatch]:
    """Yield each occurrence of the phrases in a turn, phrase by phrase."""
    words, forms = tokens(turn.turn.text, language), _known(turn.turn.text, language)
    for phrase in phrases:
        elements = _elements(phrase, language)
        whole_words = (element for element in elements if not element.prefix and element is not _GAP)
        may_match = all(element.text in forms or element.stem in forms for element in whole_words)
        for place in range(len(words) if elements and may_match else 0):
            if (end := _end(elements, 0, words, place)) is not None:
                yield PhraseMatch(turn, words[place].first, words[end - 1].last)
