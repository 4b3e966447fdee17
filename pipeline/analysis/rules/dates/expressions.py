"""When something is due: the expression as said, its date counted from the day of the call, and its time of day.

The README of this package has the conventions: what "before Saturday" and "next Wednesday" are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from pipeline.analysis.rules.dates.calendar_rules import RULES, Caught
from pipeline.analysis.rules.dates.time_of_day import TimeOfDay, amount, find_times
from pipeline.language.pack import Pack, pack, straighten

NEAR = 16  # characters between a day and its time of day: "on Friday, say at about three"
LEAD = 2  # words before a day that is still at the head of its clause: "so, on Friday I'll ..."
_HEAD = re.compile(r"[,;:.!?] ")


@dataclass(frozen=True, slots=True)
class Due:
    """`expression` is characters `first`..`last` of the text; `day` None: nothing definite follows from it.

    `time` is "HH:MM" on the clock of the workspace, where one was said.
    """

    expression: str
    first: int
    last: int
    day: date | None
    time: str | None = None


def local(start: datetime, time_zone: str) -> datetime:
    """The call's start on the clock of the workspace. Raises ZoneInfoNotFoundError for an unknown zone."""
    return start.astimezone(ZoneInfo(time_zone))


def find(
    text: str, words: Pack, now: datetime, agreed: date | None = None, verb: tuple[int, int] | None = None
) -> Due | None:
    """The due expression of a sentence: the longest that a rule of the pack catches; of equals the last.

    With `verb`, the characters that say what is to be done, the one that belongs to it: of "I'll ring you tomorrow
    about the visit on Friday the twentieth" tomorrow. `agreed` is the day spoken of before, to which "by then" and
    "before you come" refer. A time of day without a day is today's, if it is still to come, else that of the day
    spoken of before.
    """
    straight = straighten(text)
    caught, times = _caught(straight, words.language)
    best = None
    if caught:
        rule, match, first, last = _chosen(caught, straight, words, verb)
        best = Due(straight[first:last], first, last, _resolve(rule, match, words, now, agreed))
    return _timed(straight, best or _written(straight, words, now), times, now, agreed)


def _chosen(caught: "tuple[_Catch, ...]", text: str, words: Pack, verb: tuple[int, int] | None) -> "_Catch":
    """Of several days the longest said, or that of the verb: none that only tells which thing is meant ("the invoice
    of Monday"), rather one behind the verb or at the head of its clause, and of those the nearest."""
    if verb is None:
        return caught[0]

    def rank(one: _Catch) -> tuple[bool, bool, int]:
        _, _, first, last = one
        before = text[:first]
        told = any(p.search(text[first:last]) or p.search(before) for p in words.patterns("dates", "attributive"))
        inner = last <= verb[0] and len(_HEAD.split(before)[-1].split()) > LEAD
        return told, inner, max(first - verb[1], verb[0] - last, 0)

    return min(caught, key=rank)


_Catch = tuple[str, re.Match[str], int, int]  # the rule, what it caught, and the characters of it that count


@lru_cache(maxsize=1024)
def _caught(straight: str, language: str | None) -> tuple[tuple[_Catch, ...], tuple[TimeOfDay, ...]]:
    """What rules catch in a text, and its times of day, of what overlaps the longest, the longest first: the slow
    part, and a step asks for a sentence several times."""
    words = pack(language)
    found: list[_Catch] = []
    for rule, pattern in _rules(words):
        for match in pattern.finditer(straight):
            first, last = _trimmed(straight, match)
            if not _no_day_to_come(straight, first, last, words):
                found.append((rule, match, first, last))
    found.reverse()  # of equals the last rule of the pack: sorting keeps their order
    found.sort(key=lambda one: (one[3] - one[2], one[2]), reverse=True)
    return tuple(_apart(found)), find_times(straight, words)


def _apart(found: list[_Catch]) -> Iterator[_Catch]:
    """Those that overlap none before them."""
    taken: list[tuple[int, int]] = []
    for one in found:
        if all(one[3] <= first or last <= one[2] for first, last in taken):
            taken.append((one[2], one[3]))
            yield one


def _trimmed(text: str, match: re.Match[str]) -> tuple[int, int]:
    first = match.start() + len(match.group()) - len(match.group().lstrip(" ,"))
    last = match.end() - (len(match.group()) - len(match.group().rstrip(" ,.")))
    return first, last


def _no_day_to_come(text: str, first: int, last: int, words: Pack) -> bool:
    """ "last Friday", "le lundi dernier", "on Mondays": a day that is over, or any such day, is no due date."""
    if words.matches("dates", "habit", text[first:last]):
        return True
    if any(pattern.search(text[:first]) for pattern in words.patterns("dates", "past_before")):
        return True
    return any(pattern.match(text[last:]) for pattern in words.patterns("dates", "past_after"))


def _timed(text: str, due: Due | None, times: tuple[TimeOfDay, ...], now: datetime, agreed: date | None) -> Due | None:
    if not times:
        return due
    if due is None:
        time = times[0]
        later = time.sure and time.text > now.strftime("%H:%M")
        day = now.date() if later else agreed
        return Due(text[time.first : time.last], time.first, time.last, day, time.text) if time.sure else None
    near = [one for one in times if max(due.first, one.first) - min(due.last, one.last) <= NEAR]
    if not near:
        return due
    time = near[0]
    first, last = min(due.first, time.first), max(due.last, time.last)
    return Due(text[first:last], first, last, due.day, time.text)


_rules_of: dict[str | None, tuple[tuple[str, re.Pattern[str]], ...]] = {}


def _rules(words: Pack) -> tuple[tuple[str, re.Pattern[str]], ...]:
    if words.language not in _rules_of:
        compiled = tuple((rule, words.compile(pattern)) for rule, pattern in words.get("dates", "rules", []))
        _rules_of[words.language] = compiled
    return _rules_of[words.language]


def _resolve(rule: str, match: re.Match[str], words: Pack, now: datetime, agreed: date | None) -> date | None:
    caught = {key: value.lower().replace("-", " ") for key, value in match.groupdict().items() if value}
    ordinal = words.ordinals.get(caught.get("ordinal", ""))
    if "ordinal_digits" in caught:
        ordinal = int(re.sub(r"\D", "", caught["ordinal_digits"]))
    count = amount(caught["number"], words) if "number" in caught else None
    said = Caught(
        now,
        weekday=words.weekdays.get(caught.get("weekday", "")),
        month=words.months.get(caught.get("month", "")) or (int(caught["m"]) if "m" in caught else None),
        day=int(caught["d"]) if "d" in caught else ordinal if ordinal is not None else count,
        number=count,
        offset=words.offsets.get(caught.get("offset", "")),
        year=int(caught["year"]) if "year" in caught else None,
        agreed=agreed,
    )
    try:
        day = RULES[rule](said)
    except (ValueError, TypeError, OverflowError):  # "the thirty-first of February", or a part that is not there
        return None
    return day - timedelta(days=1) if day and "before" in caught else day


def _written(text: str, words: Pack, now: datetime) -> Due | None:
    """A date written in figures with its year; the order depends on the language, which dateparser knows."""
    match = re.search(r"\b\d{1,4}[./-]\d{1,2}[./-]\d{2,4}\b", text)
    if match is None or not words.language:
        return None
    import dateparser  # slow to import, seldom needed

    settings = {"STRICT_PARSING": True, "RELATIVE_BASE": now.replace(tzinfo=None), "PREFER_DATES_FROM": "future"}
    parsed = dateparser.parse(match.group(), languages=[words.language], settings=settings)
    return Due(match.group(), match.start(), match.end(), parsed.date() if parsed else None)
