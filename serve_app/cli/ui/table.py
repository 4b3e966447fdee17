"""Tables for any width: only free text wraps, and no id, address or path is broken.

If not all columns fit, the others follow below their row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from serve_app.cli.ui.output import moment, units, wrapped

GAP = 2  # spaces between columns, and before the cells below a row
TEXT_WIDTH = 24  # minimum width of free text: no error code is longer


@dataclass(frozen=True, slots=True)
class Column:
    """`!name`: never wrapped (id, state, time); `#name`: right-aligned figure; else text that wraps."""

    name: str
    wraps: bool
    figure: bool

    @classmethod
    def of(cls, spec: str) -> "Column":
        return cls(spec.lstrip("!#"), spec[:1] not in ("!", "#"), spec.startswith("#"))


@dataclass(slots=True)
class Table:
    """Rows under headings, without borders. The first column identifies the row."""

    columns: Sequence[Column]
    show_header: bool = True
    rows: list[tuple[Text, ...]] = field(default_factory=list)

    def add_row(self, *cells: Any) -> None:
        self.rows.append(tuple(map(_cell, cells)))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        fitting = self._side_by_side(width) or self._fitting(width)
        below = [at for at in range(len(self.columns)) if at not in fitting]
        for number, row in enumerate(self.rows):
            # A cell with a path or address wider than its column goes below, where lines are longer.
            wrapping = [at for at in fitting if at and self.columns[at].wraps]
            broken = [at for at in wrapping if _widest_unit(row[at]) > fitting[at]]
            shown = tuple(Text() if at in broken else cell for at, cell in enumerate(row))
            yield self._grid(fitting, shown, self.show_header and number == 0)
            yield from self._details(row, sorted([*below, *broken]), width)
        if not self.rows:
            yield self._grid(fitting, None, self.show_header)

    def _widest(self, at: int) -> int:
        return max(_width(text) for text in (Text(self._heading(at)), *(row[at] for row in self.rows)))

    def _heading(self, at: int) -> str:
        return self.columns[at].name if self.show_header else ""

    def _side_by_side(self, width: int) -> dict[int, int] | None:
        """Return the widths of all columns, or None if they do not fit. Text columns share the spare width."""
        whole = [self._widest(at) for at in range(len(self.columns))]
        widths = [
            min(needed, TEXT_WIDTH) if column.wraps else needed
            for column, needed in zip(self.columns, whole, strict=True)
        ]
        spare = width - sum(widths) - GAP * (len(widths) - 1)
        if spare < 0:
            return None
        while spare and (short := [at for at, needed in enumerate(whole) if widths[at] < needed]):
            for at in short[:spare]:
                widths[at] += 1
                spare -= 1
        return dict(enumerate(widths))

    def _fitting(self, width: int) -> dict[int, int]:
        """Return the widths of the first column and of the unwrapped columns that fit next to it."""
        first = self._widest(0)
        widths = {0: min(first, TEXT_WIDTH) if self.columns[0].wraps else first}
        remaining = width - widths[0]
        for at, column in enumerate(self.columns[1:], 1):
            needed = self._widest(at)
            if not column.wraps and GAP + needed <= remaining:
                widths[at] = needed
                remaining -= GAP + needed
        widths[0] = min(first, widths[0] + remaining)
        return widths

    def _grid(self, widths: Mapping[int, int], row: Sequence[Text] | None, header: bool) -> RichTable:
        grid = RichTable(
            box=None, pad_edge=False, show_header=header, header_style="bold", padding=(0, GAP, 0, 0), expand=False
        )
        for at, width in widths.items():
            column = self.columns[at]
            grid.add_column(column.name, width=width, overflow="fold", justify="right" if column.figure else "left")
        if row is not None:
            grid.add_row(
                *(wrapped(row[at], width) if self.columns[at].wraps else row[at] for at, width in widths.items())
            )
        return grid

    def _details(self, row: Sequence[Text], below: Sequence[int], width: int) -> Iterator[Text]:
        """Yield the cells below a row with their names, several per line while they fit."""
        margin = Text(" " * GAP, no_wrap=True, overflow="ignore")
        line = margin.copy()
        for at in below:
            if not row[at]:
                continue
            cell = Text.assemble((f"{self.columns[at].name}: " if self._heading(at) else "", "dim"), row[at])
            if len(line) > GAP and _width(line) + GAP + _width(cell) > width:
                yield wrapped(line, width)
                line = margin.copy()
            line.append(" " * GAP if len(line) > GAP else "")
            line.append_text(Text("\n" + margin.plain).join(cell.split("\n")))
        if len(line) > GAP:
            yield wrapped(line, width)


def table(*columns: str) -> Table:
    """Return an empty table; see `Column` for the notation."""
    return Table([Column.of(spec) for spec in columns])


def _cell(value: Any) -> Text:
    """Return a value as text: a time in this machine's time zone, the items of a tuple, nothing for None."""
    if isinstance(value, Text):
        return value
    if isinstance(value, datetime):
        return Text(moment(value))
    return Text(", ".join(value) if isinstance(value, list | tuple) else "" if value is None else str(value))


def _width(text: Text) -> int:
    return max((line.cell_len for line in text.split("\n")), default=0)


def _widest_unit(text: Text) -> int:
    return max((cell_len(unit) for unit in units(text.plain)), default=0)
