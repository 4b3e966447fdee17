"""Phonetic keys by which two spellings of one spoken name are equal.

German: Cologne phonetics (H. J. Postel, "Die Kölner Phonetik", IBM-Nachrichten 19, 1969). English, and languages
without rules: Metaphone (L. Philips, Computer Language 7(12), 1990), from jellyfish. Spanish and French: letters with
the same sound become one, silent ones are dropped; consonants and, in French, vowels stay.
"""

import re
import unicodedata
from functools import lru_cache

LIKE_ENOUGH = 50  # rapidfuzz ratio, 0..100: keys are coarse, so two names must also look somewhat alike

_SPANISH = (
    (r"ch", "X"), (r"ll", "y"), (r"qu(?=[ei])", "k"), (r"gu(?=[ei])", "g"), (r"g(?=[ei])", "j"), (r"c(?=[ei])|z", "s"),
    (r"[cq]", "k"), (r"^x", "j"), (r"v", "b"), (r"h", ""), (r"w", "u"),
)  # fmt: skip
_FRENCH = (
    (r"ph", "f"), (r"bv", "v"), (r"e?aul?[tdx]?s?$|e?au(?=[^aeiouy])", "o"), (r"(?:eux|eu|oeu)", "e"),
    (r"qu|ck|c(?![eiyh])", "k"), (r"ch", "X"), (r"c|ss|z", "s"), (r"g(?=[eiy])", "j"), (r"gu(?=[eiy])", "g"),
    (r"h", ""), (r"ou", "u"), (r"ille?(?=s?$)", "iy"), (r"(?:ai|ei)(?![mn])", "e"),
    (r"(?:ai|ei|i|y|u)[mn](?=$|[^aeiouymn])", "1"), (r"[ae][mn](?=$|[^aeiouymn])", "2"),
    (r"o[mn](?=$|[^aeiouymn])", "3"),
    (r"y", "i"), (r"e?[stdxp]+$", ""), (r"er$|e$", ""),
)  # fmt: skip


def sound(name: str, language: str | None) -> str:
    """Return the key of a name or word, the same for names that sound alike in `language` (default: English)."""
    return _sound(name, (language or "")[:2].lower())


@lru_cache(maxsize=4096)
def _sound(name: str, language: str) -> str:
    if language == "de":
        return cologne(name)
    key = re.sub(r"[^a-z]", "", folded(name.replace("ñ", "ny").replace("ç", "s")))
    if language not in ("es", "fr"):
        import jellyfish

        return jellyfish.metaphone(key)
    for pattern, by in _SPANISH if language == "es" else _FRENCH:
        key = re.sub(pattern, by, key)
    if language == "es":
        key = key[:1].translate(str.maketrans("eiou", "aaaa")) + re.sub(r"[aeiouy]", "", key[1:])
    return _once(key)


def cologne(name: str) -> str:
    """Return the Cologne phonetics: one digit for each group of letters, without doubles and inner zeros."""
    letters = re.sub(r"[^a-z]", "", folded(name.replace("ß", "ss")))
    codes = "".join(_digit(letters, at) for at in range(len(letters)))
    codes = _once(codes)
    return codes[:1] + codes[1:].replace("0", "")


def _digit(letters: str, at: int) -> str:
    letter, before, after = letters[at], letters[at - 1 : at], letters[at + 1 : at + 2]
    for group, digit in (("aeijouy", "0"), ("h", ""), ("b", "1"), ("fvw", "3"), ("gkq", "4"), ("l", "5"), ("mn", "6"),
                         ("r", "7"), ("sz", "8")):  # fmt: skip
        if letter in group:
            return digit
    if letter == "p":
        return "3" if after == "h" else "1"
    if letter in "dt":
        return "8" if after in {"c", "s", "z"} else "2"
    if letter == "x":
        return "8" if before in {"c", "k", "q"} else "48"
    hard = after in set("ahkloqrux" if at == 0 else "ahkoqux")  # what is left is c
    return "4" if hard and before not in {"s", "z"} else "8"


def alike(first: str, second: str, language: str | None) -> bool:
    """Return whether two single names may be one spoken name: same key and last vowel, and similar spelling."""
    from rapidfuzz import fuzz

    if folded(first) == folded(second):
        return True
    key = sound(first, language)
    same = bool(key) and key == sound(second, language) and _ending(first) == _ending(second)
    return same and fuzz.ratio(folded(first), folded(second)) >= LIKE_ENOUGH


@lru_cache(maxsize=8192)
def folded(text: str) -> str:
    """Return the text in lower case without accents."""
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    return "".join(sign for sign in plain if not unicodedata.combining(sign)).lower()


def _ending(name: str) -> str:
    """Return the last vowel: Dan and Dana, Mario and Marie differ in nothing else."""
    bare = re.sub(r"[^a-z]|h$", "", folded(name))
    return {"y": "i"}.get(bare[-1:], bare[-1:]) if bare[-1:] in "aoiy" else ""


def _once(key: str) -> str:
    """Collapse equal neighbors."""
    return re.sub(r"(.)\1+", r"\1", key)
