"""Where output goes: data on stdout, progress and errors on stderr; plain where there is no terminal."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from serve_app.cli.ui.table import table
from serve_app.cli.ui.terminal import Terminal
from serve_app.http.camel_json import camel, fields, plain, written

__all__ = ["camel", "fields", "plain", "written"]

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
WIDTH_WITHOUT_TERMINAL = 140  # columns, unless COLUMNS says otherwise; wide enough for a table with an id in it

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]


def command_group(help_: str) -> typer.Typer:
    """Return an application of several commands, which shows its help when none is given."""
    return typer.Typer(help=help_, no_args_is_help=True, add_completion=False)


def out() -> Console:
    return _console(stderr=False)


def err() -> Console:
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    told = (sys.stderr if stderr else sys.stdout).isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = None if told else WIDTH_WITHOUT_TERMINAL
    return Terminal(wraps=told, stderr=stderr, width=width, highlight=False)


def progress_bar(disable: bool = False) -> "Progress":
    """Return a bar on stderr that says how many of how many are done, and how long the others will take."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err(), transient=True, disable=disable)


def print_json(data: Any) -> None:
    """Dataclasses, mappings and lists of them, as indented JSON on stdout."""
    print(json.dumps(written(data), indent=2, ensure_ascii=False))


def print_list(
    found: Sequence[T],
    as_json: bool,
    columns: Sequence[str],
    row: Callable[[T], Sequence[str | Text]],
    when_empty: str,
    data: Any = None,
) -> None:
    """Print `found` as a table, or `when_empty` on stderr; with `as_json` as JSON (`data` in its place, if given)."""
    if as_json:
        print_json(found if data is None else data)
    elif found:
        lines = table(*columns)
        for one in found:
            lines.add_row(*row(one))
        out().print(lines)
    else:
        err().print(when_empty)


def moment(time: datetime | None) -> str:
    """A time as people read it, in this machine's time zone; empty for None."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S") if time else ""


def duration(seconds: float) -> str:
    """1 h 05 min, 4 min 10 s, 12 s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def counted(count: int, one: str, many: str | None = None) -> str:
    """ "1 call", "2 calls"; `many` where it is not `one` with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"
