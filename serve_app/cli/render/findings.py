from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.domain.insight import Evidence, Finding
from pipeline.domain.vocabulary import NoticeState
from serve_app.cli.ui.output import plain

Names = Mapping[str, str]
NO_NAMES: Names = {}
TONE_STYLES = {"positive": "green", "negative": "red"}


def render_finding(finding: Finding, names: Names = NO_NAMES) -> list[RenderableType]:
    """Return the lines of a finding; a step without a view is shown as names and values. `names`: by contact id."""
    lines = _contacts(finding, names) if finding.step == "contacts" else VIEWS.get(finding.step, _any)(finding)
    if finding.step in VIEWS and finding.value.get("engine"):
        lines.append(Text(f"(by {finding.value['engine']})", style="dim"))
    if finding.note:
        lines.append(Text(f"({finding.note})", style="dim"))
    return lines


def _summary(finding: Finding) -> list[RenderableType]:
    value = finding.value
    sentences = value.get("sentences") or []
    lines: list[RenderableType] = [
        Text((f"{sentence['speaker']}: " if sentence.get("speaker") else "") + sentence["text"])
        for sentence in sentences
    ]
    if not lines and value.get("text"):
        lines.append(Text(str(value["text"])))
    if value.get("outcome"):
        lines.append(Text.assemble("Outcome: ", (str(value["outcome"]).replace("_", " "), "bold")))
    return lines


def _contacts(finding: Finding, names: Names) -> list[RenderableType]:
    value = finding.value
    mentioned = {field: fact["value"] for field, fact in (value.get("heard") or {}).items() if fact}
    lines: list[RenderableType] = []
    if value.get("contact_id"):
        who = names.get(str(value["contact_id"]), value["contact_id"])
        lines.append(Text(f"contact {who} ({value.get('reason')}{_confidence(finding)})"))
    elif value.get("match") in ("new", "ambiguous"):
        lines.append(Text(f"{value['match']}: {value.get('reason')}"))
    if mentioned:
        lines.append(Text("mentioned: " + ", ".join(f"{field} {fact}" for field, fact in mentioned.items())))
    if value.get("number"):
        lines.append(Text(f"number {value['number']}"))
    return lines or [Text("no information about the other party", style="dim")]


def _direction(finding: Finding) -> list[RenderableType]:
    outgoing, source = finding.value.get("outgoing"), finding.value.get("source")
    if outgoing is None:
        return []
    why = "from the submission" if source == "sender" else f"from the {source}{_confidence(finding)}"
    return [Text(f"{'outgoing' if outgoing else 'incoming'}, {why}"), *_quotes(finding.evidence)]


def _notice(finding: Finding) -> list[RenderableType]:
    state, by, at = (finding.value.get(name) for name in ("state", "by", "at"))
    if state != NoticeState.FOUND:
        return [Text("not given" if state == NoticeState.NOT_FOUND else "not evaluated", style="dim")]
    return [Text(f"given at {at:.1f} s, by {by}"), *_quotes(finding.evidence)]


def _agent(finding: Finding) -> list[RenderableType]:
    value = finding.value
    lines: list[RenderableType] = []
    if value.get("user_id"):
        source = value.get("source")
        why = "from the submission" if source == "sender" else f"by {source}{_confidence(finding)}"
        lines.append(Text(f"{value.get('name') or value['user_id'] + ', not in the directory'}, {why}"))
    elif value.get("spoken_name"):
        lines.append(Text(f"name mentioned: {value['spoken_name']}"))
    return lines


def _confidence(finding: Finding) -> str:
    return "" if finding.confidence is None else f", {finding.confidence:.0%}"


def _tasks(finding: Finding) -> list[RenderableType]:
    tasks = finding.value.get("tasks") or []
    if not tasks:
        return [Text("none", style="dim")]
    lines: list[RenderableType] = []
    for quote, same_quote in groupby(map(plain, tasks), key=lambda task: _quote(task.get("evidence"))):
        lines += [_task(task) for task in same_quote]
        lines += [Text(f"    {quote}", style="dim")] if quote else []
    return lines


def _actions(finding: Finding) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for action in map(plain, finding.value.get("actions") or []):
        details = [f"{action['amount']:g}" if action.get("amount") else "", action.get("date"), action.get("time")]
        line = Text.assemble((str(action["title"]), "bold"), f"  {action['by']}, {action['kind']}")
        line.append("".join(f", {detail}" for detail in (*details, action.get("address")) if detail), style="yellow")
        lines += [line, Text(f"    {_quote(action.get('evidence'))}", style="dim")]
    return lines


def _quote(evidence: Mapping[str, Any] | None) -> str:
    return f'{evidence["start"]:.1f} s: "{evidence["quote"]}"' if evidence else ""


def _task(task: Mapping[str, Any]) -> Text:
    due = " ".join(str(task[key]) for key in ("due_date", "due_time") if task.get(key)) or task.get("due_expression")
    expression = f' ("{task["due_expression"]}")' if task.get("due_date") and task.get("due_expression") else ""
    line = Text.assemble(("[ ] ", "bold"), (str(task["title"]), "bold"), f"  {task['owner']}, {task['kind']}")
    if due:
        line.append(f", due {due}{expression}", style="yellow")
    if task.get("beneficiary"):
        line.append(f", for {task['beneficiary']}")
    return line


def _tone(finding: Finding) -> list[RenderableType]:
    value = finding.value
    if not value.get("overall"):
        return []
    tones = {"overall": value["overall"], **(value.get("parties") or {})}
    line = Text()
    for name, tone in tones.items():
        if not tone:
            continue
        line.append(("; " if line else "") + f"{name} ")
        line.append(f"{tone['label']} ({tone['score']:+.2f})", style=TONE_STYLES.get(tone["label"], ""))
        if tone.get("confidence") is not None:
            line.append(f", {tone['confidence']:.0%}", style="dim")
    trend = value.get("trend")
    if trend:
        line.append(f"; {trend['label']}")
    basis = value["overall"].get("basis")
    if basis:
        line.append(
            f" (from the {' and '.join(basis)} alone)" if len(basis) == 1 else f" (from {' and '.join(basis)})",
            style="dim",
        )
    return [line, *map(_turning_point, value.get("turning_points") or []), *_quotes(finding.evidence)]


def _turning_point(point: Mapping[str, Any]) -> Text:
    line = Text(f"{point['speaker']} turns from {point['from']} to ")
    line.append(str(point["to"]), style=TONE_STYLES.get(point["to"], ""))
    if quote := _quote(point.get("evidence")):
        line.append(f" at {quote}", style="dim")
    return line


PARTY_FIGURES = {  # of the step `statistics`, by party, with their units
    "talk_ratio": "%",
    "longest_monologue_seconds": "s",
    "patience_seconds": "s",
    "words_per_minute": "",
    "questions": "",
    "interruptions": "",
    "backchannels": "",
}


def _statistics(finding: Finding) -> list[RenderableType]:
    value = finding.value
    parties = value.get("parties") or {}
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_row("", *(Text(label, style="bold") for label in parties))
    for name, unit in PARTY_FIGURES.items():
        lines.add_row(
            name.removesuffix("_seconds").replace("_", " "), *(_number(p.get(name), unit) for p in parties.values())
        )
    whole = ", ".join(
        f"{name.replace('_', ' ')} {_number(value.get(key), unit)}"
        for name, key, unit in (
            ("silence", "silence_share", "%"),
            ("hold", "hold_share", "%"),
            ("overlap", "overlap_share", "%"),
            ("turn changes per minute", "interactivity_per_minute", ""),
        )
    )
    return [lines, Text(whole)] if parties else [Text(whole)]


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "%":
        return f"{value:.0%}"
    shown = f"{value:.1f}".removesuffix(".0")
    return f"{shown} {unit}".rstrip()


def _any(finding: Finding) -> list[RenderableType]:
    lines: list[RenderableType] = [*_lines(plain(finding.value), 0), *_quotes(finding.evidence)]
    return lines or [Text("none", style="dim")]


def _lines(value: Any, depth: int, name: str = "") -> list[Text]:
    """Return plain data as indented lines, without empty values."""
    lead = "  " * depth + (f"{name.replace('_', ' ')}: " if name else "")
    if value is None or value in ("", [], {}):
        return []
    heading = [Text(lead.rstrip())] if name else []
    if isinstance(value, Mapping):
        inner = [line for key, item in value.items() for line in _lines(item, depth + bool(name), str(key))]
        return [*heading, *inner] if inner else []
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not any(isinstance(item, Mapping | list) for item in value):
            return [Text(lead + ", ".join(str(item) for item in value))]
        return [*heading, *(line for item in value for line in _bullet(item, depth + bool(name)))]
    return [Text(f"{lead}{_scalar(value)}")]


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _bullet(item: Any, depth: int) -> list[Text]:
    inner = _lines(item, 0)
    return [Text("  " * depth + ("- " if at == 0 else "  ") + line.plain) for at, line in enumerate(inner)]


def _quotes(evidence: Sequence[Evidence]) -> list[RenderableType]:
    """Return the first three distinct quotes."""
    quotes = dict.fromkeys(_quote({"start": item.start, "quote": item.quote}) for item in evidence)
    return [Text(quote, style="dim") for quote in list(quotes)[:3]]


def _questions(finding: Finding) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for answer in map(plain, finding.value.get("answers") or []):
        state = answer["answer"] if answer["state"] == "said" else answer["state"].replace("_", " ")
        lines.append(Text.assemble(f"{answer['question'] or answer['key']} ", (str(state), "bold")))
        lines += _support(answer.get("evidence"), answer)
    for tracker in map(plain, finding.value.get("trackers") or []):
        state = "RAISED" if tracker["raised"] else tracker["state"].replace("_", " ")
        what = f"{tracker['question'] or tracker['key']}{' (required)' if tracker['required'] else ''}"
        lines.append(Text.assemble(f"tracker {what}: ", (state, "bold red" if tracker["raised"] else "bold")))
        for match in tracker["matches"][:3] or [{}]:
            lines += _support(match.get("evidence"), {**tracker, **match})
    for scorecard in map(plain, finding.value.get("scorecards") or []):
        lines += _scorecard(scorecard)
    return lines


def _scorecard(card: Mapping[str, Any]) -> list[RenderableType]:
    passed = {True: ", passed", False: ", not passed", None: ""}[card["passed"]]
    score = "not scored" if card["score"] is None else f"{card['score']:g} of 100{passed}"
    style = "bold red" if card["passed"] is False else "bold"
    lines: list[RenderableType] = [Text.assemble(f"scorecard {card['title'] or card['key']}: ", (score, style))]
    for item in card["items"]:
        earned = "n/a" if item["earned"] is None else f"{item['earned'] * item['weight']:g} of {item['weight']:g}"
        failed = ", fails the call" if item["auto_fail"] and item["earned"] == 0 else ""
        lines.append(Text(f"    {item['question']}: {item['outcome'] or 'n/a'}, {earned}{failed}", style="dim"))
    return lines


def _support(evidence: Mapping[str, Any] | None, answer: Mapping[str, Any]) -> list[RenderableType]:
    text = f"{_quote(evidence)}, {answer['said_by']}" if evidence else answer.get("reason")
    return [Text(f"    {text}", style="dim")] if text else []


VIEWS: dict[str, Callable[[Finding], list[RenderableType]]] = {
    "questions": _questions,
    "summary": _summary,
    "direction": _direction,
    "recording_notice": _notice,
    "agent": _agent,
    "tasks": _tasks,
    "actions": _actions,
    "tone": _tone,
    "statistics": _statistics,
}
