"""Which kind of number a row of digits is: by its length, its check digits and the cue before it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pipeline.domain.redaction import EntityKind
from pipeline.redaction import checks
from pipeline.redaction.cues import OTHER, Cue, Cues
from pipeline.redaction.runs import MAX_PAUSE, Row

MIN_CARD, MAX_CARD = 13, 19  # ISO/IEC 7812-1
MIN_PHONE, MAX_PHONE = 7, 12  # of a number without a cue
MAX_SECOND_TRY = 8.0  # seconds after a value in which its cue may have another one: "no, sorry, it's 4 7"
MAX_TO_PASSWORD = 15.0  # seconds from its cue
MAX_TOKENS_TO_YEAR = 3  # from a cue to four digits that look like a year
SURE, LIKELY, POSSIBLE = 0.95, 0.8, 0.6
_LENGTHS = {
    EntityKind.CARD: (4, 24),
    EntityKind.CARD_CODE: (3, 4),
    EntityKind.IBAN: (8, 34),
    EntityKind.ACCOUNT: (5, 34),
    EntityKind.NATIONAL_ID: (4, 16),
    EntityKind.PHONE: (6, 16),
    EntityKind.ADDRESS: (4, 8),
    EntityKind.PASSWORD: (3, 20),
}
"""Digits, with corrections applied, that a cue of each kind may announce."""
_WHOLE = {EntityKind.CARD: 13, EntityKind.IBAN: 15, EntityKind.NATIONAL_ID: 8, EntityKind.ACCOUNT: 8,
          EntityKind.PHONE: 9, EntityKind.CARD_CODE: 3, EntityKind.PASSWORD: 4}  # fmt: skip
"""Digits from which a value is complete: a shorter one goes on in the next row."""


_DATES = {EntityKind.CARD_EXPIRY: (3, 8), EntityKind.BIRTH_DATE: (4, 10)}
"""Digits of a date, with two for a month's name."""


@dataclass(slots=True)
class Value:
    """A value over one or several rows."""

    kind: EntityKind
    rows: list[Row]
    confidence: float
    cue: Cue | None

    @property
    def digits(self) -> str:
        return "".join(row.text for row in self.rows)

    @property
    def end(self) -> float:
        return self.rows[-1].end


def values(rows: Iterable[Row], cues: Cues) -> Iterator[Value]:
    """Yield the values of one channel's rows, which are in order of time."""
    last: Value | None = None
    answered: dict[Cue, float] = {}
    for row in rows:
        if row.amount:
            continue
        if last and _continues(last, row, cues):
            last.rows.append(row)
        else:
            kind, confidence, cue = classify(row, cues, answered)
            if kind is None:
                continue
            if last:
                yield last
            last = Value(kind, [row], confidence, cue)
        if last.cue and len(last.digits) >= _WHOLE.get(last.kind, 0):
            answered[last.cue] = row.end
    if last:
        yield last


def dates(rows: Iterable[Row], cues: Cues) -> Iterator[Value]:
    """Yield the dates whose latest cue is a birth or the expiry of a card."""
    for row in rows:
        channel = row.line.channel
        latest = next(cues.before(channel, row.first, row.start), None) or next(
            cues.after(channel, row.last, row.end), None
        )
        kind = EntityKind(latest.kind) if latest and latest.kind in _DATES else None
        if latest and kind and not row.amount:
            least, most = _DATES[kind]
            if any(least <= len(digits) <= most for digits in (row.raw, row.text)):
                yield Value(kind, [row], LIKELY, latest)


def _continues(value: Value, row: Row, cues: Cues) -> bool:
    """Return whether a row is the rest of a value that is not complete."""
    if row.start - value.end > MAX_PAUSE or len(value.digits) >= _WHOLE.get(value.kind, 0):
        return False
    if len(value.digits) + len(row.text) > _LENGTHS[value.kind][1]:
        return False
    between = (cue for cue in cues.before(row.line.channel, row.first, row.start) if cue.end > value.end)
    return not any(cue.kind != value.kind for cue in between)


def classify(row: Row, cues: Cues, answered: Mapping[Cue, float]) -> tuple[EntityKind | None, float, Cue | None]:
    """Return the kind of a row, how sure that is, and the cue that says so; None if it is nothing to hide.

    `answered`: cues that have their value, and when it ended.
    """
    digits = row.text
    kind, confidence = _by_form(row, digits)
    if confidence >= SURE:
        return kind, confidence, None
    channel = row.line.channel
    for cue in (*cues.before(channel, row.first, row.start), *cues.after(channel, row.last, row.end)):
        if cue.kind == OTHER:
            return None, 0.0, None
        if _accepts(cue, row, digits) and row.start - answered.get(cue, row.start) <= MAX_SECOND_TRY:
            is_card = cue.kind in (EntityKind.ACCOUNT, EntityKind.PHONE) and kind is EntityKind.CARD
            return EntityKind.CARD if is_card else EntityKind(cue.kind), LIKELY, cue
    return kind, confidence, None


def _accepts(cue: Cue, row: Row, digits: str) -> bool:
    if cue.kind not in _LENGTHS:
        return False
    least, most = _LENGTHS[EntityKind(cue.kind)]
    if row.is_year and row.first - cue.last > MAX_TOKENS_TO_YEAR:
        return False
    if cue.kind == EntityKind.PASSWORD and row.start - cue.end > MAX_TO_PASSWORD:
        return False
    return least <= len(digits) <= most or (least <= len(row.raw) <= most and row.corrected)


def is_card(digits: str) -> bool:
    """Return whether digits have the length and the check digit of a payment card."""
    return MIN_CARD <= len(digits) <= MAX_CARD and checks.luhn(digits)


def _by_form(row: Row, digits: str) -> tuple[EntityKind | None, float]:
    """Return the kind that the digits alone make likely."""
    if checks.nir(digits):
        return EntityKind.NATIONAL_ID, SURE
    if len(digits) == 11 and checks.cpf(digits):
        return EntityKind.NATIONAL_ID, POSSIBLE
    if MIN_CARD <= len(digits) <= MAX_CARD:
        return EntityKind.CARD, SURE if checks.luhn(digits) else POSSIBLE
    if [len(part.symbols) for part in row.parts] == [3, 2, 4]:
        return EntityKind.NATIONAL_ID, LIKELY
    if MIN_PHONE <= len(digits) <= MAX_PHONE:
        return EntityKind.PHONE, POSSIBLE
    return (EntityKind.CARD, POSSIBLE) if len(digits) > MAX_CARD else (None, 0.0)
