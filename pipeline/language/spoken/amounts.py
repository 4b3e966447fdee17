"""Reads numbers and amounts of money, in figures and words, by language: "1.250,50 Euro", "two hundred and fifty
thousand", "tres millones y medio".

A mark before exactly three digits is unclear ("1.250"): the language decides, and money is never a thousandth.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from pipeline.language.pack import Pack, pack, straighten
from pipeline.language.spoken.numbers import TOKEN, number_at

_SYMBOLS = "$€£¥₹"
_CODES = r"\b(?:EUR|USD|GBP|CHF|BRL|MXN|CAD|AUD)\b"
_FIGURE = re.compile(
    r"(?<![\w.,])\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?:[.,]\d{1,2})?(?![\d.,]?\d)|(?<![\w.,])\d+(?:[.,']\d+)*"
)
_SPACED = re.compile(r"[ \u00a0\u202f']")
_MONEY_BEFORE = re.compile(rf"(?:[{_SYMBOLS}]|{_CODES}) ?$")
_HUNDRED, _THOUSAND = 100, 1000


@dataclass(frozen=True, slots=True)
class Amount:
    """A number and its source, the characters `first`..`last` of the text, with the cents but without the unit.

    `money`: with a symbol or currency.
    """

    value: float
    first: int
    last: int
    money: bool = False
    in_words: bool = False


def amounts(text: str, words: Pack) -> Iterator[Amount]:
    text = straighten(text)
    values = sorted((*_in_words(text, words), *_in_figures(text, words)), key=lambda value: (value.first, -value.last))
    at = 0
    while at < len(values):
        value, at = _whole(values, at, text, words)
        value, at = _with_cents(value, values, at, text, words)
        while at < len(values) and values[at].first < value.last:
            at += 1  # a word of this amount
        yield value


def _in_words(text: str, words: Pack) -> Iterator[Amount]:
    patterns = _patterns(words.language, words.known)
    text = patterns.percent.sub(lambda match: "%".ljust(len(match.group())), text)
    tokens, at = list(TOKEN.finditer(text)), 0
    while at < len(tokens):
        digits, length = number_at(tokens, at, words)
        if digits is not None and not tokens[at].group().isdigit():
            yield Amount(float(digits), tokens[at].start(), tokens[at + length - 1].end(), in_words=True)
        at += length if digits is not None else 1
    for match in patterns.alone.finditer(text):
        share = 0.5 if match["half"] else 1.0
        yield Amount(share * _scale(match["scale"], words), *match.span(), in_words=True)


def _in_figures(text: str, words: Pack) -> Iterator[Amount]:
    for match in _FIGURE.finditer(text):
        money = _is_money(text, match.start(), match.end(), words)
        value = _figure(match.group(), words, money)
        if value is not None:
            yield Amount(value, *match.span(), money)
            continue
        for part in re.finditer(r"\d+", match.group()):  # "1,2,3", "24.12.2025"
            yield Amount(float(part.group()), match.start() + part.start(), match.start() + part.end())


def _figure(text: str, words: Pack, money: bool) -> float | None:
    plain = _SPACED.sub("", text)
    marks = re.findall("[.,]", plain)
    if not marks:
        return float(plain)
    if len(set(marks)) == 2:
        whole, _, part = plain.rpartition(marks[-1])
        return float(re.sub("[.,]", "", whole) + "." + part) if marks.count(marks[-1]) == 1 else None
    whole, *parts = re.split("[.,]", plain)
    if len(parts) > 1:
        grouped = len(parts[-1]) == 3 and all(len(part) in (2, 3) for part in parts) and 0 < len(whole) <= 3
        return float(whole + "".join(parts)) if grouped else None
    if len(parts[0]) != 3 or whole.startswith("0") or len(whole) > 3 or (marks[0] == words.decimal_mark and not money):
        return float(f"{whole}.{parts[0]}")
    return float(whole + parts[0])


def _whole(values: list[Amount], at: int, text: str, words: Pack) -> tuple[Amount, int]:
    """Return the number that begins with value `at`, with its decimals and scales, and the next value's place."""
    patterns = _patterns(words.language, words.known)
    total, value, at = 0.0, values[at], at + 1
    while True:
        value, at = _with_decimals(value, values, at, text, patterns)
        value, at = _with_tens(value, values, at, text)
        half = patterns.and_half.match(text, value.last)
        if half:
            value = replace(value, value=value.value + 0.5, last=half.end("half"))
        scale = patterns.scale.match(text, value.last)
        if not scale:
            break
        factor = _scale(scale["scale"] or "", words)
        value = replace(value, value=value.value * factor, last=scale.end())
        half = patterns.and_half.match(text, value.last)
        if half:
            value = replace(value, value=value.value + factor / 2, last=half.end("half"))
        while at < len(values) and values[at].first < value.last:
            at += 1
        rest = values[at] if at < len(values) else None
        if rest is None or rest.value >= factor or not patterns.joint.fullmatch(text, value.last, rest.first):
            break
        if not (rest.in_words or value.in_words is rest.in_words):
            break
        total += value.value
        value, at = replace(rest, first=value.first), at + 1
    value = replace(value, value=total + value.value)
    return replace(value, money=_is_money(text, value.first, value.last, words)), at


def _with_decimals(
    value: Amount, values: list[Amount], at: int, text: str, patterns: "_Patterns"
) -> tuple[Amount, int]:
    """Add "point two five": digits one by one, or a number."""
    if at >= len(values) or not patterns.point.fullmatch(text, value.last, values[at].first):
        return value, at
    digits = ""
    while (
        at < len(values)
        and values[at].value.is_integer()
        and not (digits and text[value.last : values[at].first].strip())
    ):
        digits, value, at = f"{digits}{values[at].value:.0f}", replace(value, last=values[at].last), at + 1
    return (replace(value, value=float(f"{value.value:.0f}.{digits}")) if digits else value), at


def _with_tens(value: Amount, values: list[Amount], at: int, text: str) -> tuple[Amount, int]:
    """Join hundreds with the tens after them: "two hundred fifty (thousand)"."""
    if at >= len(values) or not value.in_words or not values[at].in_words or text[value.last : values[at].first] != " ":
        return value, at
    rest = values[at]
    thousands, below = divmod(int(rest.value), _THOUSAND)
    if value.value >= _THOUSAND or value.value % _HUNDRED or not value.value or (thousands or below) >= _HUNDRED:
        return value, at
    joined = value.value + rest.value if not thousands else (value.value + thousands) * _THOUSAND + below
    return replace(value, value=joined, last=rest.last), at + 1


def _with_cents(value: Amount, values: list[Amount], at: int, text: str, words: Pack) -> tuple[Amount, int]:
    """Add the cents of "five dollars and fifty cents", "fünf Euro fünfzig"; cents alone are hundredths."""
    patterns = _patterns(words.language, words.known)
    if cents := patterns.cents.match(text, value.last):
        return replace(value, value=value.value / 100, last=cents.end(), money=True), at
    unit = patterns.money.match(text, value.last)
    if unit is None:
        return value, at
    if at >= len(values) or not value.value.is_integer() or not 0 < values[at].value < _HUNDRED:
        return value, at
    rest = values[at]
    cents = patterns.cents.match(text, rest.last)
    ends = re.match(r"\s*(?:[.,;:!?]|$)", text[rest.last :])
    gap = text[unit.end() : rest.first]
    if patterns.joint.fullmatch(gap) and (cents or (gap in ("", " ") and ends and rest.value >= 10)):
        last = cents.end() if cents else rest.last
        return replace(value, value=value.value + rest.value / 100, last=last), at + 1
    return value, at


def _is_money(text: str, first: int, last: int, words: Pack) -> bool:
    patterns = _patterns(words.language, words.known)
    scale = patterns.scale.match(text, last)
    last = scale.end() if scale else last
    return bool(_MONEY_BEFORE.search(text[:first]) or patterns.money.match(text, last))


def _scale(word: str, words: Pack) -> int:
    return int(words.get("numbers", "scales", {}).get(word.lower(), _THOUSAND))


@dataclass(frozen=True, slots=True)
class _Patterns:
    alone: re.Pattern[str]  # "a million", "half a million"
    scale: re.Pattern[str]
    point: re.Pattern[str]
    and_half: re.Pattern[str]
    joint: re.Pattern[str]
    money: re.Pattern[str]
    cents: re.Pattern[str]
    percent: re.Pattern[str]


@cache
def _patterns(language: str | None, has_pack: bool) -> _Patterns:
    words = pack(language) if has_pack else Pack(language, {})

    def any_of(listed: object) -> str:
        ordered = sorted(map(str, listed), key=len, reverse=True)  # type: ignore[call-overload]
        return "|".join(map(re.escape, ordered)) or r"(?!)"

    def compiled(pattern: str) -> re.Pattern[str]:
        return re.compile(pattern, re.IGNORECASE)

    scales = any_of(words.get("numbers", "scales", {}))
    halves, articles = any_of(words.words("numbers", "half")), any_of(words.words("numbers", "not_digits"))
    joints = any_of({joint.strip() for joint in words.get("numbers", "hundreds_join", [])} - {""})
    after = any_of(words.words("numbers", "half_after"))
    return _Patterns(
        compiled(rf"\b(?:(?P<half>{halves})[ -]|(?:{articles}) )(?P<scale>{scales})\b"),
        compiled(rf"[ \u00a0]?(?P<scale>{scales})\b(?! (?:of|de) an?\b)|(?P<k>k)\b"),
        compiled(rf"\s*(?:{any_of(words.words('numbers', 'point'))})\s*"),
        compiled(rf"(?P<half>\s*(?:{after}))\b"),
        compiled(rf"[ \u00a0]+(?:(?:{joints}) )?|"),
        compiled(rf"\s*(?:[{_SYMBOLS}]|{_CODES}|(?:{any_of(words.words('numbers', 'money'))})\b)"),
        compiled(rf"\s*(?:{any_of(words.words('numbers', 'cents'))})\b"),
        compiled(rf"\b(?:{any_of(words.words('numbers', 'percent'))})\b"),
    )
