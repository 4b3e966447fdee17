"""A summary out of what was found: why there was a call, what was agreed, what is open, what comes next."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from string import Formatter
from typing import Any

from pipeline.domain.summaries import PARTS, SummaryTemplate

AT_MOST = 3  # tasks in one part, unless a template says otherwise
AGREED = frozenset({"appointment", "request"})  # kinds of task that the other party has agreed to


_TWO_ENDS = re.compile(r"([?!…])\.")


class TemplateInvalid(ValueError):
    """A line of a template holds no part, two, or one that there is not; the message names the line."""


@dataclass(frozen=True, slots=True)
class SummaryPart:
    """One part of a summary: its text and the tasks or sentences it was made of. `quote` and `speaker` (its label):
    of a part that consists of what somebody said."""

    part: str
    text: str
    evidence: tuple[dict[str, Any], ...]
    quote: str | None = None
    speaker: str | None = None


def checked(lines: Iterable[str]) -> tuple[str, ...]:
    """The lines of a template. Raises `TemplateInvalid`."""
    kept = tuple(line.strip() for line in lines if line.strip())
    for line in kept:
        try:
            named = [name for _, name, form, turned in Formatter().parse(line) if name is not None]
            plain = all(not form and not turned for _, _, form, turned in Formatter().parse(line))
        except ValueError as error:
            raise TemplateInvalid(f"{line!r}: {error}") from error
        if len(named) != 1 or named[0] not in PARTS or not plain:
            parts = ", ".join(f"{{{part}}}" for part in PARTS)
            raise TemplateInvalid(f"{line!r} must hold one of {parts}")
    return kept


def fill(lines: Iterable[str], told: Iterable[SummaryPart]) -> list[tuple[str, SummaryPart]]:
    """The lines of a summary, each with its part, in the template's order. One whose part is empty is left out."""
    of = {one.part: one for one in told}
    used = [(line, of[part]) for line in lines for part in PARTS if f"{{{part}}}" in line and part in of]
    return [(_TWO_ENDS.sub(r"\1", line.format(**{one.part: one.text.rstrip(".,;")})), one) for line, one in used]


def lines_of(own: SummaryTemplate, usual: Iterable[str]) -> tuple[str, ...]:
    """The lines of a workspace's template; without a heading of its own, a part has that of `usual`, its language's."""
    of_language = {part: line for line in usual for part in PARTS if f"{{{part}}}" in line}
    return tuple(
        of_language.get(one.part, f"{{{one.part}}}.")
        if one.heading is None
        else (f"{one.heading}: " if one.heading else "") + f"{{{one.part}}}."
        for one in own.parts
    )


def steps(
    tasks: list[dict[str, Any]], owner: Callable[[dict[str, Any]], str], own: SummaryTemplate | None = None
) -> list[SummaryPart]:
    """What was agreed, what is open and what comes next: the task that is due first, if there are several, and a next
    step is told. `owner` names who does a task; `own`: how many are told of each."""

    def most(part: str) -> int:
        told = own.most(part) if own else None
        return AT_MOST if told is None else told

    several = len(tasks) > 1 and any(task["due_date"] for task in tasks)
    ahead = min(tasks, key=_due) if several and most("next_step") else None
    surest = sorted((task for task in tasks if task is not ahead), key=lambda task: -task["confidence"])
    agreed = [task for task in surest if task["kind"] in AGREED][: most("agreed")]
    left = [task for task in surest if task["kind"] not in AGREED][: most("open")]
    parts = (("agreed", agreed), ("open", left), ("next_step", [ahead] if ahead else []))
    return [_told(part, chosen, owner) for part, chosen in parts if chosen]


def _due(task: dict[str, Any]) -> tuple[str, str]:
    return task["due_date"] or "9999", task["due_time"] or "99"


def _told(part: str, chosen: list[dict[str, Any]], owner: Callable[[dict[str, Any]], str]) -> SummaryPart:
    """The tasks by who does them, in the order in which they were said."""
    chosen = sorted(chosen, key=lambda task: task["evidence"]["start"])
    by: dict[str, list[str]] = {}
    for task in chosen:
        by.setdefault(owner(task), []).append(_named(task))
    text = "; ".join(f"{who}: {', '.join(what)}" for who, what in by.items())
    return SummaryPart(part, text, tuple(task["evidence"] for task in chosen))


def _named(task: dict[str, Any]) -> str:
    """The title and when: as said, and the date with which it can be read later."""
    when, day = task["due_expression"] or "", task["due_date"] or ""
    if when.lower() in task["title"].lower():
        when = ""
    at = f" {task['due_time']}" if day and task["due_time"] else ""
    told = ", ".join(filter(None, (when, f"{day}{at}")))
    return f"{task['title']} ({told})" if told else task["title"]
