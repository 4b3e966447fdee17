"""Phrases in a transcript, word by word: case, accents, punctuation and inflection aside.

A word ending in `*` is any word that begins so; `...` is up to `MOST_BETWEEN` words of any kind.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import snowballstemmer

from pipeline.analysis.rules.people.phonetics import folded
from pipeline.analysis.talk import Said
from pipeline.language.names import name
from pipeline.language.pack import straighten

MOST_BETWEEN = 5  # words that `...` stands for
GAP = "..."
_TOKEN = re.compile(r"[぀-ヿ㐀-鿿豈-﫿฀-๿]|[^\W_]+(?:'[^\W\d_]+)*")  # scripts without spaces by the sign
_IN_PHRASE = re.compile(rf"\.\.\.|…|(?:{_TOKEN.pattern})\*?")


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a turn: without case and accents, its stem, and its characters in the turn's text."""

    text: str
    stem: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SaidPhrase:
    """A phrase in a turn: characters `first`..`last` of its text."""

    said: Said
    first: int
    last: int


@lru_cache(maxsize=50_000)
def stem(word: str, language: str) -> str:
    """The stem of a word in lower case, without accents; the word itself where the language has no stemmer."""
    named = name(language).lower()
    if named not in snowballstemmer.algorithms():
        return folded(word)
    return folded(snowballstemmer.stemmer(named).stemWord(word))  # a new one: it holds the word that it works on


@lru_cache(maxsize=4096)
def tokens(text: str, language: str) -> tuple[Token, ...]:
    """The words of a text, in order."""
    found = _TOKEN.finditer(straighten(text))
    return tuple(Token(folded(m[0]), stem(m[0].lower(), language), m.start(), m.end()) for m in found)


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
    made: list[_Element] = []
    for part in _IN_PHRASE.findall(straighten(phrase)):
        if part in (GAP, "…"):
            made.append(_GAP)
        elif part.endswith("*"):
            made.append(_Element(folded(part[:-1]), prefix=True))
        else:
            made.append(_Element(folded(part), stem(part.lower(), language)))
    while made and made[-1] is _GAP:
        made.pop()
    while made and made[0] is _GAP:
        made.pop(0)
    return tuple(made)


def _end(elements: Sequence[_Element], at: int, words: Sequence[Token], place: int) -> int | None:
    """The place behind the last word if the elements from `at` match the words from `place`."""
    if at == len(elements):
        return place
    if elements[at] is _GAP:
        for skipped in range(MOST_BETWEEN + 1):
            if (end := _end(elements, at + 1, words, place + skipped)) is not None:
                return end
        return None
    if place >= len(words) or not elements[at].matches(words[place]):
        return None
    return _end(elements, at + 1, words, place + 1)


def find(phrases: Iterable[str], said: Said, language: str) -> Iterator[SaidPhrase]:
    """Each place of a turn where one of the phrases is said, phrase by phrase."""
    words, known = tokens(said.turn.text, language), _known(said.turn.text, language)
    for phrase in phrases:
        elements = _elements(phrase, language)
        here = all(one.prefix or one is _GAP or one.text in known or one.stem in known for one in elements)
        for place in range(len(words) if elements and here else 0):
            if (end := _end(elements, 0, words, place)) is not None:
                yield SaidPhrase(said, words[place].first, words[end - 1].last)
