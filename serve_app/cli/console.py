"""Where output goes: data on stdout, progress and errors on stderr; plain where there is no terminal."""

import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from serve_app.cli.table import table

T = TypeVar("T")
_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")
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
    return Console(stderr=stderr, width=None if told else WIDTH_WITHOUT_TERMINAL, highlight=False)


def print_json(data: Any) -> None:
    """Dataclasses, mappings and lists of them, as indented JSON on stdout."""
    print(json.dumps(written(data), indent=2, ensure_ascii=False))


def written(value: Any, ours: bool = True) -> Any:
    """As `plain`, with names in camelCase, as over HTTP and in events.

    The keys of a mapping inside a dataclass are data (teams, measured figures) and stay as they are; those of a
    finding's value are names. `ours`: whether the keys of a mapping are names.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel(name): written(held, name == "value") for name, held in fields(value).items()}
    if isinstance(value, Mapping):
        return {camel(str(key)) if ours else str(key): written(item, ours) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [written(item, ours) for item in value]
    return _scalar(value)


def fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are: to be printed beside others."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def camel(name: str) -> str:
    """`user_id` as `userId`; a text that is no name of ours as it is."""
    if not _SNAKE.fullmatch(name):
        return name
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def plain(value: Any) -> Any:
    """The JSON-able form: dataclasses as objects, times in ISO 8601, UUIDs as text, numpy and enum values unwrapped."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    return value.item() if hasattr(value, "item") else str(value)


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
