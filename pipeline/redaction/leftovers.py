"""What a call's values say about the digits around them: these rules prefer to hide too much."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from pipeline.domain.redaction import EntityKind
from pipeline.redaction.channel import Channel
from pipeline.redaction.cues import OTHER, Cue
from pipeline.redaction.lines import DOUBTFUL, Line
from pipeline.redaction.numbers import LIKELY, MIN_PHONE, POSSIBLE, Value
from pipeline.redaction.runs import Reading, Row

MAX_REPEAT_SECONDS = 90.0  # after a code of three or four digits, in which the same digits are hidden
MIN_REPEATED = 4  # digits of a longer value that are hidden anywhere in the call
MAX_CODE_SECONDS = 60.0  # from a card to its code
MAX_AROUND = 3  # other words of a turn that is an answer
MAX_AROUND_CODE = 2  # ... of one that is a code without a card before
MAX_LOOK = 8  # tokens before and after a row in which they are counted
MAX_TO_REST = 3  # unknown words between a value and what belongs to it
MAX_TO_END = 6  # tokens from the cue of a question to its end
MAX_ANSWER_SECONDS = 8.0
_LONG = frozenset(
    {EntityKind.CARD, EntityKind.IBAN, EntityKind.ACCOUNT, EntityKind.NATIONAL_ID, EntityKind.PHONE,
     EntityKind.SPELLED_NAME}
)  # fmt: skip
_ASKED = _LONG - {EntityKind.SPELLED_NAME} | {
    EntityKind.CARD_CODE,
    EntityKind.CARD_EXPIRY,
    EntityKind.BIRTH_DATE,
    EntityKind.PASSWORD,
}

Ends = dict[EntityKind, list[tuple[float, int]]]
"""When the entities of each kind end, in order, and in which turn."""


def complete(channels: Sequence[Channel]) -> None:
    """Drop values whose cue has another one; hide repeated values, codes, short answers, and rests of values."""
    ends = ends_of(channels)
    for channel in channels:
        for value in [value for value in channel.values if _is_second(value, ends)]:
            channel.drop(value)
    values = [value for channel in channels for value in channel.values if value.kind in channel.policy.kinds]
    for channel in channels:
        for row in [row for row in channel.rows(Reading.DIGITS) if not (row.amount or row.thousands)]:
            repeated = next((value for value in values if _is_repeated(row, value)), None)
            if kind := repeated.kind if repeated else _kind(channel, row, ends):
                channel.add(kind, row.taken, LIKELY if repeated else POSSIBLE)
        for row in channel.rows(Reading.DATES):
            if _is_birth(row) and _around(row) <= MAX_AROUND:
                channel.add(EntityKind.BIRTH_DATE, row.taken, POSSIBLE)


def _kind(channel: Channel, row: Row, ends: Ends) -> EntityKind | None:
    cue = next(channel.cues.before(row.line.channel, row.first, row.start), None)
    if _is_word(row):
        return None
    if kind := _kind_nearby(channel, row, cue):
        return kind
    around = _around(row)
    if row.is_year or len(row.text) < 2 or around > MAX_AROUND:
        return None
    if cue and _is_answer(row, cue) and not is_answered(cue, row.start, row.line.words[row.first].text, ends):
        return EntityKind(cue.kind)
    is_code = len(row.text) in (3, 4) and EntityKind.CARD_CODE in channel.policy.kinds
    if not is_code or (cue and cue.kind == OTHER):
        return None
    soon = any(0 <= row.start - end <= MAX_CODE_SECONDS for end, _ in ends[EntityKind.CARD])
    is_said = all(len(part.symbols) == 1 for part in row.parts) or row.line.sure(row.taken) < DOUBTFUL
    return EntityKind.CARD_CODE if soon or (is_said and around <= MAX_AROUND_CODE) else None


def _is_birth(row: Row) -> bool:
    """Return whether a row is a month and a year, in which a caller may be born."""
    months = any(row.line.lower[part.first] in row.line.packs[part.first].months for part in row.parts)
    return months and len(row.raw) in (6, 8) and 1920 <= int(row.raw[-4:]) <= 2015


def _is_word(row: Row) -> bool:
    """Return whether a row may be no number: "one", "um"."""
    return len(row.parts) == 1 and _is_stopword(row.line, row.first)


def _is_stopword(line: Line, at: int) -> bool:
    return line.lower[at] in line.packs[at].words("text", "stopwords")


def _around(row: Row) -> int:
    """Return how many other words of its turn are near a row."""
    line, turn = row.line, row.line.words[row.first].text
    near = [*range(max(0, row.first - MAX_LOOK), row.first), *range(row.last + 1, row.last + 1 + MAX_LOOK)]
    return sum(at < len(line.words) and line.words[at].text == turn and line.lower[at].isalnum() for at in near)


def _is_answer(row: Row, cue: Cue) -> bool:
    """Return whether a row is said in the turn after another party's question for it."""
    line, turn = row.line, row.line.words[row.first].text
    if cue.kind not in _ASKED or cue.to_end > MAX_TO_END or row.start - cue.end > MAX_ANSWER_SECONDS:
        return False
    return cue.channel != line.channel or (line.mixed and line.words[cue.last].text != turn)


def _kind_nearby(channel: Channel, row: Row, cue: Cue | None) -> EntityKind | None:
    """Return the kind of a long value of which the row is a part that unknown words separate."""
    line, turn = row.line, row.line.words[row.first].text
    for places in (range(row.first - 1, -1, -1), range(row.last + 1, len(line.words))):
        words = 0
        for at in places:
            if line.words[at].text != turn or words > MAX_TO_REST or line.ends_sentence(at):
                break
            if at in channel.taken:
                is_announced = cue and cue.channel == line.channel and at < cue.last < row.first
                if (
                    channel.taken[at] in _LONG | {EntityKind.BIRTH_DATE}
                    and not is_announced
                    and not _is_stopword(line, at)
                ):
                    return channel.taken[at]
                break
            words += line.lower[at].isalnum()
    return None


def ends_of(channels: Sequence[Channel]) -> Ends:
    ends: Ends = defaultdict(list)
    for channel in channels:
        for entity in channel.entities:
            ends[entity.kind].append((entity.pieces[-1].end, entity.pieces[-1].text))
    for of_kind in ends.values():
        of_kind.sort()
    return ends


def _is_second(value: Value, ends: Ends) -> bool:
    """Return whether a short value follows a cue that has its value, and does not complete or correct that."""
    if value.cue is None or value.kind is EntityKind.ADDRESS or len(value.digits) >= MIN_PHONE:
        return False
    row = value.rows[0]
    return not row.is_second_try and is_answered(value.cue, row.start, row.line.words[row.first].text, ends)


def is_answered(cue: Cue, start: float, turn: int, ends: Ends) -> bool:
    """Return whether a value of the cue's kind is between a cue and a time, in another turn than the given one."""
    of_kind = ends.get(EntityKind(cue.kind), [])
    at = bisect_left(of_kind, (cue.end, -1))
    return at < len(of_kind) and of_kind[at][0] <= start and of_kind[at][1] != turn


def _is_repeated(row: Row, value: Value) -> bool:
    digits = value.digits
    if len(digits) <= MIN_REPEATED:
        return row.text == digits and 0 <= row.start - value.end <= MAX_REPEAT_SECONDS
    return len(row.text) >= MIN_REPEATED and not row.is_year and (row.text in digits or digits in row.text)
