"""Rows of spoken digits and letters, also where listener signals, pauses and corrections interrupt them."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

from pipeline.language.pack import pack
from pipeline.language.spoken.numbers import digit_runs, number_at
from pipeline.language.spoken.spelling import letter_at
from pipeline.redaction.lines import Line

MAX_PAUSE = 15.0  # seconds between two parts of a row
MAX_BETWEEN = 10  # tokens without digits between them
MAX_TO_UNIT = 1.0  # seconds from a number to its unit
MAX_TO_CORRECTED = 4  # tokens from a correction to what it corrects
MAX_READ = 64  # parts of a row that is read for corrections; a longer one is no single number
_SIGNS = frozenset(",-()+/.…;–—\"'?!*#")
_AMOUNT_SIGNS = frozenset("$€£%")
_MIXED = re.compile(r"(?=\w*\d)(?=\w*[^\W\d_])[^\W_]{2,34}")  # "DE89", "AB123456C"


_DECIMAL = re.compile(r"(?=\d+[.,])\d{1,3}(?:[.,]\d{3})*(?:[.,]\d{1,2})?")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:[.,]\d{3})+")
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er|º|ª)")
_IBAN_HEAD = re.compile(r"[a-z]{2}\d{2}")
_COUNTRIES = frozenset({"de", "fr", "es", "pt", "gb", "it", "nl", "at", "ch", "be", "ie", "lu", "pl", "br", "dk", "se"})
"""The letters before the digits of an IBAN, where a recognizer writes them as a word."""


class Reading(Enum):
    """What the words are read as."""

    DIGITS = auto()
    SYMBOLS = auto()  # digits and letters
    DATES = auto()  # digits, days and months


@dataclass(frozen=True, slots=True)
class Part:
    """Symbols of the tokens `first` to before `end`; it `opens` a group if words are between it and the part before."""

    symbols: str
    first: int
    end: int
    opens: bool


@dataclass(frozen=True, slots=True)
class Row:
    """Digits, or digits and letters, of one channel."""

    line: Line
    parts: tuple[Part, ...]
    corrected: bool = False  # a word of correction is in it
    amount: bool = False  # of money, time or things
    decimal: bool = False  # written as one: "39.99", "1,200"

    @property
    def taken(self) -> list[int]:
        """Its tokens, without what interrupts them."""
        return [token for part in self.parts for token in range(part.first, part.end)]

    @property
    def first(self) -> int:
        return self.parts[0].first

    @property
    def last(self) -> int:
        return self.parts[-1].end - 1

    @property
    def start(self) -> float:
        return self.line.words[self.first].start

    @property
    def end(self) -> float:
        return self.line.words[self.last].end

    @property
    def raw(self) -> str:
        return "".join(part.symbols for part in self.parts)

    @property
    def text(self) -> str:
        """Its symbols with corrections applied ("4 7, no wait, 4 8")."""
        if not self.corrected or len(self.parts) > MAX_READ:
            return self.raw
        spoken = self.line.text[self.line.firsts[self.first] : self.line.tokens[self.last].end()]
        return "".join(match.text for match in digit_runs(spoken, self.line.packs[self.first], 1)) or self.raw

    @property
    def is_second_try(self) -> bool:
        """Whether a word of correction is just before it."""
        before = " ".join(self.line.lower[max(0, self.first - MAX_TO_CORRECTED) : self.first])
        phrases = self.line.packs[self.first].words("numbers", "corrections")
        return any(f" {phrase} " in f" {before} " for phrase in phrases)

    @property
    def thousands(self) -> bool:
        """Whether it is written as a count ("1,200")."""
        spoken = self.line.text[self.line.firsts[self.first] : self.line.tokens[self.last].end()]
        return bool(_THOUSANDS.fullmatch(spoken))

    @property
    def is_year(self) -> bool:
        return self.raw[:2] in ("19", "20") and [len(part.symbols) for part in self.parts] in ([4], [2, 2])


@cache
def interruptions(language: str | None) -> frozenset[str]:
    """Return the single words that may interrupt a dictation."""
    words = pack(language)
    phrases = (
        words.words("numbers", "fillers")
        | words.words("redaction", "between")
        | words.words("statistics", "backchannels")
        | words.words("numbers", "corrections")
        | frozenset(words.get("numbers", "repeat", {}))
    )
    return frozenset(part for phrase in phrases for part in re.split(r"[\s-]+", phrase)) - {""}


@cache
def _round(language: str | None) -> frozenset[str]:
    """Return the words for a hundred and a thousand, which alone are a count, or thanks."""
    hundreds = pack(language).get("numbers", "hundreds", {}).get("100", "").split("|")
    return frozenset([pack(language).get("numbers", "thousand", ""), *hundreds]) - {""}


@cache
def _correcting(language: str | None) -> frozenset[str]:
    words = pack(language).words("numbers", "corrections")
    return frozenset(word.split()[0] for word in words)


def rows_of(line: Line, breaks: Sequence[float], reading: Reading = Reading.DIGITS) -> Iterator[Row]:
    """Yield rows of symbols.

    A row ends at other words, at an amount ("for 20 dollars"), and at a moment of `breaks`, in order of time, when the
    other party announces another value.
    """
    parts: list[Part] = []
    between, doubled, corrected, at = 0, 0, False, 0
    while at < len(line.tokens):
        symbols, length = _symbols_at(line, at, reading)
        word, language = line.lower[at], line.packs[at]
        times = language.get("numbers", "repeat", {}).get(word, 0)
        late = bool(parts) and _is_cut(line.words[parts[-1].end - 1].end, line.words[at].start, breaks)
        interrupts = word in _SIGNS or word in interruptions(language.language)
        interrupts |= reading is Reading.DATES and word in language.words("redaction", "in_dates")
        ends = not symbols and not times and not interrupts
        if parts and (late or ends or between >= MAX_BETWEEN):
            yield from _closed(line, parts, corrected)
            parts, between, corrected = [], 0, False
        if symbols:
            repeated = symbols * doubled if doubled and len(symbols) == 1 else symbols
            parts.append(Part(repeated, at - bool(doubled), at + length, between > 0))
            between, doubled = 0, 0
        else:
            doubled = times if times else doubled if word == "-" else 0
            if parts and not times and word not in _SIGNS:
                between += 1
                corrected |= word in _correcting(language.language)
        at += length if symbols else 1
    yield from _closed(line, parts, corrected)


def _is_cut(end: float, start: float, breaks: Sequence[float]) -> bool:
    """Return whether a new value begins between the end of one part and the start of another."""
    at = bisect_right(breaks, end)
    return start - end > MAX_PAUSE or (at < len(breaks) and breaks[at] <= start)


def _symbols_at(line: Line, at: int, reading: Reading) -> tuple[str, int]:
    spoken, length = number_at(line.tokens, at, line.packs[at])
    if spoken is not None:
        return spoken, length
    match reading:
        case Reading.DATES:
            return _date_part(line, at)
        case Reading.SYMBOLS:
            if _MIXED.fullmatch(line.lower[at]) and not _ORDINAL.fullmatch(line.lower[at]):
                return line.lower[at], 1
            if _is_code(line, at):
                return line.lower[at], 1
            letter, length = letter_at(line.tokens, at, line.packs[at])
            return (letter, length) if len(letter) == 1 else ("", 1)
    return "", 1


def _is_code(line: Line, at: int) -> bool:
    """Return whether letters that a recognizer writes as a word are part of a code: "DE 89", "GB49 NWBK", "AB 16"."""
    word = line.lower[at]
    if not word.isalpha() or len(word) not in (2, 4):
        return False
    if len(word) == 4:
        return at > 0 and bool(_IBAN_HEAD.fullmatch(line.lower[at - 1]))
    if at + 1 == len(line.tokens):
        return False
    is_mixed = word in _COUNTRIES and _MIXED.fullmatch(line.lower[at + 1])
    if not is_mixed and number_at(line.tokens, at + 1, line.packs[at + 1])[0] is None:
        return False
    return word in _COUNTRIES or word not in line.packs[at].words("text", "stopwords")


def _date_part(line: Line, at: int) -> tuple[str, int]:
    """Return a month or a day of a month as two digits."""
    language, word = line.packs[at], line.lower[at]
    if word in language.months:
        return f"{language.months[word]:02d}", 1
    if match := _ORDINAL.fullmatch(word):
        return match[1].zfill(2), 1
    for length in (3, 2, 1):
        phrase = " ".join(part for part in line.lower[at : at + length] if part != "-")
        day = language.ordinals.get(phrase) or language.ordinals.get(phrase.rstrip("nrs"))
        if day:
            return f"{day:02d}", min(length, len(line.lower) - at)
    return "", 1


def _closed(line: Line, parts: list[Part], corrected: bool) -> Iterator[Row]:
    """Yield a finished row; an amount at its end is a row of its own."""
    if not parts:
        return
    cut = next((at for at in range(len(parts) - 1, -1, -1) if parts[at].opens), 0)
    amount = _is_amount(line, parts[cut:])
    decimal = _is_decimal(line, parts[cut:]) and not (cut and Row(line, tuple(parts[cut:])).is_year)
    if (amount or decimal) and cut:
        yield Row(line, tuple(parts[:cut]), corrected)
        parts = parts[cut:]
    yield Row(line, tuple(parts), corrected, amount, decimal)


def _is_decimal(line: Line, parts: list[Part]) -> bool:
    first, last = parts[0].first, parts[-1].end - 1
    return bool(_DECIMAL.fullmatch(line.text, line.firsts[first], line.tokens[last].end()))


def _is_amount(line: Line, parts: list[Part]) -> bool:
    first, last = parts[0].first, parts[-1].end - 1
    if first == last and line.lower[first] in _round(line.packs[first].language):
        return True
    before = line.lower[first - 1] if first else ""
    follows = [at for at in range(last + 1, min(last + 3, len(line.lower))) if line.lower[at] not in ",-"][:1]
    near = follows and line.words[follows[0]].start - line.words[last].end < MAX_TO_UNIT
    after = line.lower[follows[0]] if near else ""
    units = line.packs[last].words("redaction", "units")
    return before in _AMOUNT_SIGNS or after in _AMOUNT_SIGNS or after in units
