"""Times of day in a sentence: "at half past two", "um 15 Uhr 30", "a las cinco y media", "à dix-sept heures"."""

import re
from dataclasses import dataclass

from pipeline.language.pack import Pack
from pipeline.language.spoken.numbers import number

AFTERNOON_UNTIL = 7  # "at one" to "at seven" means the afternoon, "at eight" the morning


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """`text` is "HH:MM". `is_certain`: the words can only mean a time of day, even without a day next to them."""

    text: str
    first: int
    last: int
    is_certain: bool


_rules_of: dict[str | None, tuple[tuple[str, re.Pattern[str]], ...]] = {}


def _rules(words: Pack) -> tuple[tuple[str, re.Pattern[str]], ...]:
    if words.language not in _rules_of:
        rules = words.get("dates", "times", [])
        # A second number in a pattern cannot have the name of the first.
        ready = ((rule, pattern.replace("%minute%", _minute(words))) for rule, pattern in rules)
        _rules_of[words.language] = tuple((rule, words.compile(pattern)) for rule, pattern in ready)
    return _rules_of[words.language]


def _minute(words: Pack) -> str:
    return words.placeholders["number"].replace("?P<number>", "?P<minute>")


def find_times(text: str, words: Pack) -> tuple[TimeOfDay, ...]:
    """Return the times of day in `text` without overlaps, the longest first.

    Rule names: `clock`, `half` (past), `half_to` (halb drei), `quarter`, `quarter_of` (viertel drei), `quarter_to`,
    `past`, `to`, `noon` and `midnight`; `loose` before one: only a time next to a day.
    """
    times = (_read(rule, match, words) for rule, pattern in _rules(words) for match in pattern.finditer(text))
    apart: list[TimeOfDay] = []
    for time in sorted(filter(None, times), key=lambda item: item.first - item.last):
        if all(time.last <= other.first or other.last <= time.first for other in apart):
            apart.append(time)
    return tuple(apart)


def _read(rule: str, match: re.Match[str], words: Pack) -> TimeOfDay | None:
    groups = {key: value.lower() for key, value in match.groupdict().items() if value}
    name = rule.removeprefix("loose:")
    hour = number(groups["number"], words, articles=True) if "number" in groups else None
    minute = number(groups["minute"], words, articles=True) if "minute" in groups else 0
    total = _minutes(name, hour, minute)
    if total is None:
        return None
    part = groups.get("part", "")
    pm = any(pattern.search(part) for pattern in words.patterns("dates", "pm")) if part else None
    hour, minute = divmod(total, 60)
    hour = hour if pm is None and name in _FIXED else _of_day(hour, pm)
    if not (0 <= hour < 24 and 0 <= minute < 60):
        return None
    last = match.start() + len(match.group().rstrip(" ."))
    return TimeOfDay(f"{hour:02d}:{minute:02d}", match.start(), last, not rule.startswith("loose:"))


def _of_day(hour: int, pm: bool | None) -> int:
    """Return the hour on a clock of 24 hours; `pm` None: the words do not show the half of the day."""
    if pm is None:
        return hour + 12 if 1 <= hour <= AFTERNOON_UNTIL else hour
    if pm:
        return hour + 12 if hour < 12 else hour
    return 0 if hour == 12 else hour


_FIXED = {"noon", "midnight"}


def _minutes(name: str, hour: int | None, minute: int | None) -> int | None:
    """Return minutes after midnight, before the half of the day is known."""
    if name in _FIXED:
        return 12 * 60 if name == "noon" else 23 * 60 + 59
    if hour is None or minute is None or hour > 24:
        return None
    offsets = {"half": 30, "quarter": 15, "half_to": -30, "quarter_to": -15, "quarter_of": -45}
    offsets |= {"clock": minute, "past": minute, "to": -minute}
    return hour * 60 + offsets[name] if name in offsets else None
