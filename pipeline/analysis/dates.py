"""When something is due: the expression as said, and its date counted from the day of the call.

The README of this package has the conventions: what "before Saturday" and "next Wednesday" are.
"""

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from pipeline.analysis.language import Pack, straighten
from pipeline.analysis.spoken import number

FRIDAY = 4


@dataclass(frozen=True, slots=True)
class Due:
    """`expression` is characters `first`..`last` of the text; `day` None: nothing definite follows from it."""

    expression: str
    first: int
    last: int
    day: date | None


@dataclass(frozen=True, slots=True)
class Said:
    """What a pattern caught, as numbers. `now` is the call's start in the workspace's own time zone."""

    now: datetime
    weekday: int | None
    month: int | None
    day: int | None  # of a month
    number: int | None
    offset: int | None


def local(start: datetime, time_zone: str) -> datetime:
    """The call's start on the clock of the workspace. Raises ZoneInfoNotFoundError for an unknown zone."""
    return start.astimezone(ZoneInfo(time_zone))


def find(text: str, words: Pack, now: datetime) -> Due | None:
    """The due expression of a sentence: the longest that a rule of the pack catches; of equals the last."""
    straight, best = straighten(text), None
    for rule, pattern in _rules(words):
        for match in pattern.finditer(straight):
            day = _resolve(rule, match, words, now)
            due = Due(*_trimmed(straight, match), day)
            if best is None or due.last - due.first >= best.last - best.first:
                best = due
    return best or _written(text, words, now)


def _trimmed(text: str, match: re.Match[str]) -> tuple[str, int, int]:
    first = match.start() + len(match.group()) - len(match.group().lstrip())
    last = match.end() - (len(match.group()) - len(match.group().rstrip(" ,.")))
    return text[first:last], first, last


_rules_of: dict[str | None, tuple[tuple[str, re.Pattern[str]], ...]] = {}


def _rules(words: Pack) -> tuple[tuple[str, re.Pattern[str]], ...]:
    if words.language not in _rules_of:
        compiled = tuple((rule, words.compile(pattern)) for rule, pattern in words.get("dates", "rules", []))
        _rules_of[words.language] = compiled
    return _rules_of[words.language]


def _resolve(rule: str, match: re.Match[str], words: Pack, now: datetime) -> date | None:
    caught = {key: value.lower().replace("-", " ") for key, value in match.groupdict().items() if value}
    ordinal = words.ordinals.get(caught.get("ordinal", ""))
    if "ordinal_digits" in caught:
        ordinal = int(re.sub(r"\D", "", caught["ordinal_digits"]))
    count = number(caught["number"], words) if "number" in caught else None
    said = Said(
        now,
        words.weekdays.get(caught.get("weekday", "")),
        words.months.get(caught.get("month", "")),
        ordinal if ordinal is not None else count,
        count,
        words.offsets.get(caught.get("offset", "")),
    )
    try:
        day = RULES[rule](said)
    except (ValueError, TypeError, OverflowError):  # "the thirty-first of February", or a part that is not there
        return None
    return day - timedelta(days=1) if day and "before" in caught else day


def _next(today: date, weekday: int) -> date:
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)


def _of_week(today: date, weekday: int, weeks: int = 0) -> date:
    return today + timedelta(days=weekday - today.weekday(), weeks=weeks)


def _day_month(said: Said) -> date:
    assert said.month and said.day
    today = said.now.date()
    day = date(today.year, said.month, said.day)
    return day if day >= today else date(today.year + 1, said.month, said.day)


def _day(said: Said) -> date | None:
    """The next such day of a month that has one, today included."""
    assert said.day
    year, month = said.now.year, said.now.month
    for _ in range(12):
        if said.day <= calendar.monthrange(year, month)[1] and date(year, month, said.day) >= said.now.date():
            return date(year, month, said.day)
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    return None


def _end_of_month(said: Said) -> date:
    year, month = said.now.year, said.month or said.now.month
    year += month < said.now.month
    return date(year, month, calendar.monthrange(year, month)[1])


def _in_months(said: Said) -> date:
    assert said.number is not None
    years, month = divmod(said.now.month - 1 + said.number, 12)
    year = said.now.year + years
    return date(year, month + 1, min(said.now.day, calendar.monthrange(year, month + 1)[1]))


def _working_days(said: Said) -> date:
    assert said.number is not None
    day, left = said.now.date(), said.number
    while left > 0:
        day += timedelta(days=1)
        left -= day.weekday() <= FRIDAY
    return day


def _plus(said: Said, days: int) -> date:
    return said.now.date() + timedelta(days=days)


def _this_friday(said: Said) -> date:
    today = said.now.date()
    return max(today, _of_week(today, FRIDAY))


RULES: dict[str, Callable[[Said], date | None]] = {
    "offset": lambda said: _plus(said, said.offset or 0),
    "weekday": lambda said: _next(said.now.date(), said.weekday or 0),
    "next_weekday": lambda said: _of_week(said.now.date(), said.weekday or 0, weeks=1),
    "weekday_week": lambda said: _next(said.now.date(), said.weekday or 0) + timedelta(weeks=1),
    "day_month": _day_month,
    "day": _day,
    "week_of_day": _day,
    "end_of_week": _this_friday,
    "end_of_next_week": lambda said: _of_week(said.now.date(), FRIDAY, weeks=1),
    "end_of_month": _end_of_month,
    "in_working_days": _working_days,
    "in_days": lambda said: _plus(said, said.number or 0),
    "in_weeks": lambda said: _plus(said, 7 * (said.number or 0)),
    "in_months": _in_months,
    "in_hours": lambda said: (said.now + timedelta(hours=said.number or 0)).date(),
}
"""Rules by the names that language packs use."""


def _written(text: str, words: Pack, now: datetime) -> Due | None:
    """A date written in figures; their order depends on the language, which dateparser knows."""
    match = re.search(r"\b\d{1,4}[./-]\d{1,2}[./-]\d{2,4}\b", text)
    if match is None or not words.language:
        return None
    import dateparser  # slow to import, seldom needed

    settings = {"STRICT_PARSING": True, "RELATIVE_BASE": now.replace(tzinfo=None), "PREFER_DATES_FROM": "future"}
    parsed = dateparser.parse(match.group(), languages=[words.language], settings=settings)
    return Due(match.group(), match.start(), match.end(), parsed.date() if parsed else None)
