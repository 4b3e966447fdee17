"""Words spelled out letter by letter, with and without a spelling alphabet, and remarks about letters of a name."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pipeline.analysis.rules.numbers import TOKEN, TextMatch, number
from pipeline.analysis.rules.people.phonetics import folded
from pipeline.language.pack import Pack, straighten

SHORTEST = 3  # letters in a row make a spelled word
_SEPARATORS = frozenset(",.-…")
_CONFUSED = {
    "k": "ch ck c q", "c": "k s z", "y": "i ie ee", "i": "y", "ph": "f v", "f": "ph v", "v": "f w b ph", "w": "v u",
    "z": "s c", "s": "z c", "b": "v", "j": "g y x", "g": "j", "x": "j ks", "ll": "y l", "d": "t", "t": "d", "p": "b",
    "dt": "tt d t", "ck": "kk k", "tz": "z", "th": "t", "e": "a i", "a": "e o", "o": "a u", "ü": "ue u i", "ö": "oe o",
    "ä": "ae e a", "ß": "ss s",
}  # fmt: skip
"""Letter: those it is mistaken for, the likeliest first."""

_DIPHTHONGS = ("ei", "ai", "ey", "ay")  # Meier, Maier, Meyer, Mayer


def letter_at(tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[str, int]:
    """The letter or letters said at token `at`, and how many tokens say them; "" and 0 where none is."""
    word = tokens[at].group().lower()
    repeat: dict[str, int] = pack.get("numbers", "repeat", {}) | pack.get("spelling", "repeat", {})
    letter, length = _plain_at(tokens, at, pack)
    if not letter and word in repeat and at + 1 < len(tokens):
        skip = 2 if tokens[at + 1].group() == "-" else 1
        letter, length = _plain_at(tokens, at + skip, pack, plural=True) if at + skip < len(tokens) else ("", 0)
        letter, length = (letter * repeat[word], length + skip) if len(letter) == 1 else ("", 0)
    return letter, length + (_likened(tokens, at + length, letter, pack) if letter else 0)


def _plain_at(tokens: list[re.Match[str]], at: int, pack: Pack, plural: bool = False) -> tuple[str, int]:
    named: dict[str, str] = pack.get("spelling", "letters", {})
    for length in (4, 3, 2, 1) if tokens[at].group().lower() in _openings(pack.language, tuple(named)) else ():
        phrase = " ".join(token.group().lower() for token in tokens[at : at + length])
        if phrase in named and at + length <= len(tokens):
            return named[phrase], length
    word = tokens[at].group().lower()
    if plural and len(word) > 1:  # two Ts, dos eles
        word = re.sub(r"'?s$", "", word)
        word = named.get(word, word)
    single = len(word) == 1 and word.isalpha() and word not in pack.words("spelling", "not_letters")
    return (word, 1) if single else ("", 0)


@cache
def _openings(language: str | None, phrases: tuple[str, ...]) -> frozenset[str]:
    """Their first words: where another word stands, no letter's name needs to be looked for."""
    return frozenset(phrase.partition(" ")[0] for phrase in phrases)


def _likened(tokens: list[re.Match[str]], at: int, letter: str, pack: Pack) -> int:
    """How many tokens from `at` say which letter is meant: "as in Mike", "wie Martha"."""
    first = at + 1 if at < len(tokens) and tokens[at].group() == "," else at
    for phrase in sorted(pack.words("spelling", "as_in"), key=len, reverse=True):
        words = phrase.split()
        last = first + len(words)
        said = [token.group().lower() for token in tokens[first:last]]
        if said == words and last < len(tokens):
            example = tokens[last].group()
            if len(example) > 1 and folded(example)[:1] == folded(letter)[:1]:
                return last + 1 - at
    return 0


def spelled_words(text: str, pack: Pack) -> Iterator[TextMatch]:
    """Words spelled out, "W-A-L-C-O-double-T", in lower case, with their places."""
    tokens = list(TOKEN.finditer(straighten(text)))
    at = 0
    while at < len(tokens):
        word, end = _run(tokens, at, pack)
        if len(word) >= SHORTEST:
            yield TextMatch(word, tokens[at].start(), tokens[end - 1].end())
        at = max(end, at + 1)


def _run(tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[str, int]:
    word, end, start = "", at, at
    while at < len(tokens):
        letters, length = letter_at(tokens, at, pack)
        if letters:
            word, at = word + letters, at + length
            end = at
        elif at > start and (tokens[at].group() in _SEPARATORS or tokens[at].group().lower() in _fillers(pack)):
            at += 1
        else:
            break
    return (word, end) if len(word) >= SHORTEST else _alphabet_run(tokens, start, pack)


def _alphabet_run(tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[str, int]:
    """Sierra, Mike, India: three words of a spelling alphabet and more."""
    known, word, end = pack.words("spelling", "alphabet"), "", at
    while at < len(tokens):
        said = tokens[at].group().lower()
        if said in known:
            word, at = word + said[0], at + 1
            end = at
        elif word and said in _SEPARATORS:
            at += 1
        else:
            break
    return word, end


def _fillers(pack: Pack) -> frozenset[str]:
    return pack.words("spelling", "fillers")


@dataclass(frozen=True, slots=True)
class Remark:
    """How a name is written: `with_` a letter or letters, or `without`; `times` where said twice ("with two Ts")."""

    letters: str
    without: bool
    times: int = 1


def remarks(text: str, pack: Pack) -> Iterator[Remark]:
    """ "With a K", "ohne h", "con dos eles", "avec deux n"."""
    for key, without in (("with", False), ("without", True)):
        for pattern in pack.patterns("spelling", key):
            for found in pattern.finditer(text):
                tokens = list(TOKEN.finditer(re.sub(r"(?<=\b[A-Za-z])'?s\b", "", found["letters"])))
                letters, at = "", 0
                while at < len(tokens):
                    said, length = letter_at(tokens, at, pack)
                    if not said:
                        if tokens[at].group() != "-":
                            break
                        length = 1
                    letters, at = letters + said, at + length
                times = number(found.groupdict().get("times") or "1", pack) or 1
                if letters:
                    yield Remark(letters, without, times)


def rewritten(name: str, remark: Remark) -> str:
    """The name as the remark says it is written; unchanged where the remark fits nothing in it."""
    lower, said = name.lower(), remark.letters
    if remark.without:
        new = lower.replace(said, "", 1) if said in lower[1:] else lower
    elif remark.times == 2 or (len(said) == 2 and said[0] == said[1]):
        new = _doubled(lower, said[0])
    elif remark.times == 1 and len(said) == 1 and said * 2 in lower:
        new = lower.replace(said * 2, said, 1)  # "with one L"
    elif said in _DIPHTHONGS:
        new = re.sub("|".join(_DIPHTHONGS), said, lower, count=1)
    elif said in lower:
        new = lower
    elif said == "h":
        new = _with_h(lower)
    else:
        new = _unconfused(lower, said)
    return name if new == lower else new[:1].upper() + new[1:]


def _doubled(lower: str, letter: str) -> str:
    if letter * 2 in lower:
        return lower
    return re.sub(rf"dt|{letter}" if letter == "t" else letter, letter * 2, lower, count=1)


def _unconfused(lower: str, said: str) -> str:
    """With the letter that was said in the place of one that it is confused with."""
    found = next((other for other in _CONFUSED.get(said, "").split() if other in lower), None)
    return lower.replace(found, said, 1) if found else lower


def _with_h(lower: str) -> str:
    """Jon, Sara and Marta are the names that are asked about."""
    if "t" in lower and not lower.endswith("t"):
        return lower.replace("t", "th", 1)
    return lower + "h" if lower[-1:] in "aeiou" else re.sub(r"(?<=o)n$", "hn", lower)
