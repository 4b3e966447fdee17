"""What the due expressions of all languages mean, as dates: one function per rule name of the language packs."""

import calendar
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

MONDAY, WEDNESDAY, FRIDAY, SATURDAY = 0, 2, 4, 5


@dataclass(frozen=True, slots=True)
class Caught:
    """What a pattern caught, as numbers. `now` is the call's start in the workspace's own time zone."""

    now: datetime
    weekday: int | None = None  # Monday is 0
    month: int | None = None
    day: int | None = None  # of a month
    number: int | None = None
    offset: int | None = None  # days from today
    year: int | None = None
    agreed: date | None = None  # the day spoken of before

    @property
    def today(self) -> date:
        return self.now.date()


def _next(said: Caught) -> date:
    """The next such weekday after today."""
    assert said.weekday is not None
    return said.today + timedelta(days=(said.weekday - said.today.weekday() - 1) % 7 + 1)


def _after_agreed(said: Caught) -> date | None:
    """ "The Wednesday after": after the day spoken of before; None where there was none."""
    if said.agreed is None or said.weekday is None:
        return None
    return said.agreed + timedelta(days=(said.weekday - said.agreed.weekday() - 1) % 7 + 1)


def _of_week(said: Caught, weekday: int | None, weeks: int = 0) -> date:
    assert weekday is not None
    return said.today + timedelta(days=weekday - said.today.weekday(), weeks=weeks)


def _plus(said: Caught, days: int) -> date:
    return said.today + timedelta(days=days)


def _month(said: Caught, months: int) -> tuple[int, int]:
    """Year and month, `months` from now."""
    years, month = divmod(said.now.month - 1 + months, 12)
    return said.now.year + years, month + 1


def _last(year: int, month: int) -> date:
    return date(year, month, calendar.monthrange(year, month)[1])


def _named(said: Caught) -> tuple[int, int]:
    """Year and month of the next such month, the running one included; without a name the running one."""
    month = said.month or said.now.month
    return said.now.year + (month < said.now.month), month


def _day_month(said: Caught) -> date:
    assert said.month and said.day
    if said.year:
        return date(said.year + 2000 * (said.year < 100), said.month, said.day)
    for year in range(said.now.year, said.now.year + 9):  # the 29th of February may be years away
        if said.day <= calendar.monthrange(year, said.month)[1] and date(year, said.month, said.day) >= said.today:
            return date(year, said.month, said.day)
    raise ValueError(f"no month {said.month} has a day {said.day}")


def _day(said: Caught) -> date | None:
    """The next such day of a month that has one, today included."""
    assert said.day
    for months in range(12):
        year, month = _month(said, months)
        if said.day <= calendar.monthrange(year, month)[1] and date(year, month, said.day) >= said.today:
            return date(year, month, said.day)
    return None


def _day_next_month(said: Caught) -> date:
    assert said.day
    return date(*_month(said, 1), said.day)


def _in_months(said: Caught) -> date:
    assert said.number is not None
    last = _last(*_month(said, said.number))
    return last.replace(day=min(said.now.day, last.day))


def _working_days(said: Caught) -> date:
    assert said.number is not None
    day, left = said.today, said.number
    while left > 0:
        day += timedelta(days=1)
        left -= day.weekday() <= FRIDAY
    return day


def _in_hours(said: Caught) -> date:
    """Hours pass in real time: a day has 23 or 25 of them when the clocks change."""
    later = said.now.astimezone(UTC) + timedelta(hours=said.number or 0)
    return later.astimezone(said.now.tzinfo).date()


def _start_of_month(said: Caught) -> date:
    year, month = _named(said)
    day = date(year, month, 1)
    return day if day >= said.today else date(year + 1, month, 1)


def _nth_weekday(said: Caught) -> date:
    """ "the first Monday in May"; without a month that of this one, or of the next where it is over."""
    assert said.weekday is not None and said.day is not None
    year, month = _named(said)
    for _ in range(2):
        first = date(year, month, 1)
        day = first + timedelta(days=(said.weekday - first.weekday()) % 7, weeks=said.day - 1)
        if day >= said.today and day.month == month:
            return day
        year, month = (year + 1, month) if said.month else _month(said, 1)
    raise ValueError("no such weekday")


def _nth_week(said: Caught) -> date:
    """ "The third week of June": its Friday, as of any week; the first week is that of the month's first Friday."""
    return _nth_weekday(replace(said, weekday=FRIDAY))


def _last_weekday(said: Caught) -> date:
    assert said.weekday is not None
    last = _last(*_named(said))
    return last - timedelta(days=(last.weekday() - said.weekday) % 7)


RULES: dict[str, Callable[[Caught], date | None]] = {
    "offset": lambda said: _plus(said, said.offset or 0),
    "next_morning": lambda said: _plus(said, 1),
    "offset_week": lambda said: _plus(said, (said.offset or 0) + 7),
    "offset_fortnight": lambda said: _plus(said, (said.offset or 0) + 14),
    "weekday": _next,
    "weekday_after": _after_agreed,
    "next_weekday": lambda said: _of_week(said, said.weekday, weeks=1),
    "this_week_weekday": lambda said: _of_week(said, said.weekday),
    "weekday_after_next": lambda said: _of_week(said, said.weekday, weeks=2),
    "weekday_week": lambda said: _next(said) + timedelta(weeks=1),
    "weekday_fortnight": lambda said: _next(said) + timedelta(weeks=2),
    "weekday_weeks": lambda said: _next(said) + timedelta(weeks=said.number or 1),
    "day_month": _day_month,
    "day": _day,
    "week_of_day": _day,
    "day_next_month": _day_next_month,
    "nth_weekday": _nth_weekday,
    "last_weekday": _last_weekday,
    "nth_week": _nth_week,
    "last_week": lambda said: _last_weekday(replace(said, weekday=FRIDAY)),
    "end_of_week": lambda said: max(said.today, _of_week(said, FRIDAY)),
    "middle_of_week": lambda said: _of_week(said, WEDNESDAY, weeks=said.today.weekday() > WEDNESDAY),
    "start_of_next_week": lambda said: _of_week(said, MONDAY, weeks=1),
    "middle_of_next_week": lambda said: _of_week(said, WEDNESDAY, weeks=1),
    "end_of_next_week": lambda said: _of_week(said, FRIDAY, weeks=1),
    "week_after_next": lambda said: _of_week(said, FRIDAY, weeks=2),
    "weekend": lambda said: max(said.today, _of_week(said, SATURDAY)),
    "next_weekend": lambda said: _of_week(said, SATURDAY, weeks=1),
    "start_of_month": _start_of_month,
    "start_of_next_month": lambda said: date(*_month(said, 1), 1),
    "middle_of_month": lambda said: _day_month(Caught(said.now, month=_named(said)[1], day=15)),
    "end_of_month": lambda said: _last(*_named(said)),
    "end_of_next_month": lambda said: _last(*_month(said, 1)),
    "end_of_year": lambda said: date(said.now.year, 12, 31),
    "in_working_days": _working_days,
    "in_days": lambda said: _plus(said, said.number or 0),
    "in_ten_days": lambda said: _plus(said, 10),
    "in_weeks": lambda said: _plus(said, 7 * (said.number or 0)),
    "in_fortnight": lambda said: _plus(said, 14),
    "in_months": _in_months,
    "in_hours": _in_hours,
    "agreed": lambda said: said.agreed,
    "open": lambda said: None,
}
"""Rules by the names that language packs use. `agreed`: the day spoken of before; `open`: an expression ("soon") from
which no date follows."""
