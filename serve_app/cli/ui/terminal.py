"""Text is wrapped between words, never inside an id, an address, a path or a command to copy."""

import re
from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_WORD = r"(?:`[^`\n]*`|[^\s`]|`)+[^\S\n]*"
_ASIDE = r"\([^()`\n]{1,30}\)[^\s`]*(?!\S)[^\S\n]*"  # short text in parentheses: ("by Friday")
_UNIT = re.compile(rf"{_ASIDE}|{_WORD}|\n[^\S\n]*")  # an unbreakable part and the space after it
_BROKEN = re.compile(_WORD)
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
    """Return the indent of the line of a character."""
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
