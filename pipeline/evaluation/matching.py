"""Match predicted tasks and contacts with the true ones.

A task matches if the words are similar (`likeness` of at least `ALIKE`, or `ALIKE_NEARBY` at about the same time); each
task matches once, the most similar first. Contact fields are compared as people would: names without titles, numbers
without their prefix, addresses by their numbers and words.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

ALIKE, ALIKE_NEARBY, NEARBY = 0.45, 0.25, 2  # min. likeness, min. likeness nearby, turns that count as nearby
_SMALL = """
a an the of to for with and or in on at by from that this it is be will would have has do does his her their our your
my me you he she they we i as so if not no el la los las un una de del al y o en con por para que se le lo su mi es
der die das den dem des ein eine einen und oder mit fur von zu im am an auf ist wird les une des du au aux et ou dans
avec pour sa son ses est l d s
"""
SMALL = frozenset(_SMALL.split())
ALIKE_WORDS = (
    "send email mail upload text forward share submit provide deliver",
    "photo picture image pic screenshot",
    "call phone ring",
    "fix repair",
    "visit come",
    "bring drop take",
    "quote quotation estimate price",
    "meeting appointment visit",
    "check inspect review",
    "enviar mandar remitir",
    "schicken mailen senden",
    "envoyer transmettre",
    "tell inform notify confirm",
    "cancel remove delete",
    "bill invoice",
)


def folded(text: str | None) -> str:
    plain = "".join(c for c in unicodedata.normalize("NFKD", text or "") if not unicodedata.combining(c))
    return plain.lower().replace("ß", "ss")


def stem(word: str) -> str:
    return re.sub(r"^(.{4,}?)(ing|ed|es|s)$", r"\1", word)[:5]


_SAME = {stem(word): stem(group.split()[0]) for group in reversed(ALIKE_WORDS) for word in group.split()}


def stems(text: str | None) -> set[str]:
    """Return the stems of content words; synonyms share a stem."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"\be-mail", "email", folded(text)))
    return {_SAME.get(stem(word), stem(word)) for word in words if word not in SMALL}


def dice(a: set[str], b: set[str]) -> float:
    """Return the Dice coefficient of two sets, 0..1."""
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


def likeness(predicted: str, expected: str, around: Sequence[str]) -> float:
    """Return how similar two tasks are, 0..1. `around`: the turns in which the true task was agreed."""
    words, target = stems(predicted), stems(expected)
    talk = target | stems(" ".join(around))
    best = dice(words, target)
    if len(words & target) >= 2 and len(words) <= 5 * len(target):
        best = max(best, 0.9 * len(words & target) / len(target))
    if len(words) >= 2 and words & talk:
        best = max(best, 0.85 * len(words & talk) / len(words) * (1 if words & target else 0.6))
    return max(best, 0.9 * SequenceMatcher(None, folded(predicted), folded(expected)).ratio() - 0.15)


def is_alike(similarity: float, is_near: bool) -> bool:
    """Return whether two tasks are the same, by similarity and whether they are near each other in the call."""
    return similarity >= ALIKE or (is_near and similarity >= ALIKE_NEARBY)


def best_pairs(ranked: Iterable[tuple[float, int, int]]) -> list[tuple[int, int]]:
    """Return pairs of indices (predicted, expected) by falling rank; each index occurs once."""
    chosen: list[tuple[int, int]] = []
    for _, i, j in sorted(ranked, reverse=True):
        if all(i != a and j != b for a, b in chosen):
            chosen.append((i, j))
    return chosen


def same_field(field: str, predicted: str | None, expected: str) -> bool:
    """Return whether a contact field (name, company, email, phone, address) matches the true value."""
    if not predicted:
        return False
    same = {"name": _same_name, "phone": _same_number, "address": _same_place}
    if field in same:
        return same[field](predicted, expected)
    return (
        folded(predicted).strip() == folded(expected).strip() if field == "email" else _alike(predicted, expected, 0.8)
    )


def _alike(a: str, b: str, min_similarity: float) -> bool:
    return (
        SequenceMatcher(None, folded(a), folded(b)).ratio() >= min_similarity
        or dice(stems(a), stems(b)) >= min_similarity
    )


def _same_name(a: str, b: str) -> bool:
    titles = r"^(mr|mrs|ms|dr|frau|herr|monsieur|madame|don|dona|senora|senor)\.?\s+"
    first, second = (re.sub(titles, "", folded(name)).strip() for name in (a, b))
    return SequenceMatcher(None, first, second).ratio() >= 0.87 or (
        len(second.split()) == 1 and second in first.split()
    )


def _same_number(a: str, b: str) -> bool:
    first, second = (re.sub(r"\D", "", number).lstrip("0") for number in (a, b))
    length = min(len(first), len(second))
    return length >= 7 and first[-length:] == second[-length:]


def _same_place(a: str, b: str) -> bool:
    first, second = (set(re.findall(r"\d+[a-z]?", folded(place))) for place in (a, b))
    return second <= first and _alike(a, b, 0.6)
