"""Data goes to stdout, progress and errors to stderr; without a terminal, output is plain."""

import json
import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from serve_app.cli.ui.terminal import Terminal
from serve_app.http.camel_json import camel, fields, plain, to_camel_json

__all__ = ["camel", "fields", "plain", "to_camel_json"]

if TYPE_CHECKING:
    from rich.progress import Progress

WIDTH_WITHOUT_TERMINAL = 140  # columns, unless COLUMNS is set; fits a table with an id

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]


def out() -> Console:
    return _console(stderr=False)


def err() -> Console:
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    has_width = (sys.stderr if stderr else sys.stdout).isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = None if has_width else WIDTH_WITHOUT_TERMINAL
    return Terminal(wraps=has_width, stderr=stderr, width=width, highlight=False)


def progress_bar(disable: bool = False) -> "Progress":
    """Return a progress bar on stderr with counts and the remaining time."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err(), transient=True, disable=disable)


def print_json(data: Any) -> None:
    """Print dataclasses, mappings and lists of them as indented JSON on stdout."""
    print(json.dumps(to_camel_json(data), indent=2, ensure_ascii=False))


def moment(time: datetime | None) -> str:
    """Return a time in this machine's time zone; empty for None."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S") if time else ""


def duration(seconds: float) -> str:
    """Return, for example, "1 h 05 min", "4 min 10 s" or "12 s"."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Return, for example, "1 call" or "2 calls"; `plural` if it is not `singular` with an s."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
