"""Dates of the due expressions of all languages: one function per rule name of the language packs."""

import calendar
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

MAX_MONTHS_AHEAD = 3  # in which a day of a month is searched that has the named weekday
MONDAY, WEDNESDAY, FRIDAY, SATURDAY = 0, 2, 4, 5


@dataclass(frozen=True, slots=True)
class DateMatch:
    """The groups of a pattern match, as numbers. `now` is the call's start in the workspace's time zone."""

    now: datetime
    weekday: int | None = None  # Monday is 0
    month: int | None = None
    day: int | None = None  # of a month
    number: int | None = None
    quarter: int | None = None
    offset: int | None = None  # days from today
    year: int | None = None
    agreed: date | None = None  # the day mentioned before

    @property
    def today(self) -> date:
        return self.now.date()


def _next(match: DateMatch) -> date:
    assert match.weekday is not None
    return match.today + timedelta(days=(match.weekday - match.today.weekday() - 1) % 7 + 1)


def _after_agreed(match: DateMatch) -> date | None:
    """Return the weekday after the agreed day ("the Wednesday after"); None if there is none."""
    if match.agreed is None or match.weekday is None:
        return None
    return match.agreed + timedelta(days=(match.weekday - match.agreed.weekday() - 1) % 7 + 1)


def _beside_agreed(match: DateMatch, days: int) -> date | None:
    return match.agreed and match.agreed + timedelta(days=days)


def _of_week(match: DateMatch, weekday: int | None, weeks: int = 0) -> date:
    assert weekday is not None
    return match.today + timedelta(days=weekday - match.today.weekday(), weeks=weeks)


def _plus(match: DateMatch, days: int) -> date:
    return match.today + timedelta(days=days)


def _month(match: DateMatch, months: int) -> tuple[int, int]:
    years, month = divmod(match.now.month - 1 + months, 12)
    return match.now.year + years, month + 1


def _last(year: int, month: int) -> date:
    return date(year, month, calendar.monthrange(year, month)[1])


def _month_of(match: DateMatch) -> tuple[int, int]:
    """Return year and month of the next such month, including the current one, which is the default."""
    month = match.month or match.now.month
    return match.now.year + (month < match.now.month), month


def _day_month(match: DateMatch) -> date | None:
    if not match.month or not match.day:
        return None
    if match.year:
        return date(match.year + 2000 * (match.year < 100), match.month, match.day)
    for year in range(match.now.year, match.now.year + 9):  # the 29th of February may be years away
        if match.day <= calendar.monthrange(year, match.month)[1] and date(year, match.month, match.day) >= match.today:
            return date(year, match.month, match.day)
    raise ValueError(f"no month {match.month} has a day {match.day}")


def _day(match: DateMatch) -> date | None:
    """Return the next such day of a month; with a weekday ("Friday the 13th") the first that is both, if it is near."""
    assert match.day
    days = []
    for months in range(12):
        year, month = _month(match, months)
        if match.day <= calendar.monthrange(year, month)[1] and date(year, month, match.day) >= match.today:
            days.append(date(year, month, match.day))
    near = (day for day in days[:MAX_MONTHS_AHEAD] if match.weekday in (None, day.weekday()))
    return next(near, next(iter(days), None))


def _day_next_month(match: DateMatch) -> date:
    assert match.day
    return date(*_month(match, 1), match.day)


def _in_months(match: DateMatch) -> date:
    assert match.number is not None
    last = _last(*_month(match, match.number))
    return last.replace(day=min(match.now.day, last.day))


def _quarter(match: DateMatch, quarters: int = 0, first: bool = False) -> date:
    """Return the last or `first` day of the named quarter or of the current one, `quarters` later.

    A named quarter that is over is that of the next year.
    """
    current = (match.now.month - 1) // 3 + 1
    number = (match.quarter or current) + quarters
    years, at = divmod(number - 1, 4)
    year = match.now.year + years + (number < current)
    day = date(year, 3 * at + 1, 1) if first else _last(year, 3 * at + 3)
    return day if day >= match.today else day.replace(year=year + 1)


def _working_days(match: DateMatch) -> date:
    assert match.number is not None
    day, remaining = match.today, match.number
    while remaining > 0:
        day += timedelta(days=1)
        remaining -= day.weekday() <= FRIDAY
    return day


def _in_hours(match: DateMatch) -> date:
    """Add hours in real time: a day has 23 or 25 of them when the clocks change."""
    later = match.now.astimezone(UTC) + timedelta(hours=match.number or 0)
    return later.astimezone(match.now.tzinfo).date()


def _start_of_month(match: DateMatch) -> date:
    year, month = _month_of(match)
    day = date(year, month, 1)
    return day if day >= match.today else date(year + 1, month, 1)


def _nth_weekday(match: DateMatch) -> date:
    """Resolve "the first Monday in May"; without a month in the current one, or the next if the day is over."""
    assert match.weekday is not None and match.day is not None
    year, month = _month_of(match)
    for _ in range(2):
        first = date(year, month, 1)
        day = first + timedelta(days=(match.weekday - first.weekday()) % 7, weeks=match.day - 1)
        if day >= match.today and day.month == month:
            return day
        year, month = (year + 1, month) if match.month else _month(match, 1)
    raise ValueError("no such weekday")


def _nth_week(match: DateMatch) -> date:
    """Return the Friday of "the third week of June"; the first week is that of the month's first Friday."""
    return _nth_weekday(replace(match, weekday=FRIDAY))


def _last_weekday(match: DateMatch) -> date:
    assert match.weekday is not None
    last = _last(*_month_of(match))
    return last - timedelta(days=(last.weekday() - match.weekday) % 7)


RULES: dict[str, Callable[[DateMatch], date | None]] = {
    "offset": lambda match: _plus(match, match.offset or 0),
    "next_morning": lambda match: _plus(match, 1),
    "offset_week": lambda match: _plus(match, (match.offset or 0) + 7),
    "offset_fortnight": lambda match: _plus(match, (match.offset or 0) + 14),
    "offset_weeks": lambda match: _plus(match, (match.offset or 0) + 7 * (match.number or 0)),
    "weekday": _next,
    "weekday_after": _after_agreed,
    "day_after": lambda match: _beside_agreed(match, 1),
    "day_before": lambda match: _beside_agreed(match, -1),
    "next_weekday": lambda match: _of_week(match, match.weekday, weeks=1),
    "this_week_weekday": lambda match: _of_week(match, match.weekday),
    "weekday_after_next": lambda match: _of_week(match, match.weekday, weeks=2),
    "weekday_week": lambda match: _next(match) + timedelta(weeks=1),
    "weekday_fortnight": lambda match: _next(match) + timedelta(weeks=2),
    "weekday_weeks": lambda match: _next(match) + timedelta(weeks=match.number or 1),
    "day_month": _day_month,
    "day": _day,
    "week_of_day": lambda match: _day_month(match) or _day(match),
    "day_next_month": _day_next_month,
    "nth_weekday": _nth_weekday,
    "last_weekday": _last_weekday,
    "nth_week": _nth_week,
    "last_week": lambda match: _last_weekday(replace(match, weekday=FRIDAY)),
    "end_of_week": lambda match: max(match.today, _of_week(match, FRIDAY)),
    "middle_of_week": lambda match: _of_week(match, WEDNESDAY, weeks=match.today.weekday() > WEDNESDAY),
    "start_of_next_week": lambda match: _of_week(match, MONDAY, weeks=1),
    "middle_of_next_week": lambda match: _of_week(match, WEDNESDAY, weeks=1),
    "end_of_next_week": lambda match: _of_week(match, FRIDAY, weeks=1),
    "week_after_next": lambda match: _of_week(match, FRIDAY, weeks=2),
    "weekend": lambda match: max(match.today, _of_week(match, SATURDAY)),
    "next_weekend": lambda match: _of_week(match, SATURDAY, weeks=1),
    "start_of_month": _start_of_month,
    "start_of_next_month": lambda match: date(*_month(match, 1), 1),
    "middle_of_month": lambda match: _day_month(DateMatch(match.now, month=_month_of(match)[1], day=15)),
    "middle_of_next_month": lambda match: date(*_month(match, 1), 15),
    "end_of_month": lambda match: _last(*_month_of(match)),
    "end_of_next_month": lambda match: _last(*_month(match, 1)),
    "start_of_quarter": lambda match: _quarter(match, first=True),
    "end_of_quarter": _quarter,
    "start_of_next_quarter": lambda match: _quarter(match, 1, first=True),
    "end_of_next_quarter": lambda match: _quarter(match, 1),
    "end_of_year": lambda match: date(match.now.year, 12, 31),
    "in_working_days": _working_days,
    "in_days": lambda match: _plus(match, match.number or 0),
    "in_ten_days": lambda match: _plus(match, 10),
    "in_weeks": lambda match: _plus(match, 7 * (match.number or 0)),
    "in_fortnight": lambda match: _plus(match, 14),
    "in_months": _in_months,
    "in_years": lambda match: _in_months(replace(match, number=12 * (match.number or 1))),
    "in_hours": _in_hours,
    "agreed": lambda match: match.agreed,
    "open": lambda match: None,
}
"""Rules by the names that language packs use. `agreed`: the day mentioned before; `open`: an expression ("soon") from
which no date follows."""
