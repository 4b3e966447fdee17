import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from string import Formatter
from typing import Any

from pipeline.analysis.rules.commitments.titles import without_day
from pipeline.analysis.talk import other
from pipeline.domain.speech import Role
from pipeline.domain.summaries import PARTS, SummaryTemplate
from pipeline.language.pack import Pack

MAX_TASKS = 3  # tasks in one part, unless a template says otherwise
AGREED = frozenset({"appointment", "request"})  # kinds of task with consent of the other party


_TWO_ENDS = re.compile(r"([.?!…](?: ?[”“»])?)\.")
PROMISED, DONE = "promised", "done_by"  # forms of a sentence in the language pack, by the form of the title
PLAIN = "{owner}: {titles}"  # the form of a language without a pack


class TemplateInvalid(ValueError):
    """A line of a template needs exactly one known part; the message quotes the line."""


@dataclass(frozen=True, slots=True)
class SummaryPart:
    """A part of a summary with its evidence. `quote` and `speaker` (a label) are set for a part that quotes a party."""

    part: str
    text: str
    evidence: tuple[dict[str, Any], ...]
    quote: str | None = None
    speaker: str | None = None


def checked(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of a template. Raises `TemplateInvalid`."""
    stripped = tuple(line.strip() for line in lines if line.strip())
    for line in stripped:
        try:
            placeholders = [name for _, name, form, turned in Formatter().parse(line) if name is not None]
            plain = all(not form and not turned for _, _, form, turned in Formatter().parse(line))
        except ValueError as error:
            raise TemplateInvalid(f"{line!r}: {error}") from error
        if len(placeholders) != 1 or placeholders[0] not in PARTS or not plain:
            parts = ", ".join(f"{{{part}}}" for part in PARTS)
            raise TemplateInvalid(f"{line!r} must contain one of {parts}")
    return stripped


def fill(lines: Iterable[str], parts: Iterable[SummaryPart]) -> list[tuple[str, SummaryPart]]:
    """Return the lines of a summary, each with its part, in the template's order, without empty parts."""
    by_part = {part.part: part for part in parts}
    used = [(line, by_part[part]) for line in lines for part in PARTS if f"{{{part}}}" in line and part in by_part]
    return [(_TWO_ENDS.sub(r"\1", line.format(**{part.part: part.text.rstrip(".,;")})), part) for line, part in used]


def lines_of(template: SummaryTemplate, usual: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of a workspace's template; a part without a heading gets that of `usual`."""
    of_language = {part: line for line in usual for part in PARTS if f"{{{part}}}" in line}
    return tuple(
        of_language.get(part.part, f"{{{part.part}}}.")
        if part.heading is None
        else (f"{part.heading}: " if part.heading else "") + f"{{{part.part}}}."
        for part in template.parts
    )


@dataclass(frozen=True, slots=True)
class Wording:
    """Words of sentences about the parties: the pack, a word or name for each party, and the known names, by role."""

    words: Pack
    parties: Mapping[str, str]
    names: Mapping[str, str]

    def sentences(self, items: list[dict[str, Any]], owner: str, form: str) -> str:
        """Return a sentence for each owner and form of title: "Ana will call back (Fri, Mar 6) and send the form"."""
        titles_by_sentence: dict[tuple[str, str], list[str]] = {}
        for item in items:
            forms = self.words.rewrites("summary", form)
            sentence = next((sentence for pattern, sentence in forms if pattern.search(item["title"])), PLAIN)
            of = item[owner] if sentence != "{titles}" else None
            title = self._named(_title_with_date(item, self.words), of)
            titles_by_sentence.setdefault((item[owner], sentence), []).append(title)
        text = "; ".join(
            sentence.format(owner=self.parties.get(role, role), titles=", ".join(titles), clauses=self._joined(titles))
            for (role, sentence), titles in titles_by_sentence.items()
        )
        return text[:1].upper() + text[1:]

    def _named(self, title: str, owner: str | None) -> str:
        """Return a title with known names instead of "the customer", and "their" for what its owner has."""
        their = self.words.get("summary", "their", "")
        for listener, party in self.words.get("tasks", "listener_is", {}).items():
            role = other(Role(listener)) or listener
            if role == owner and their:
                title = title.replace(f"{party}'s", their)
            elif role != owner and role in self.names:
                name = self.names[role]
                for pattern, replacement in self.words.rewrites("summary", f"named_{role}"):
                    title = pattern.sub(replacement.replace("{name}", name.replace("\\", "")), title)
                before, possessive, after = title.partition(f"{name}'s")
                title = before + possessive + (after.replace(f"{name}'s", their) if their else after)
        return title

    def _joined(self, titles: list[str]) -> str:
        """Return titles as clauses of one sentence: "send the form, call back and pay"."""
        clauses = [title if re.match(r"I\b|\w[A-Z]", title) else title[:1].lower() + title[1:] for title in titles]
        return f" {self.words.get('tasks', 'and')} ".join(filter(None, (", ".join(clauses[:-1]), clauses[-1])))


def steps(tasks: list[dict[str, Any]], wording: Wording, template: SummaryTemplate | None = None) -> list[SummaryPart]:
    """Return the parts for agreements, open tasks and next step: of several tasks, the one due first if the template
    uses it.

    `template` limits the tasks of each part.
    """

    def limit(part: str) -> int:
        max_tasks = template.most(part) if template else None
        return MAX_TASKS if max_tasks is None else max_tasks

    several = len(tasks) > 1 and any(task["due_date"] for task in tasks)
    ahead = min(tasks, key=_due) if several and limit("next_step") else None
    surest = sorted((task for task in tasks if task is not ahead), key=lambda task: -task["confidence"])
    agreed = [task for task in surest if task["kind"] in AGREED][: limit("agreed")]
    open_tasks = [task for task in surest if task["kind"] not in AGREED][: limit("open")]
    parts = (("agreed", agreed), ("open", open_tasks), ("next_step", [ahead] if ahead else []))
    return [_part(part, chosen, wording, "owner", PROMISED) for part, chosen in parts if chosen]


def _due(task: dict[str, Any]) -> tuple[str, str]:
    return task["due_date"] or "9999", task["due_time"] or "99"


def done(actions: list[dict[str, Any]], wording: Wording, template: SummaryTemplate | None = None) -> list[SummaryPart]:
    """Return the part for what was done in the call."""
    most = template.most("done") if template else None
    chosen = actions[: MAX_TASKS if most is None else most]
    items = [
        {**action, "due_expression": None, "due_date": action["date"], "due_time": action["time"]} for action in chosen
    ]
    return [_part("done", items, wording, "by", DONE)] if chosen else []


def _part(part: str, chosen: list[dict[str, Any]], wording: Wording, owner: str, form: str) -> SummaryPart:
    chosen = sorted(chosen, key=lambda task: task["evidence"]["start"])
    return SummaryPart(part, wording.sentences(chosen, owner, form), tuple(task["evidence"] for task in chosen))


def _title_with_date(task: dict[str, Any], words: Pack) -> str:
    """Return the title with its day as people write it, else with the words for it: each fact once."""
    title, due_words = task["title"], task["due_expression"] or ""
    if not task["due_date"]:
        return _with_note(title, due_words) if due_words and due_words.lower() not in title.lower() else title
    if due_words:
        before, *after = re.split(rf"\s*\b{re.escape(due_words)}\b", title, maxsplit=1, flags=re.IGNORECASE)
        shorter = " ".join((without_day(before, "".join(after), words) or title).split())
        title = shorter if len(shorter.split()) > 1 else title
    when = day_in_words(date.fromisoformat(task["due_date"]), words)
    return _with_note(title, f"{when}, {task['due_time']}" if task["due_time"] else when)


def _with_note(title: str, note: str) -> str:
    """Add a note in parentheses, to those that the title ends with: "Send it (form; Fri, Mar 6)"."""
    return f"{title[:-1]}; {note})" if title.endswith(")") else f"{title} ({note})"


def day_in_words(day: date, words: Pack) -> str:
    """Return a day as people of the language write it: "Fri, Mar 6"; as ISO 8601 without a pack."""
    if not words.known:
        return day.isoformat()
    weekday, month = words.get("dates", "weekdays")[day.weekday()], words.get("dates", "months")[day.month - 1]
    names = {"weekday": weekday, "Weekday": weekday.capitalize(), "month": month, "Month": month.capitalize()}
    return str(words.get("summary", "day")).format(day=day.day, **names)
