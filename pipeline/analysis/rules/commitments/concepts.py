"""Concepts of a clause: who, what kind of deed, when; the same in every language, so that one learns from another."""

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import combinations, pairwise

from pipeline.language.pack import pack

GRAMMAR = frozenset(
    [
        "i",
        "we",
        "you",
        "they",
        "it",
        "person",
        "will",
        "would",
        "past",
        "can",
        "must",
        "want",
        "not",
        "if",
        "once",
        "because",
        "then",
        "please",
        "ask_who",
        "think",
        "say",
        "live",
        "be",
        "have",
    ]
)
"""Concepts that are no deed."""
FORMS = {
    "FUT1": ("i", "will"),
    "FUT2": ("you", "will"),
    "FUT3": ("they", "will"),
    "COND": ("would",),
    "PAST": ("past",),
    "IMPF": ("past",),
    "PART": ("done",),
    "PRES1P": ("we",),
    "O": ("i",),
    "INF": ("inf",),
    "VOUS": ("you",),
}
"""What the ending of a verb adds, by the form that a pack's `endings` names."""
_PART = re.compile(r"\w+'?")


def of_words(language: str, words: Iterable[str]) -> list[frozenset[str]]:
    """Return the concepts of each word that has any, in order; a deadline ("§day") is one."""
    return [concepts for word in words for part in _parts(language, word) if (concepts := part)]


def in_order(language: str, words: Iterable[str]) -> Iterator[str]:
    """Yield features: each concept, each pair in the clause, and each pair of neighbors."""
    concepts = of_words(language, words)
    present = sorted(frozenset().union(*concepts))
    yield from (f"k {concept}" for concept in present)
    yield from (f"k {first}+{second}" for first, second in combinations(present, 2))
    for earlier, later in pairwise(concepts):
        yield from (f"k {first}>{second}" for first in earlier for second in later)
    yield from (f"k ^{concept}" for concept in (concepts[0] if concepts else ()))


def deeds(language: str, words: Iterable[str]) -> frozenset[str]:
    return frozenset().union(*of_words(language, words)) - GRAMMAR


@lru_cache(maxsize=65536)
def _parts(language: str, word: str) -> tuple[frozenset[str], ...]:
    if word[0] in "§?":
        return (frozenset({word}),)
    whole = _concepts(language, word)
    if whole or not ("'" in word or "-" in word):
        return (whole,)
    return tuple(_concepts(language, part) for part in _PART.findall(word))


def _concepts(language: str, word: str) -> frozenset[str]:
    whole, stems = _listed(language)
    concepts = set(whole.get(word, ()))
    concepts.update(concept for stem, concept in stems if word.startswith(stem))
    if concepts - GRAMMAR or not concepts:
        concepts.update(_of_ending(language, word) if concepts else ())
    return frozenset(concepts)


def _of_ending(language: str, word: str) -> tuple[str, ...]:
    for form, endings in pack(language).get("tasks", "endings", []):
        if word.endswith(tuple(endings)):
            return FORMS.get(form, ())
    return ()


@cache
def _listed(language: str) -> tuple[dict[str, set[str]], tuple[tuple[str, str], ...]]:
    whole: dict[str, set[str]] = {}
    stems: list[tuple[str, str]] = []
    for concept, words in pack(language).get("tasks", "concepts", {}).items():
        for word in words.split():
            if word.endswith("*"):
                stems.append((word[:-1], concept))
            else:
                whole.setdefault(word, set()).add(concept)
    return whole, tuple(stems)
