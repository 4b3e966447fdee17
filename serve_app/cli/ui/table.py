"""Tables that can be read at any width: only free text wraps, and no id, address or path in it is broken.

Where the columns do not fit side by side, those that do stay a table, and the rest of a row follows below it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from serve_app.cli.ui.terminal import units, wrapped

GAP = 2  # spaces between columns, and before what follows below a row
TEXT_WIDTH = 24  # columns of the terminal that free text gets at least: no code in it is longer


@dataclass(frozen=True, slots=True)
class Column:
    """`!name`: never wrapped (an id, a state, a time); `#name`: a figure, never wrapped, to the right; else text."""

    name: str
    wraps: bool
    figure: bool

    @classmethod
    def of(cls, written: str) -> "Column":
        return cls(written.lstrip("!#"), written[:1] not in ("!", "#"), written.startswith("#"))


@dataclass(slots=True)
class Table:
    """Rows under headings, without borders; the first column is what a row is about."""

    columns: Sequence[Column]
    show_header: bool = True
    rows: list[tuple[Text, ...]] = field(default_factory=list)

    def add_row(self, *cells: str | Text) -> None:
        self.rows.append(tuple(cell if isinstance(cell, Text) else Text(cell) for cell in cells))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        beside = self._side_by_side(width) or self._fitting(width)
        below = [at for at in range(len(self.columns)) if at not in beside]
        for number, row in enumerate(self.rows):
            # What has a path or an address that is wider than its column stands below too, where lines are longer.
            broken = [at for at, given in beside.items() if at and self.columns[at].wraps and _unit(row[at]) > given]
            shown = tuple(Text() if at in broken else cell for at, cell in enumerate(row))
            yield self._grid(beside, shown, self.show_header and number == 0)
            yield from self._details(row, sorted([*below, *broken]), width)
        if not self.rows:
            yield self._grid(beside, None, self.show_header)

    def _widest(self, at: int) -> int:
        """The width of a column whose cells are not wrapped."""
        return max(_width(text) for text in (Text(self._heading(at)), *(row[at] for row in self.rows)))

    def _heading(self, at: int) -> str:
        return self.columns[at].name if self.show_header else ""

    def _side_by_side(self, width: int) -> dict[int, int] | None:
        """The widths of all columns, or None where they do not fit; text shares what the others leave."""
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
        """The widths of the first column, and of those others that do not wrap and fit beside it."""
        first = self._widest(0)
        found = {0: min(first, TEXT_WIDTH) if self.columns[0].wraps else first}
        left = width - found[0]
        for at, column in enumerate(self.columns[1:], 1):
            needed = self._widest(at)
            if not column.wraps and GAP + needed <= left:
                found[at] = needed
                left -= GAP + needed
        found[0] = min(first, found[0] + left)
        return found

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
        """The cells that stand below a row, with their names: several to a line while they fit."""
        margin = Text(" " * GAP, no_wrap=True, overflow="ignore")
        line = margin.copy()
        for at in below:
            if not row[at]:
                continue
            named = Text.assemble((f"{self.columns[at].name}: " if self._heading(at) else "", "dim"), row[at])
            if len(line) > GAP and _width(line) + GAP + _width(named) > width:
                yield wrapped(line, width)
                line = margin.copy()
            line.append(" " * GAP if len(line) > GAP else "")
            line.append_text(Text("\n" + margin.plain).join(named.split("\n")))
        if len(line) > GAP:
            yield wrapped(line, width)


def table(*columns: str) -> Table:
    """A table of columns written as `Column` says."""
    return Table([Column.of(written) for written in columns])


def _width(text: Text) -> int:
    return max((line.cell_len for line in text.split("\n")), default=0)


def _unit(text: Text) -> int:
    """The width of the widest part that stays whole."""
    return max((cell_len(unit) for unit in units(text.plain)), default=0)
