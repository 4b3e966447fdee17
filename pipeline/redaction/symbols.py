"""Rows of letters and digits: IBANs, identity numbers with letters, and the shapes of a workspace."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from pipeline.domain.redaction import EntityKind, Pattern
from pipeline.redaction import checks
from pipeline.redaction.cues import Cues
from pipeline.redaction.lines import Line
from pipeline.redaction.numbers import LIKELY, MAX_TO_PASSWORD, SURE, Value
from pipeline.redaction.runs import Row

_LENGTHS = {EntityKind.IBAN: (8, 40), EntityKind.NATIONAL_ID: (6, 20), EntityKind.ACCOUNT: (6, 34),
            EntityKind.PASSWORD: (3, 30), EntityKind.ADDRESS: (5, 9)}  # fmt: skip


def values(rows: Iterable[Row], cues: Cues) -> Iterator[Value]:
    """Yield values that have letters and digits; rows of digits alone are left to `numbers`."""
    for row in rows:
        if row.amount or row.raw.isdigit() or not any(sign.isdigit() for sign in row.raw):
            continue
        formed = next((part for part in _tails(row) if _by_form(part.raw)), None)
        if formed and (kind := _by_form(formed.raw)):
            last = Row(row.line, row.parts[row.parts.index(formed.parts[0]) :], row.corrected)  # with corrections
            yield Value(kind, [last], SURE, None)
            continue
        cue = next(cues.before(row.line.channel, row.first, row.start), None)
        if cue is None or cue.kind not in _LENGTHS or _only_words(row, cue.kind):
            continue
        least, most = _LENGTHS[EntityKind(cue.kind)]
        near = cue.kind != EntityKind.PASSWORD or row.start - cue.end <= MAX_TO_PASSWORD
        if near and least <= len(row.raw) <= most:
            yield Value(EntityKind(cue.kind), [row], LIKELY, cue)


def _only_words(row: Row, kind: str) -> bool:
    """Return whether its letters may be words before and after the digits ("es 20", "a 4111")."""
    letters = [part.symbols.isalpha() for part in row.parts]
    is_code = len(row.parts) > 1 and not all(part.symbols.isalpha() or part.symbols.isdigit() for part in row.parts)
    if kind == EntityKind.IBAN or (is_code and kind not in (EntityKind.PASSWORD, EntityKind.ADDRESS)):
        return False  # "57WNW 3969"
    first, last = letters.index(False), letters[::-1].index(False)
    is_around = first + last <= 1 and not any(letters[first : len(letters) - last])
    words = (part.first for part in row.parts if part.symbols.isalpha())
    return is_around or all(row.line.lower[at] in row.line.packs[at].words("text", "stopwords") for at in words)


def of_patterns(rows: Iterable[Row], patterns: Iterable[Pattern]) -> Iterator[tuple[Pattern, Row]]:
    """Yield rows that have the shape of a pattern, alone or after other letters."""
    shapes = [(pattern, _shape(pattern.shape)) for pattern in patterns]
    for row in rows:
        for pattern, shape in shapes:
            if part := next((each for each in _without_letters(row) if shape.fullmatch(each.raw)), None):
                yield pattern, part
                break


def typed_patterns(line: Line, patterns: Iterable[Pattern]) -> Iterator[tuple[Pattern, list[int]]]:
    """Yield the tokens of what is written in the shape of a pattern, with or without its signs and spaces."""
    for pattern in patterns:
        for match in _typed(pattern.shape).finditer(line.text):
            yield pattern, list(range(line.token_at(match.start()), line.token_at(match.end())))


def _by_form(text: str) -> EntityKind | None:
    if checks.iban(text):
        return EntityKind.IBAN
    return EntityKind.NATIONAL_ID if checks.nino(text) or checks.dni(text) else None


def _tails(row: Row) -> Iterator[Row]:
    """Yield the row, and the row without up to three parts before and one after it."""
    for first in range(min(4, len(row.parts))):
        for last in (len(row.parts), len(row.parts) - 1):
            if parts := row.parts[first:last]:
                yield Row(row.line, parts, row.corrected, row.amount)


_SIGNS = {"A": r"[^\W\d_]", "9": r"\d"}


def _without_letters(row: Row) -> Iterator[Row]:
    """Yield the row, and the row without letters around it, which may be words."""
    for part in _tails(row):
        dropped = [each for each in row.parts if each not in part.parts]
        if all(each.symbols.isalpha() for each in dropped):
            yield part


@lru_cache(maxsize=256)
def _shape(shape: str) -> re.Pattern[str]:
    """Compile a shape; signs and spaces of it are not spoken."""
    return re.compile("".join(_SIGNS.get(sign, re.escape(sign.lower())) for sign in shape if sign.isalnum()))


@lru_cache(maxsize=256)
def _typed(shape: str) -> re.Pattern[str]:
    signs = (_SIGNS.get(sign, re.escape(sign)) if sign.isalnum() else r"[\W_]?" for sign in shape)
    return re.compile(rf"(?<!\w){''.join(signs)}(?!\w)", re.IGNORECASE)
