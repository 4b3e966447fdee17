"""Reads words spelled letter by letter, with or without a spelling alphabet, and remarks about letters of a name."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pipeline.language.pack import Pack, straighten
from pipeline.language.spoken.numbers import TOKEN, TextMatch, number
from pipeline.language.spoken.phonetics import folded

MIN_LETTERS = 3  # of a spelled word
_SEPARATORS = frozenset(",.-…")
_CONFUSED = {
    "k": "ch ck c q", "c": "k s z", "y": "i ie ee", "i": "y", "ph": "f v", "f": "ph v", "v": "f w b ph", "w": "v u",
    "z": "s c", "s": "z c", "b": "v", "j": "g y x", "g": "j", "x": "j ks", "ll": "y l", "d": "t", "t": "d", "p": "b",
    "dt": "tt d t", "ck": "kk k", "tz": "z", "th": "t", "e": "a i", "a": "e o", "o": "a u", "ü": "ue u i", "ö": "oe o",
    "ä": "ae e a", "ß": "ss s",
}  # fmt: skip
"""Letters that are confused with each one, the likeliest first."""

_DIPHTHONGS = ("ei", "ai", "ey", "ay")  # Meier, Maier, Meyer, Mayer


def letter_at(tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[str, int]:
    """Return the letter or letters spoken at token `at`, and their number of tokens; "" and 0 if there is none."""
    word = tokens[at].group().lower()
    repeat: dict[str, int] = pack.get("numbers", "repeat", {}) | pack.get("spelling", "repeat", {})
    letter, length = _plain_at(tokens, at, pack)
    if not letter and word in repeat and at + 1 < len(tokens):
        skip = 2 if tokens[at + 1].group() == "-" else 1
        letter, length = _plain_at(tokens, at + skip, pack, plural=True) if at + skip < len(tokens) else ("", 0)
        letter, length = (letter * repeat[word], length + skip) if len(letter) == 1 else ("", 0)
    return letter, length + (_example_length(tokens, at + length, letter, pack) if letter else 0)


def _plain_at(tokens: list[re.Match[str]], at: int, pack: Pack, plural: bool = False) -> tuple[str, int]:
    letters: dict[str, str] = pack.get("spelling", "letters", {})
    for length in (4, 3, 2, 1) if tokens[at].group().lower() in _openings(pack.language, tuple(letters)) else ():
        phrase = " ".join(token.group().lower() for token in tokens[at : at + length])
        if phrase in letters and at + length <= len(tokens):
            return letters[phrase], length
    word = tokens[at].group().lower()
    if plural and len(word) > 1:  # two Ts, dos eles
        word = re.sub(r"'?s$", "", word)
        word = letters.get(word, word)
    is_word = word in pack.words("spelling", "not_letters") and not tokens[at].group().isupper()
    before_letter = re.match(r"[A-Z]\b", tokens[at + 1].group()) if at + 1 < len(tokens) else None
    is_word = is_word or (tokens[at].group() == "a" and before_letter is not None)  # "with a G"
    single = len(word) == 1 and word.isalpha() and not is_word
    return (word, 1) if single else ("", 0)


@cache
def _openings(language: str | None, phrases: tuple[str, ...]) -> frozenset[str]:
    """Return the first words of the phrases, to skip the search at any other word."""
    return frozenset(phrase.partition(" ")[0] for phrase in phrases)


def _example_length(tokens: list[re.Match[str]], at: int, letter: str, pack: Pack) -> int:
    """Return how many tokens from `at` on explain the letter: "as in Mike", "wie Martha"."""
    first = at + 1 if at < len(tokens) and tokens[at].group() == "," else at
    for phrase in sorted(pack.words("spelling", "as_in"), key=len, reverse=True):
        words = phrase.split()
        last = first + len(words)
        spoken = [token.group().lower() for token in tokens[first:last]]
        if spoken == words and last < len(tokens):
            example = tokens[last].group()
            if len(example) > 1 and folded(example)[:1] == folded(letter)[:1]:
                return last + 1 - at
    return 0


def spelled_words(text: str, pack: Pack) -> Iterator[TextMatch]:
    """Yield spelled words ("W-A-L-C-O-double-T") in lower case, with their places."""
    tokens = list(TOKEN.finditer(straighten(text)))
    at = 0
    while at < len(tokens):
        word, end = _run(tokens, at, pack)
        if len(word) >= MIN_LETTERS:
            yield TextMatch(word, tokens[at].start(), tokens[end - 1].end())
        at = max(end, at + 1)


def _run(tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[str, int]:
    word, end, start, fillers = "", at, at, pack.words("spelling", "fillers")
    while at < len(tokens):
        letters, length = letter_at(tokens, at, pack)
        if not letters and _is_between_commas(tokens, at):
            letters, length = tokens[at].group().lower(), 1  # "i, y, i, ene": not "and"
        if letters:
            word, at = word + letters, at + length
            end = at
        elif at > start and (tokens[at].group() in _SEPARATORS or tokens[at].group().lower() in fillers):
            at += 1
        else:
            break
    return (word, end) if len(word) >= MIN_LETTERS else alphabet_run(tokens, start, pack)


def _is_between_commas(tokens: list[re.Match[str]], at: int) -> bool:
    """Return whether one letter that is also a word stands between two commas."""
    around = tokens[at - 1].group() == "," and at + 1 < len(tokens) and tokens[at + 1].group() == ","
    return at > 0 and around and len(tokens[at].group()) == 1 and tokens[at].group().isalpha()


def alphabet_run(tokens: list[re.Match[str]], at: int, pack: Pack) -> tuple[str, int]:
    """Return a run of words of a spelling alphabet: "Sierra, Mike, double November". Two of them may be a name."""
    alphabet, repeat = pack.words("spelling", "alphabet"), pack.get("numbers", "repeat", {})
    word, end, times = "", at, 1
    while at < len(tokens):
        token = tokens[at].group().lower()
        if token in alphabet:
            word, at, times = word + token[0] * times, at + 1, 1
            end = at
        elif token in repeat or (word and token in _SEPARATORS):
            at, times = at + 1, repeat.get(token, times)
        else:
            break
    return word, end


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark on spelling: with or `without` a letter or letters; `times` if repeated ("with two Ts")."""

    letters: str
    without: bool
    times: int = 1


def remarks(text: str, pack: Pack) -> Iterator[Remark]:
    """Yield the remarks in a text: "With a K", "ohne h", "con dos eles", "avec deux n"."""
    for key, without in (("with", False), ("without", True)):
        for pattern in pack.patterns("spelling", key):
            for match in pattern.finditer(text):
                tokens = list(TOKEN.finditer(re.sub(r"(?<=\b[A-Za-z])'?s\b", "", match["letters"])))
                letters, at = "", 0
                while at < len(tokens):
                    letter, length = letter_at(tokens, at, pack)
                    if not letter:
                        if tokens[at].group() != "-":
                            break
                        length = 1
                    letters, at = letters + letter, at + length
                times = number(match.groupdict().get("times") or "1", pack) or 1
                if letters:
                    yield Remark(letters, without, times)


def rewritten(name: str, remark: Remark) -> str:
    """Return the name in the spelling of the remark; unchanged if the remark does not apply."""
    lower, letters = name.lower(), remark.letters
    if remark.without:
        new = lower.replace(letters, "", 1) if letters in lower[1:] else lower
    elif remark.times == 2 or (len(letters) == 2 and letters[0] == letters[1]):
        new = _doubled(lower, letters[0])
    elif remark.times == 1 and len(letters) == 1 and letters * 2 in lower:
        new = lower.replace(letters * 2, letters, 1)  # "with one L"
    elif letters in _DIPHTHONGS:
        new = re.sub("|".join(_DIPHTHONGS), letters, lower, count=1)
    elif letters in lower:
        new = lower
    elif letters == "h":
        new = _with_h(lower)
    else:
        new = _unconfused(lower, letters)
    return name if new == lower else new[:1].upper() + new[1:]


def _doubled(lower: str, letter: str) -> str:
    if letter * 2 in lower:
        return lower
    return re.sub(rf"dt|(?<!^){letter}" if letter == "t" else rf"(?<!^){letter}", letter * 2, lower, count=1)


def _unconfused(lower: str, letter: str) -> str:
    confused = next((other for other in _CONFUSED.get(letter, "").split() if other in lower), None)
    return lower.replace(confused, letter, 1) if confused else lower


def _with_h(lower: str) -> str:
    """Add an h, as in Jon, Sara and Marta, the names that are asked about."""
    if "t" in lower and not lower.endswith("t"):
        return lower.replace("t", "th", 1)
    return lower + "h" if lower[-1:] in "aeiou" else re.sub(r"(?<=o)n$", "hn", lower)
