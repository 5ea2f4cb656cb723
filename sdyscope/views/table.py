"""Tables as data, and how they are shown: on a terminal of any width, in a pipe, without colour.

Views build a `Table` of plain text; only `print_table` knows rich, which draws it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from sdyscope.views.output import Output, answers

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

Tone: TypeAlias = Literal["plain", "heading", "good", "bad", "warning", "muted"]

_STYLES: dict[Tone, str] = {
    "plain": "",
    "heading": "bold",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
    "muted": "dim",
}

#: Where a long cell may be continued on the next line: after a space, a slash, a comma or a hyphen,
#: before an index, and before the next part of a dotted name.
_BREAKS = re.compile(r"(?<=[\s/,])(?=\S)|(?<=\w-)(?=[A-Za-z])|(?=\[)|(?=\.[A-Za-z_])")

#: A column is not made narrower than its longest unbreakable piece, up to this many characters.
_WIDEST_PIECE = 24

#: Characters between two columns.
_GAP = 2

#: A column that folds is not made narrower than this while another one can give way.
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, which may have several lines, and what its reader should feel."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
      header: its title.
      align: numbers and sizes are on the right, everything else on the left.
      fold: whether a long cell may go on in the next line; otherwise the column keeps its width.
    """

    header: str
    align: Literal["left", "right"] = "left"
    fold: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns.

    Attributes:
      columns: the columns.
      rows: one tuple of cells a row, as many as there are columns; a bare string is a plain cell.
      title: a line above the table, empty for none.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell | str, ...], ...]
    title: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} cells under {len(self.columns)} columns: {row}")


def number(header: str) -> Column:
    """A column of numbers or sizes: on the right, never folded."""
    return Column(header, align="right", fold=False)


def size(count: int | float | None) -> str:
    """A number of bytes in binary units: `512 B`, `1.5 MiB`; a dash for None."""
    if count is None:
        return "-"
    if abs(count) < 1024:
        return f"{count:g} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        # 1023.95 would be shown as 1024.0
        if abs(value) < 1023.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} PiB"


def shape(dimensions: Sequence[int], dtype: str = "") -> str:
    """`bf16[4096,14336]`; a scalar is `f32[]`."""
    return f"{dtype}[{','.join(map(str, dimensions))}]"


def print_table(table: Table, output: Output | None = None) -> None:
    """Prints a table.

    It keeps to the width of the terminal or of COLUMNS, by folding cells; in a pipe without COLUMNS
    a row is one line. Colour is used on a terminal unless NO_COLOR is set; line drawing where the
    output's encoding has it.
    """
    output = output or answers()
    if table.title:
        print_text(table.title, "heading", output)
    console = _console(output)
    with console.capture() as drawn:
        console.print(_rich_table(table, output))
    # rich fills the last column with spaces.
    output.write("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def print_text(text: str, tone: Tone = "plain", output: Output | None = None) -> None:
    """Prints a paragraph, folded like a cell where the width is known."""
    output = output or answers()
    console = _console(output)
    for line in fold(text, output.columns or _UNLIMITED):
        console.print(_text(line, tone), soft_wrap=True)


#: A width that no row reaches.
_UNLIMITED = 1_000_000


def _console(output: Output) -> Console:
    from rich.console import Console

    return Console(
        file=output.stream,
        width=output.columns or _UNLIMITED,
        # None leaves the decision to rich, which honours FORCE_COLOR.
        force_terminal=True if output.terminal else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _text(text: str, tone: Tone) -> Text:
    from rich.text import Text

    return Text(text, style=_STYLES[tone])


def _rich_table(table: Table, output: Output) -> RichTable:
    from rich.box import Box
    from rich.table import Table as RichTable

    unicode = output.stream.encoding.lower().startswith("utf")
    line = "\N{BOX DRAWINGS LIGHT HORIZONTAL}" if unicode else "-"
    # Eight lines of left, fill, divider and right: only the rule under the header is drawn.
    blank, rule = " " * 4, f" {line}{line} "
    box = Box("\n".join((blank, blank, rule, *[blank] * 5)) + "\n", ascii=not unicode)
    drawing = RichTable(
        # The divider of the box is the other half of the gap.
        box=box,
        padding=(0, _GAP - 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    rows = [[Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows]
    widths = column_widths(
        table.columns, [[cell.text for cell in row] for row in rows], output.columns
    )
    for column, width in zip(table.columns, widths, strict=True):
        drawing.add_column(
            "\n".join(fold(column.header, width)), justify=column.align, width=width, no_wrap=True
        )
    for row in rows:
        drawing.add_row(
            *(
                _text("\n".join(fold(cell.text, width)), cell.tone)
                for cell, width in zip(row, widths, strict=True)
            )
        )
    return drawing


def column_widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int | None
) -> list[int]:
    """How many characters each column gets.

    Each gets what it needs if there is room. Otherwise the columns that fold start from their
    longest unbreakable piece, and what is left goes where the most lines would be folded. Where
    not even the pieces fit, the widest columns give way, first those that fold.

    Args:
      columns: the columns.
      rows: the text of each cell, rows of one cell a column.
      available: characters in a line; None for any number.
    """
    whole, least = [], []
    for index, column in enumerate(columns):
        texts = [column.header, *(row[index] for row in rows)]
        whole.append(max(len(line) for text in texts for line in text.split("\n")))
        piece = max(len(piece) for text in texts for piece in pieces(text))
        least.append(min(piece, _WIDEST_PIECE) if column.fold else whole[-1])
    room = None if available is None else available - _GAP * (len(columns) - 1)
    if room is None or sum(whole) <= room:
        return whole
    widths = [min(pair) for pair in zip(whole, least, strict=True)]
    while sum(widths) > room and max(widths) > 1:
        foldable = [i for i, column in enumerate(columns) if column.fold and widths[i] > _NARROWEST]
        widths[max(foldable or range(len(widths)), key=widths.__getitem__)] -= 1
    while sum(widths) < room:
        wanting = [i for i in range(len(widths)) if widths[i] < whole[i]]
        widths[max(wanting, key=lambda i: whole[i] / widths[i])] += 1
    return widths


def pieces(text: str) -> list[str]:
    """The parts of a text between which a line may end, without the spaces after them."""
    return [piece.rstrip() for line in text.split("\n") for piece in _BREAKS.split(line)]


def fold(text: str, width: int) -> Iterator[str]:
    """The lines of a text, none longer than `width`, broken where a reader expects it."""
    width = max(width, 1)
    for paragraph in text.split("\n"):
        line = ""
        for piece in _BREAKS.split(paragraph):
            if line and len((line + piece).rstrip()) > width:
                yield line.rstrip()
                line = ""
            while len(piece.rstrip()) > width:
                yield piece[:width]
                piece = piece[width:]
            line += piece
        yield line.rstrip()
