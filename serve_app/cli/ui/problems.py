"""The service's answers to a person: RFC 9457 problems told fault by fault."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

ADVICE = {
    401: "Is the key right, and not revoked? `switchboard keys list` shows the keys, `keys create` makes one.",
    403: "The key is valid but not for this: a team's key cannot touch another team's call, and `submit` is a scope.",
    404: "Is --url the service's base URL? The endpoint is {base_url}/submit.",
    413: "The body is over the service's limit.",
    429: "Too many submissions for this key; send it again after {retry_after} s.",
    503: "The service cannot take calls at the moment; send it again after {retry_after} s, with the same callId.",
}


@dataclass(frozen=True, slots=True)
class CommandProblem:
    """A refusal. `faults` holds (pointer, detail) for each fault of a refused body."""

    status: int
    title: str
    detail: str
    faults: tuple[tuple[str, str], ...] = ()
    advice: str = ""


def read_problem(status: int, headers: Any, body: bytes) -> CommandProblem:
    """A problem from any error answer; one that is no problem document is told by its status."""
    import json

    try:
        document = json.loads(body)
        document = document if isinstance(document, dict) else {}
    except ValueError:
        document = {}
    faults = [fault for fault in document.get("errors") or [] if isinstance(fault, dict)]
    advice = ADVICE.get(status, "").replace("{retry_after}", str(headers.get("retry-after", "a few")))
    return CommandProblem(
        status=status,
        title=str(document.get("title") or f"The service answered {status}"),
        detail=str(document.get("detail") or ""),
        faults=tuple((str(fault.get("pointer", "")), str(fault.get("detail", ""))) for fault in faults),
        advice=advice,
    )


def show_problem(problem: CommandProblem, name: str, console: Console) -> None:
    """`name` is what was submitted, as the person called it."""
    console.print(Text.assemble((f"{name}: refused ", "bold red"), f"({problem.status}) {problem.title}"))
    if problem.detail and problem.detail != problem.title:
        console.print(Text(f"  {problem.detail}"))
    for pointer, detail in problem.faults:
        console.print(Text.assemble("  - ", (pointer or "body", "bold"), f": {detail}"))
    if problem.advice:
        console.print(Text(f"  {problem.advice}", style="yellow"))
