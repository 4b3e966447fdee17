"""The syntax of phrases: words, `*` at the end of a word for any ending, and `...` for up to `MAX_BETWEEN` words."""

import re
import unicodedata

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
