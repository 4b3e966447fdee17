"""Text is wrapped between words, never inside an id, an address, a path or a command to copy."""

import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from serve_app.http.camel_json import camel, fields, plain, to_camel_json

_WORD = r"(?:`[^`\n]*`|[^\s`]|`)+[^\S\n]*"
_ASIDE = r"\([^()`\n]{1,30}\)[^\s`]*(?!\S)[^\S\n]*"  # short text in parentheses: ("by Friday")
_UNIT = re.compile(rf"{_ASIDE}|{_WORD}|\n[^\S\n]*")  # an unbreakable part and the space after it
_BROKEN = re.compile(_WORD)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # but not tabs and line feeds
_INDENT, _SPACE = re.compile(r"[^\S\n]*(?:- )?"), re.compile(r"[^\S\n]*")


class Terminal(Console):
    """A console that wraps text with `wrapped`. Without a terminal, text stays on one line."""

    def __init__(self, *, wraps: bool, **options: Any) -> None:
        super().__init__(**options)
        self._wraps = wraps

    def print(self, *objects: Any, **options: Any) -> None:
        """Print like rich; `soft_wrap=True` prints text unchanged, for lines of data."""
        if len(objects) == 1 and isinstance(objects[0], str | Text) and "soft_wrap" not in options:
            text = objects[0]
            if isinstance(text, str):
                text = self.render_str(text, markup=options.pop("markup", None), highlight=False)
            objects = (wrapped(text, self.width) if self._wraps else text,)
            options["soft_wrap"] = True
        super().print(*objects, **{"crop": False} | options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Leave out control characters: numbers, names and words come from others, who command no terminal."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_CONTROLS.sub("", segment.text), segment.style)


def units(plain: str) -> list[str]:
    """Return the unbreakable parts: words, and text in backquotes."""
    return [unit.strip() for unit in _UNIT.findall(plain)]


def _fitting(plain: str, first: int, width: int) -> Iterator[re.Match[str]]:
    """Yield the units from a character on; split parentheses that are wider than a line."""
    for unit in _UNIT.finditer(plain, first):
        if cell_len(unit.group().rstrip()) > width - _indented(plain, unit.start()):
            yield from _BROKEN.finditer(plain, *unit.span()) if unit.group()[0] != "\n" else (unit,)
        else:
            yield unit


def _indented(plain: str, at: int) -> int:
    start = plain.rfind("\n", 0, at) + 1
    head = (_INDENT if start == 0 else _SPACE).match(plain, start)
    return head.end() - start if head else 0


def wrapped(text: Text, width: int) -> Text:
    """Return `text` in lines of at most `width` columns; continuation lines have the indent of their first line.

    Text in backquotes, short text in parentheses and words wider than a line are not broken.
    """
    plain = text.plain
    first = _INDENT.match(plain)
    column = len(first.group()) if first else 0
    indent, breaks = " " * column, []
    for unit in _fitting(plain, column, width):
        if unit.group()[0] == "\n":
            column = len(unit.group()) - 1
            indent = " " * column
            continue
        if column > len(indent) and column + cell_len(unit.group().rstrip()) > width:
            breaks.append((unit.start(), indent))
            column = len(indent)
        column += cell_len(unit.group())
    parts = text.divide([at for at, _ in breaks])
    lines = text.blank_copy()
    for part, before in zip(parts, ["", *(indent for _, indent in breaks)], strict=True):
        if lines:
            lines.rstrip()
            lines.append("\n" + before)
        lines.append_text(part)
    return lines


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


def print_step(sentence: str) -> None:
    """Print a step that a command begins, to stderr."""
    err().print(f"[dim]{sentence} ...[/dim]")


def progress_bar(disable: bool = False) -> "Progress":
    """Return a progress bar on stderr with counts and the remaining time."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err(), transient=True, disable=disable)


def print_json(data: Any) -> None:
    """Print dataclasses, mappings and lists of them as indented JSON on stdout."""
    print(json.dumps(to_camel_json(data, for_operators=True), indent=2, ensure_ascii=False))


def moment(time: datetime | None) -> str:
    """Return a time in this machine's time zone with its offset, as `--since` accepts it; empty for None."""
    if time is None:
        return ""
    return time.astimezone().isoformat(" ", "seconds").replace("+00:00", "Z")


def duration(seconds: float) -> str:
    """Return, for example, "1 h 05 min", "4 min 10 s" or "12 s"."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Return, for example, "1 call" or "2 calls"; `plural` if it is not `singular` with an s."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
