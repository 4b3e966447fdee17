"""Whether a found task or contact is a known one.

A found task is a known one when their words are alike (`likeness` of at least `ALIKE`, or `ALIKE_NEARBY` where both
were said about the same time); each is one at most, the likest first. Fields of contacts are the same as people would
say: names without titles, numbers without their prefix, addresses by their figures and words.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

ALIKE, ALIKE_NEARBY, NEARBY = 0.45, 0.25, 2  # likeness, likeness within so many turns, turns
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
    """Lower case without accents."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text or "") if not unicodedata.combining(c))
    return plain.lower().replace("ß", "ss")


def stem(word: str) -> str:
    """The beginning of a word, without an English ending."""
    return re.sub(r"^(.{4,}?)(ing|ed|es|s)$", r"\1", word)[:5]


_SAME = {stem(word): stem(group.split()[0]) for group in reversed(ALIKE_WORDS) for word in group.split()}


def stems(text: str | None) -> set[str]:
    """The beginnings of the words that mean something; words of one meaning are one."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"\be-mail", "email", folded(text)))
    return {_SAME.get(stem(word), stem(word)) for word in words if word not in SMALL}


def dice(a: set[str], b: set[str]) -> float:
    """What two sets share, 0..1."""
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


def likeness(said: str, known: str, around: Sequence[str]) -> float:
    """0..1: do the words of a found task say the known one? `around`: what was said where it was committed to."""
    found, wanted = stems(said), stems(known)
    talk = wanted | stems(" ".join(around))
    best = dice(found, wanted)
    if len(found & wanted) >= 2 and len(found) <= 5 * len(wanted):
        best = max(best, 0.9 * len(found & wanted) / len(wanted))
    if len(found) >= 2 and found & talk:
        best = max(best, 0.85 * len(found & talk) / len(found) * (1 if found & wanted else 0.6))
    return max(best, 0.9 * SequenceMatcher(None, folded(said), folded(known)).ratio() - 0.15)


def is_alike(like: float, near: bool) -> bool:
    """Whether two tasks are the same, by their likeness and whether they were said at about the same time."""
    return like >= ALIKE or (near and like >= ALIKE_NEARBY)


def best_pairs(ranked: Iterable[tuple[float, int, int]]) -> list[tuple[int, int]]:
    """Pairs of (rank, found, known), the highest rank first, each found and each known one once."""
    chosen: list[tuple[int, int]] = []
    for _, i, j in sorted(ranked, reverse=True):
        if all(i != a and j != b for a, b in chosen):
            chosen.append((i, j))
    return chosen


def same_field(field: str, heard: str | None, known: str) -> bool:
    """Whether a field of a contact (name, company, email, phone, address) says what is known."""
    if not heard:
        return False
    same = {"name": _same_name, "phone": _same_number, "address": _same_place}
    if field in same:
        return same[field](heard, known)
    return folded(heard).strip() == folded(known).strip() if field == "email" else _alike(heard, known, 0.8)


def _alike(a: str, b: str, least: float) -> bool:
    return SequenceMatcher(None, folded(a), folded(b)).ratio() >= least or dice(stems(a), stems(b)) >= least


def _same_name(a: str, b: str) -> bool:
    titles = r"^(mr|mrs|ms|dr|frau|herr|monsieur|madame|don|dona|senora|senor)\.?\s+"
    one, two = (re.sub(titles, "", folded(name)).strip() for name in (a, b))
    return SequenceMatcher(None, one, two).ratio() >= 0.87 or (len(two.split()) == 1 and two in one.split())


def _same_number(a: str, b: str) -> bool:
    one, two = (re.sub(r"\D", "", number).lstrip("0") for number in (a, b))
    length = min(len(one), len(two))
    return length >= 7 and one[-length:] == two[-length:]


def _same_place(a: str, b: str) -> bool:
    one, two = (set(re.findall(r"\d+[a-z]?", folded(place))) for place in (a, b))
    return two <= one and _alike(a, b, 0.6)
