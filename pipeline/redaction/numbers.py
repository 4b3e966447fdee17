"""Which kind of number a row of digits is: by its length, its check digits and the cue before it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.domain.redaction import EntityKind
from pipeline.redaction import checks
from pipeline.redaction.cues import OTHER, Cue, Cues
from pipeline.redaction.runs import MAX_PAUSE, Row

MIN_CARD, MAX_CARD = 13, 19  # ISO/IEC 7812-1
MAX_CODE = 4  # digits of a card's code
MIN_PHONE, MAX_PHONE = 7, 12  # of a number without a cue
MAX_CUTS = 3  # groups at the end of a row that may be another number
MAX_TO_PASSWORD = 15.0  # seconds from its cue
MIN_DECIMAL = 5  # digits of a value that a recognizer writes as a decimal
MAX_SHORT = 20  # digits of a kind that two numbers can look like
MAX_IN_PAIR = 2  # words between two numbers
MAX_TOKENS_TO_YEAR = 2  # from a cue to four digits that look like a year
SURE, LIKELY, POSSIBLE = 0.95, 0.8, 0.6
_LENGTHS = {
    EntityKind.CARD: (4, 24),
    EntityKind.CARD_CODE: (3, 4),
    EntityKind.IBAN: (8, 34),
    EntityKind.ACCOUNT: (4, 34),
    EntityKind.NATIONAL_ID: (4, 16),
    EntityKind.PHONE: (6, 16),
    EntityKind.ADDRESS: (4, 8),
    EntityKind.PASSWORD: (3, 20),
}
"""Digits, with corrections applied, that a cue of each kind may announce."""
WHOLE = {EntityKind.CARD: 13, EntityKind.IBAN: 15, EntityKind.NATIONAL_ID: 8, EntityKind.ACCOUNT: 8,
          EntityKind.PHONE: 9, EntityKind.CARD_CODE: 3, EntityKind.PASSWORD: 4}  # fmt: skip
"""Digits from which a value is complete: a shorter one goes on in the next row."""
_DATES = {EntityKind.CARD_EXPIRY: (3, 8), EntityKind.BIRTH_DATE: (4, 10)}
"""Digits of a date, with two for a month's name."""
Answered = dict[str, float]
"""When the last value of each kind of cue ended: cues before that have theirs."""


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
    answered: Answered = {}
    for row in rows:
        if row.amount:
            continue
        if last and _continues(last, row, cues):
            last.rows.append(row)
        else:
            part, kind, confidence, cue = _first_kind(row, cues, answered)
            if kind is None:
                continue
            if last:
                yield last
            last = Value(kind, [part], confidence, cue)
        if len(last.digits) >= WHOLE.get(last.kind, 0):
            answered[last.cue.kind if last.cue else last.kind] = row.end
    if last:
        yield last


def dates(rows: Iterable[Row], cues: Cues) -> Iterator[Value]:
    """Yield the dates whose latest cue is a birth or the expiry of a card."""
    answered: Answered = {}
    for row in rows:
        if value := _date(row, cues, answered):
            yield value


def _date(row: Row, cues: Cues, answered: Answered) -> Value | None:
    cue = next(cues.before(row.line.channel, row.first, row.start), None) or next(cues.after(row.line, row.last), None)
    kind = EntityKind(cue.kind) if cue and cue.kind in _DATES else None
    if not cue or not kind or row.amount or row.thousands or _is_answered(cue, row, answered):
        return None
    if row.is_year and _words_before(row, cue) > MAX_TOKENS_TO_YEAR:
        return None
    least, most = _DATES[kind]
    fitting = (part for part in heads(row) if any(least <= len(text) <= most for text in (part.raw, part.text)))
    date = next(fitting, None)
    if date is None:
        return None
    if len(date.raw) >= least + 1:
        answered[cue.kind] = date.end
    return Value(kind, [date], LIKELY, cue)


def _is_answered(cue: Cue, row: Row, answered: Answered) -> bool:
    """Return whether a cue has its value, perhaps by a later cue of its kind, and the row does not correct it."""
    return cue.end <= answered.get(cue.kind, -1.0) and not row.is_second_try


def heads(row: Row) -> Iterator[Row]:
    """Yield the row, and the row without its last groups: on a mixed channel they may be the other party's."""
    yield row
    cuts = [at for at in range(len(row.parts) - 1, 0, -1) if row.parts[at].opens]
    for cut in cuts[:MAX_CUTS]:
        yield Row(row.line, row.parts[:cut], row.corrected, row.amount)


def _continues(value: Value, row: Row, cues: Cues) -> bool:
    """Return whether a row is the rest of a value that is not complete."""
    if row.start - value.end > MAX_PAUSE or len(value.digits) >= WHOLE.get(value.kind, 0):
        return False
    if len(value.digits) + len(row.text) > _LENGTHS[value.kind][1]:
        return False
    between = (cue for cue in cues.before(row.line.channel, row.first, row.start) if cue.end > value.end)
    return not any(cue.kind != value.kind for cue in between)


def _first_kind(row: Row, cues: Cues, answered: Answered) -> tuple[Row, EntityKind | None, float, Cue | None]:
    """Return what the row or its head is; a row without a cue of its own whose head has one is hidden whole."""
    formed = None
    for part in heads(row):
        kind, confidence, cue = classify(part, cues, answered)
        if kind is not None and (cue or confidence >= SURE):
            return (row if formed else part), kind, confidence, cue
        formed = formed or (kind and (row, kind, confidence, cue))
    return formed or (row, None, 0.0, None)


def classify(row: Row, cues: Cues, answered: Answered) -> tuple[EntityKind | None, float, Cue | None]:
    """Return the kind of a row, how sure that is, and the cue that says so; None if it is nothing to hide."""
    digits = row.text
    kind, confidence = (None, 0.0) if row.decimal else _by_form(row, digits)
    if confidence >= SURE:
        return kind, confidence, None
    channel = row.line.channel
    for cue in (*cues.before(channel, row.first, row.start), *cues.after(row.line, row.last)):
        if cue.kind == OTHER:
            return None, 0.0, None
        if _accepts(cue, row, digits) and not _is_answered(cue, row, answered):
            if cue.kind == EntityKind.CARD and len(digits) <= MAX_CODE and (code := cues.code_on(cue)):
                return EntityKind.CARD_CODE, LIKELY, code
            is_card = cue.kind in (EntityKind.ACCOUNT, EntityKind.PHONE) and kind is EntityKind.CARD
            return EntityKind.CARD if is_card else EntityKind(cue.kind), LIKELY, cue
    return kind, confidence, None


def _accepts(cue: Cue, row: Row, digits: str) -> bool:
    if cue.kind not in _LENGTHS:
        return False
    least, most = _LENGTHS[EntityKind(cue.kind)]
    fits = least <= len(digits) <= most or (row.corrected and least <= len(row.raw) <= 2 * most)
    return fits and not _is_other(cue, row, digits, most)


def _is_other(cue: Cue, row: Row, digits: str, most: int) -> bool:
    """Return whether a row of the right length is an amount, a year, two numbers, or too far from its cue."""
    late = cue.kind == EntityKind.PASSWORD and row.start - cue.end > MAX_TO_PASSWORD
    return (
        (row.decimal and len(digits) < MIN_DECIMAL)
        or (row.is_year and _words_before(row, cue) > MAX_TOKENS_TO_YEAR)
        or (most <= MAX_SHORT and _is_pair(row))
        or late
    )


def _words_before(row: Row, cue: Cue) -> int:
    """Return the tokens between a cue, or the beginning of the turn that answers it, and a row."""
    if cue.channel == row.line.channel and row.line.words[cue.last].text == row.line.words[row.first].text:
        return row.first - cue.last
    first = row.first
    while (
        first > 0
        and row.first - first <= MAX_TOKENS_TO_YEAR
        and row.line.words[first - 1].text == row.line.words[row.first].text
    ):
        first -= 1
    return row.first - first + 1


def _is_pair(row: Row) -> bool:
    """Return whether a row is two numbers: "between 8 and 12"."""
    if len(row.parts) != 2 or not row.parts[1].opens or row.corrected:
        return False
    return row.parts[1].first - row.parts[0].end <= MAX_IN_PAIR


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
