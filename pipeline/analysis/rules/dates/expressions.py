"""Due expressions: the spoken words, their date counted from the day of the call, and the time of day.

The README of this package has the conventions, such as "before Saturday" and "next Wednesday".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from pipeline.analysis.rules.dates.calendar_rules import RULES, DateMatch
from pipeline.analysis.rules.dates.time_of_day import TimeOfDay, find_times
from pipeline.language.pack import Pack, pack, straighten
from pipeline.language.spoken.numbers import number

MAX_DISTANCE = 16  # between a day and its time of day: "on Friday, say at about three"
_FIGURES = re.compile(
    r"\b(?:(?P<year>\d{4})[./-](?P<m>\d{1,2})[./-](?P<d>\d{1,2})|\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2}))\b"
)
MONTHS = 12
OF_AGREED = frozenset({"agreed", "weekday_after", "day_after", "day_before"})  # rules that count from another day
TIME_ONLY = "time"  # the rule of a time or part of a day without a day
MAX_LEAD = 2  # words before a day at the head of its clause: "so, on Friday I'll ..."
_HEAD = re.compile(r"[,;:.!?] ")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Due:
    """`expression` is the characters `first`..`last` of the text; `day` None: the words are not definite.

    `time` is "HH:MM" in the workspace's time zone, None if not spoken; `rule` is the name of the pack's rule.
    """

    expression: str
    first: int
    last: int
    day: date | None
    time: str | None = None
    rule: str = ""


def local(start: datetime, time_zone: str) -> datetime:
    """Return the call's start in the workspace's time zone. Raises ZoneInfoNotFoundError for an unknown zone."""
    return start.astimezone(ZoneInfo(time_zone))


def find(
    text: str, words: Pack, now: datetime, agreed: date | None = None, verb: tuple[int, int] | None = None
) -> Due | None:
    """Return the due expression of a sentence: the longest match of the pack's rules; the last of equals.

    With `verb`, the characters of the verb, the expression that belongs to it: tomorrow in "I'll ring you tomorrow
    about the visit on Friday the twentieth". "By then" and "before you come" refer to the day `agreed`. A time of day
    without a day is today's if it is still ahead, else that of `agreed`.
    """
    straight = straighten(text)
    matches, times = _rule_matches(straight, words.language)
    best = None
    if matches:
        chosen = rule, match, first, last = _chosen(matches, straight, words, verb)
        if rule in OF_AGREED:  # "It's on Saturday, so come the day before"
            earlier = [_resolve(*other[:2], words, now, agreed) for other in matches if other[3] <= first]
            agreed = next(filter(None, earlier), agreed)
        day = _resolve(rule, match, words, now, agreed)
        for other, place, start, end in matches if rule == "weekday" else ():
            exact = _resolve(other, place, words, now, agreed) if other in ("day", "day_month") else None
            if exact and day and exact.weekday() == day.weekday():  # "on the Tuesday after it, the twenty-sixth"
                first, last, day = start, end, exact
        if rule == "offset" and _is_part_of_day(chosen, words.words("dates", "parts_of_day")):
            rule = TIME_ONLY
        best = Due(straight[first:last], first, last, day, rule=rule)
    return _timed(straight, best or _in_figures(straight, words, now), times, now, agreed)


def _chosen(matches: "tuple[_RuleMatch, ...]", text: str, words: Pack, verb: tuple[int, int] | None) -> "_RuleMatch":
    """Return the longest match, or that of the verb.

    A match that describes a thing ("the invoice of Monday") comes last; one behind the verb or at the head of its
    clause, without an "and" or "but" between, comes first, and of those the nearest.
    """
    if verb is None:
        return matches[0]

    def rank(candidate: _RuleMatch) -> tuple[bool, bool, int]:
        _, _, first, last = candidate
        before = text[:first]
        patterns = words.patterns("dates", "attributive")
        is_attribute = any(pattern.search(text[first:last]) or pattern.search(before) for pattern in patterns)
        joints = (joint.group() for p in words.patterns("tasks", "border") for joint in p.finditer(text, last, verb[0]))
        inner = last <= verb[0] and (len(_HEAD.split(before)[-1].split()) > MAX_LEAD or any(map(_WORD.search, joints)))
        return is_attribute, inner, max(first - verb[1], verb[0] - last, 0)

    return min(matches, key=rank)


_RuleMatch = tuple[str, re.Match[str], int, int]  # rule, match, and the relevant characters of it


@lru_cache(maxsize=1024)
def _rule_matches(straight: str, language: str | None) -> tuple[tuple[_RuleMatch, ...], tuple[TimeOfDay, ...]]:
    """Return the matches of all rules without overlaps, the longest first, and the times of day.

    Cached: this is the slow part, and a step needs a sentence several times.
    """
    words = pack(language)
    matches: list[_RuleMatch] = []
    for rule, pattern in _rules(words):
        for match in pattern.finditer(straight):
            first, last = _trimmed(straight, match)
            if not _is_past_or_habit(straight, first, last, words):
                matches.append((rule, match, first, last))
    matches.reverse()  # the last rule of equals wins: sorting is stable
    matches.sort(key=lambda item: (item[3] - item[2], item[2]), reverse=True)
    return tuple(_not_taken_back(tuple(_disjoint(matches)), straight, words)), find_times(straight, words)


def _not_taken_back(matches: tuple[_RuleMatch, ...], text: str, words: Pack) -> Iterator[_RuleMatch]:
    """Yield the matches without those that a later one corrects ("on Monday, no, let's say Tuesday"), and without
    parts of the day next to a day ("on Tuesday, after lunch").
    """
    pattern, parts = _correction(words.language), words.words("dates", "parts_of_day")
    days = [match for match in matches if not _is_part_of_day(match, parts)]
    for match in days or matches:
        if not any(pattern.fullmatch(text[match[3] : other[2]]) for other in matches if other[2] >= match[3]):
            yield match


def _is_part_of_day(match: _RuleMatch, parts: frozenset[str]) -> bool:
    words = (match[1].groupdict().get("offset") or "").lower().replace("-", " ")
    return match[0] == "next_morning" or (match[0] == "offset" and words in parts)


@lru_cache(maxsize=64)
def _correction(language: str | None) -> re.Pattern[str]:
    corrections = sorted(pack(language).get("numbers", "corrections", ()), key=len, reverse=True)
    listed = "|".join(map(re.escape, corrections)) or "(?!)"
    chain = rf"(?:{listed})(?:,? (?:{listed})\b)*"
    reason = r"(?:(?:[\w']+ ){0,6}[\w']+[,.] )?(?:[\w']+ ){0,2}"  # "on Monday, no, he's off then, Tuesday"
    before = r"[,.…–-]+ (?:\w{1,4},? )?"
    return re.compile(rf"(?:{before}{chain}(?:, |[.…–-]+ | )| {chain}, ){reason}", re.IGNORECASE)


def correcting(text: str, last: int, words: Pack, now: datetime) -> Due | None:
    """Return the day that corrects the one before character `last`: "on Friday, no, I'm paid on Thursday"."""
    straight = straighten(text)
    for rule, match, first, end in _rule_matches(straight, words.language)[0]:
        if first >= last and _correction(words.language).fullmatch(straight[last:first]):
            return Due(straight[first:end], first, end, _resolve(rule, match, words, now, None), rule=rule)
    return None


def is_correction(text: str, words: Pack) -> bool:
    """Return whether a sentence takes back what was said before: "No, wait, I'm out tonight"."""
    return bool(_correction(words.language).match(f", {text} "))


def _disjoint(matches: list[_RuleMatch]) -> Iterator[_RuleMatch]:
    taken: list[tuple[int, int]] = []
    for match in matches:
        if all(match[3] <= first or last <= match[2] for first, last in taken):
            taken.append((match[2], match[3]))
            yield match


def _trimmed(text: str, match: re.Match[str]) -> tuple[int, int]:
    first = match.start() + len(match.group()) - len(match.group().lstrip(" ,"))
    last = match.end() - (len(match.group()) - len(match.group().rstrip(" ,.")))
    return first, last


def _is_past_or_habit(text: str, first: int, last: int, words: Pack) -> bool:
    """Return whether the day is over or recurring: "last Friday", "le lundi dernier", "on Mondays"."""
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
        later = time.is_certain and time.text > now.strftime("%H:%M")
        day = now.date() if later else agreed
        due = Due(text[time.first : time.last], time.first, time.last, day, time.text, TIME_ONLY)
        is_alone = len(_WORD.findall(text[: due.first] + text[due.last :])) <= MAX_LEAD  # "Then at nine?"
        return due if time.is_certain or (agreed and is_alone) else None
    near = [time for time in times if max(due.first, time.first) - min(due.last, time.last) <= MAX_DISTANCE]
    if not near:
        return due
    time = near[0]
    first, last = min(due.first, time.first), max(due.last, time.last)
    return Due(text[first:last], first, last, due.day, time.text, due.rule)


_rules_of: dict[str | None, tuple[tuple[str, re.Pattern[str]], ...]] = {}


def _rules(words: Pack) -> tuple[tuple[str, re.Pattern[str]], ...]:
    if words.language not in _rules_of:
        compiled = tuple((rule, words.compile(pattern)) for rule, pattern in words.get("dates", "rules", []))
        _rules_of[words.language] = compiled
    return _rules_of[words.language]


def _resolve(rule: str, match: re.Match[str], words: Pack, now: datetime, agreed: date | None) -> date | None:
    groups = {key: value.lower().replace("-", " ") for key, value in match.groupdict().items() if value}
    ordinal = words.ordinals.get(groups.get("ordinal", ""))
    if "ordinal_digits" in groups:
        ordinal = int(re.sub(r"\D", "", groups["ordinal_digits"]))
    count = number(groups["number"], words, articles=True) if "number" in groups else None
    month = words.months.get(groups.get("month", "")) or (int(groups["m"]) if "m" in groups else None)
    month = month or words.ordinals.get(groups.get("month_ordinal", ""))  # "am dritten Sechsten"
    day = int(groups["d"]) if "d" in groups else ordinal if ordinal is not None else count
    if {"d", "m"} <= groups.keys():
        first, second = sorted(("d", "m"), key=match.start)
        day, month = _day_and_month(match[first], match[second], match.string[match.end(first)], words)
    date_match = DateMatch(
        now,
        weekday=words.weekdays.get(groups.get("weekday", "")),
        month=month,
        day=day,
        number=count,
        quarter=next((int(key[1]) for key in groups if re.fullmatch("q[1-4]", key)), None),
        offset=words.offsets.get(groups.get("offset", "")),
        year=int(groups["year"]) if "year" in groups else None,
        agreed=agreed,
    )
    if rule.startswith("in_") and agreed and words.matches("dates", "from_agreed", match.string):
        date_match = replace(date_match, now=now + timedelta(days=(agreed - now.date()).days))
    try:
        due = RULES[rule](date_match)
    except (ValueError, TypeError, OverflowError):  # "the thirty-first of February", or a missing part
        return None
    return due - timedelta(days=1) if due and "before" in groups else due


def _day_and_month(first: str, second: str, separator: str, words: Pack) -> tuple[int | None, int | None]:
    """Return day and month of two figures: by their values, else in the country's order; (None, None) if unclear."""
    earlier, later = int(first), int(second)
    if separator == "." or earlier > MONTHS >= later or earlier == later:
        return earlier, later
    if later > MONTHS >= earlier:
        return later, earlier
    if words.day_first is None:
        return None, None
    return (earlier, later) if words.day_first else (later, earlier)


def _in_figures(text: str, words: Pack, now: datetime) -> Due | None:
    """Parse a date in figures with its year; no day follows if the order of day and month is unclear."""
    match = _FIGURES.search(text)
    if match is None or not words.known:
        return None
    if match["year"]:
        year = int(match["year"])
        day_and_month: tuple[int | None, int | None] = int(match["d"]), int(match["m"])
    else:
        first, second, last = re.split(r"[./-]", match.group())
        year = int(last) + 2000 * (len(last) == 2)
        day_and_month = _day_and_month(first, second, text[match.start() + len(first)], words)
    day, month = day_and_month
    try:
        return Due(match.group(), match.start(), match.end(), date(year, month, day) if month and day else None)
    except ValueError:  # "31.2.2026", or a number of another kind
        return Due(match.group(), match.start(), match.end(), None)


def proposed(text: str, words: Pack, now: datetime, agreed: date | None = None) -> Due | None:
    """Return the day of a sentence that only asks for a day or a time: "Friday, then?", "Um neun?"."""
    due = find(text, words, now, agreed) if text.endswith("?") else None
    rest = _WORD.findall((text[: due.first] + " " + text[due.last :]).lower()) if due and due.day else None
    is_bare = rest is not None and len(rest) <= MAX_LEAD and words.words("text", "stopwords").issuperset(rest)
    return due if is_bare else None
