"""Tables as data, and how they are shown: on a terminal of any width, in a pipe, without colour.

Views build a `Table` of plain text; how wide, in which colours it is shown is decided here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from itertools import zip_longest
from typing import Concatenate, Final, Literal, ParamSpec, TypeAlias, TypeVar

from sdyscope.process.output import Output, answers
from sdyscope.terminal.messages import HANG
from sdyscope.words.counts import size
from sdyscope.words.mesh import axis_spans
from sdyscope.words.tone import Tone as Tone
from sdyscope.words.visible import abridged, visible

#: The style of each tone, as rich has it.
STYLES: dict[Tone, str] = {
    "plain": "",
    "heading": "bold",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
    "muted": "dim",
}

#: Colours of mesh axes in the order of the mesh; red, yellow and green are verdicts.
_AXES: Final = ("cyan", "magenta", "blue", "bright_green", "bright_cyan", "bright_magenta")

#: Where a long cell may be continued on the next line: after a space, a slash, a comma or a hyphen,
#: before an index, before the next part of a dotted name, and inside the parentheses of a scope
#: (`transpose(jvp(layer))`); never inside a number (`8,192`) or a type (`f32[128,64]`).
_BREAKS = re.compile(
    r"(?<=[\s/,])(?=\S)(?!(?<=\d,)(?:\d{3}(?!\d)|[\d,]*\]))|(?<=\w-)(?=[A-Za-z])"
    r"|(?=\[)(?!(?<=[a-z0-9]\d)\[\d+,[\d,]*\])"
    r"|(?=\.[A-Za-z_])(?!\.py:)|(?<=\w\w\()(?=\w)"
)

#: The line at the end of a place: `:867` of `peft_trainer.py:867`.
_LINE = re.compile(r":\d+\s*$")

#: A word with the space behind it; a spec, a slice or a size is one word: `w[0:1, :]`, `4.0 KiB`.
_WORDS = re.compile(
    r"(?:P\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\]|(?<![\w.])\d[\d.,]* (?:[KMGTP]i)?B\b|\S)+\s*|\s+"
)

#: A column is not made narrower than its longest unbreakable piece, up to this many characters.
_WIDEST_PIECE = 24

#: Characters between two columns.
_GAP = 2

#: How far in a note begins.
_INDENT = 4

#: What stands in a cell that says nothing.
_NOTHING = "-"

#: A cell of more lines is taller than one reads beside others.
_TALL = 4

#: A column that folds is not made narrower than this while another one can give way.
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, which may have several lines, and what its reader should feel.

    Control characters are escaped and words of thousands of characters cut short, so its width and
    its lines are those shown; `--json` has the whole.
    """

    text: str
    tone: Tone = "plain"

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", abridged(visible(self.text)))


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", visible(self.header))


@dataclass(frozen=True, slots=True)
class Heading:
    """A line across all columns, above the rows of a group."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line across all columns, below the row that it is about."""

    text: str


Row: TypeAlias = tuple[Cell | str, ...] | Heading | Note


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns.

    Attributes:
        columns: the columns.
        rows: one tuple of cells a row, as many as there are columns; a bare string is a plain cell.
            A `Heading` between them begins a group, a `Note` is about the row above it.
        title: a line above the table, empty for none.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if isinstance(row, tuple) and len(row) != len(self.columns):
                raise ValueError(f"{len(row)} cells under {len(self.columns)} columns: {row}")

    @property
    def cells(self) -> list[tuple[Cell, ...]]:
        """The rows without headings and notes, every cell a `Cell`."""
        return [_cells(row) for row in self.rows if isinstance(row, tuple)]

    @property
    def whole_width(self) -> int:
        """How many characters a line has in which no cell is folded."""
        texts = [[cell.text for cell in row] for row in self.cells]
        return sum(column_widths(self.columns, texts, None)) + _GAP * (len(self.columns) - 1)


_Table = TypeVar("_Table", bound=Table)
_Given = ParamSpec("_Given")
_Value = TypeVar("_Value")


def _cells(row: tuple[Cell | str, ...]) -> tuple[Cell, ...]:
    return tuple(Cell(cell) if isinstance(cell, str) else cell for cell in row)


def fitted(
    make: Callable[Concatenate[bool, _Given], _Table],
) -> Callable[Concatenate[int | None, _Given], _Table]:
    """Makes a function that is told how many characters a line has, None for any number.

    Args:
        make: makes the table; it is told whether a brief one, as where the other is wider.
    """

    def fitting(columns: int | None, /, *args: _Given.args, **options: _Given.kwargs) -> _Table:
        table = make(False, *args, **options)
        is_wider = columns is not None and table.whole_width > columns
        return make(True, *args, **options) if is_wider else table

    return update_wrapper(fitting, make)


def number(header: str) -> Column:
    """A column of numbers or sizes: on the right, never folded."""
    return Column(header, align="right", fold=False)


def size_cell(count: int) -> Cell:
    """Bytes: ``12.3 KiB``, a dash for none."""
    return Cell(size(count)) if count else Cell("-", "muted")


def shape(dimensions: Sequence[int], dtype: str = "") -> str:
    """`bf16[4096,14336]`; a scalar is `f32[]`."""
    return f"{dtype}[{','.join(map(str, dimensions))}]"


def print_table(table: Table, output: Output | None = None) -> None:
    """Prints a table.

    It keeps to the width of the terminal or of COLUMNS, by folding cells, or where that would break
    words or make a cell tall, with one cell of each row on lines of its own; in a pipe without
    COLUMNS a row is one line. Colour is used on a terminal unless NO_COLOR is set; line drawing
    where the output's encoding has it.
    """
    output = output or answers()
    texts = [[cell.text for cell in row] for row in table.cells]
    widths, lone = _layout(table.columns, texts, output.columns)
    headers = [Cell(column.header, "heading") for column in table.columns]
    rule = "\N{BOX DRAWINGS LIGHT HORIZONTAL}" if _has_lines(output.stream.encoding) else "-"
    lines: list[Sequence[Cell]] = []
    if table.title:
        columns = output.columns
        titles = [table.title] if columns is None else hanging(table.title, columns, hang=HANG)
        lines += [[Cell(line, "heading")] for line in titles]
    lines += _lines_of(table.columns, headers, widths, lone)
    ruled = sum(widths) + _GAP * (len(widths) - 1)
    if lone is not None:
        # What is below begins a gap further in: the others, or the one.
        own = widths[lone] + (_GAP if lone else 0)
        ruled = max(ruled - own, own)
    lines.append([Cell(rule * ruled)])
    for index, row in enumerate(table.rows):
        if isinstance(row, Heading):
            if index:
                lines.append([Cell("")])
            heading = Cell(row.text, "heading")
            lines += [[line] for line in _folded(heading, output.columns, whole=True)]
        elif isinstance(row, Note):
            lines += _note(row, output.columns)
        else:
            lines += _lines_of(table.columns, _cells(row), widths, lone)
    print_lines(lines, output)


def _note(note: Note, columns: int | None) -> Iterator[list[Cell]]:
    """The lines of a note, below the beginning of its row."""
    width = None if columns is None else max(columns - _INDENT, 1)
    for line in _folded(Cell(note.text, "muted"), width, whole=True):
        yield [Cell(" " * _INDENT + line.text, line.tone)]


def print_text(
    text: str, tone: Tone = "plain", output: Output | None = None, axes: Sequence[str] = ()
) -> None:
    """Prints a paragraph, folded like a cell where the width is known; mesh axes have colours."""
    output = output or answers()
    print_lines([[line] for line in _folded(Cell(text, tone), output.columns)], output, axes)


def _has_lines(encoding: str) -> bool:
    return encoding.lower().startswith("utf")


def _folded(cell: Cell, width: int | None, *, whole: bool = False) -> list[Cell]:
    lines = cell.text.split("\n") if width is None else fold(cell.text, width, whole=whole)
    return [Cell(line, cell.tone) for line in lines]


def _row(
    columns: Sequence[Column], cells: Sequence[Cell], widths: Sequence[int]
) -> Iterator[list[Cell]]:
    """The lines of one row, each cell filled to its column's width and the gap after it."""
    stacks = (_folded(cell, width) for cell, width in zip(cells, widths, strict=True))
    for line in zip_longest(*stacks, fillvalue=Cell("")):
        filled = []
        for cell, column, width in zip(line, columns, widths, strict=True):
            right = column.align == "right"
            text = cell.text.rjust(width) if right else cell.text.ljust(width)
            filled.append(Cell(text + " " * _GAP, cell.tone))
        yield filled


def _lines_of(
    columns: Sequence[Column], cells: Sequence[Cell], widths: Sequence[int], lone: int | None
) -> Iterator[list[Cell]]:
    """The lines of one row; of the cell that has lines of its own, and of the others beside it.

    The first cell stands above the others, any other below them; what is below is further in.
    """
    if lone is None:
        yield from _row(columns, cells, widths)
        return
    own = [[line] for line in _folded(cells[lone], widths[lone])]
    others = _without(cells, lone)
    beside = list(_row(_without(columns, lone), others, _without(widths, lone)))
    if not any(cell.text for cell in others):
        beside = []
    if lone and cells[lone].text in ("", _NOTHING):
        own = []
    above, below = (beside, own) if lone else (own, beside)
    yield from above
    for line in below:
        yield [Cell(" " * _GAP), *line]


def _without(row: Sequence[_Value], index: int) -> Sequence[_Value]:
    """All but one."""
    return [*row[:index], *row[index + 1 :]]


def _without_the_end(line: Sequence[Cell]) -> Sequence[Cell]:
    """A line up to its last cell that shows something."""
    shown = [index for index, cell in enumerate(line) if cell.text.strip()]
    return line[: shown[-1] + 1] if shown else [Cell("")]


def axis_styles(text: str, axes: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """The colour of each mesh axis that a text names, from where, and to where.

    Args:
        text: words with shardings in them.
        axes: names of mesh axes, in the order of their colours.
    """
    for begin, end, axis in axis_spans(text, axes):
        yield _AXES[axes.index(axis) % len(_AXES)], begin, end


def print_lines(lines: Sequence[Sequence[Cell]], output: Output, axes: Sequence[str] = ()) -> None:
    """Prints lines of cells side by side; rich knows which colours the output can show."""
    from rich.console import Console
    from rich.text import Text

    # None leaves the decision to rich, which honours FORCE_COLOR and NO_COLOR.
    console = Console(file=output.stream, force_terminal=True if output.terminal else None)
    text = Text()
    for line in lines:
        *before, last = _without_the_end(line)
        for cell in before:
            text.append(cell.text, STYLES[cell.tone])
        text.append(last.text.rstrip() + "\n", STYLES[last.tone])
    for style, begin, end in axis_styles(text.plain, axes):
        text.stylize(style, begin, end)
    console.print(text, soft_wrap=True, end="")


def column_widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int | None
) -> list[int]:
    """How many characters each column gets.

    Each gets what it needs if there is room. Otherwise the columns that fold start from their
    longest unbreakable piece, what is left goes where the most lines would be folded, and then
    columns give to others what makes the table shorter. Where not even the pieces fit, the widest
    columns give way, first those that fold.

    Args:
        columns: the columns.
        rows: the text of each cell, rows of one cell a column.
        available: characters in a line; None for any number.
    """
    whole, least = [], []
    for index, column in enumerate(columns):
        texts = {column.header, *(row[index] for row in rows)}
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
    least = [min(pair) for pair in zip(widths, least, strict=True)]
    return _balanced(columns, rows, widths, least, whole)


def _layout(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int | None
) -> tuple[list[int], int | None]:
    """How many characters each column gets, and which one's cells have lines of their own, if any.

    One has if it is folded, a word of the table is broken or a cell is tall, and that takes fewer
    lines; of several the one with which it takes fewest.
    """
    beside = column_widths(columns, rows, available)
    if available is None or len(columns) < 3:
        return beside, None
    sample = rows[:: len(rows) // _SAMPLE + 1]
    heights = [_height(row, beside) for row in sample]
    if max(heights, default=1) <= _TALL and not _breaks_words(columns, rows, beside):
        return beside, None
    best, fewest, lone = beside, sum(heights), None
    for index, column in enumerate(columns):
        longest = max((len(line) for row in rows for line in row[index].split("\n")), default=0)
        if not column.fold or longest <= beside[index]:
            continue
        indent = _GAP if index else 0
        own = min(max(longest, len(column.header)), available - indent)
        others = column_widths(
            _without(columns, index),
            [_without(row, index) for row in rows],
            available - (0 if index else _GAP),
        )
        lines = sum(
            _height([row[index]], [own]) + _height(_without(row, index), others) for row in sample
        )
        if lines < fewest:
            best, fewest, lone = [*others[:index], own, *others[index:]], lines, index
    return best, lone


def _breaks_words(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]
) -> bool:
    """Whether a cell that folds is narrower than a word in it, if that is no longer than usual."""
    return any(
        widths[index] < len(piece) <= _WIDEST_PIECE
        for index, column in enumerate(columns)
        if column.fold and widths[index] < _WIDEST_PIECE
        for text in {row[index] for row in rows}
        for piece in pieces(text)
    )


def _height(row: Sequence[str], widths: Sequence[int]) -> int:
    """How many lines a row has."""
    return max(sum(1 for _ in fold(text, width)) for text, width in zip(row, widths, strict=True))


#: Rows that are looked at to find widths that make a table short.
_SAMPLE = 200


def _balanced(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    widths: list[int],
    least: Sequence[int],
    most: Sequence[int],
) -> list[int]:
    """Moves characters between columns that fold as long as it saves lines.

    None gets fewer than `least`, or more than `most`.
    """
    foldable = [index for index, column in enumerate(columns) if column.fold]
    sample = rows[:: len(rows) // _SAMPLE + 1]
    heights: dict[tuple[str, int], int] = {}

    def lines_of(text: str, width: int) -> int:
        if (text, width) not in heights:
            heights[text, width] = sum(1 for _ in fold(text, width))
        return heights[text, width]

    def height(candidate: Sequence[int]) -> int:
        return sum(
            max((lines_of(row[index], candidate[index]) for index in foldable), default=1)
            for row in sample
        )

    best, lines = widths, height(widths)
    while True:
        moved: list[list[int]] = []
        for giver, taker in itertools.permutations(foldable, 2):
            wanted = most[taker] - best[taker]
            for step in sorted({min(step, wanted) for step in (1, 2, 3, 5, 8, 13)} - {0}):
                if best[giver] - step >= least[giver]:
                    moved.append(list(best))
                    moved[-1][giver] -= step
                    moved[-1][taker] += step
        shorter = min(moved, key=height, default=best)
        if height(shorter) >= lines:
            return best
        best, lines = shorter, height(shorter)


def pieces(text: str) -> list[str]:
    """The parts of a text between which a line may end, without the spaces after them."""
    return [piece.rstrip() for line in text.split("\n") for piece in _BREAKS.split(line)]


def hanging(text: str, columns: int, *, indent: int = 0, hang: int = 0) -> Iterator[str]:
    """The lines of a text whose words stay whole; those behind the first begin further in.

    Args:
        text: the text, without line breaks.
        columns: how many characters a line may have.
        indent: the column that the first line begins in.
        hang: how many columns further in the others begin.
    """
    first, *rest = fold(text, columns - indent, whole=True)
    yield " " * indent + first
    if rest:
        # The first line is fixed; what is left is folded anew under the hanging indent.
        remaining = text[len(first) :].lstrip()
        for line in fold(remaining, columns - indent - hang, whole=True):
            yield " " * (indent + hang) + line


def _cut(piece: str, width: int) -> int:
    """Where a piece that is too long is cut: before its line or index, or after an underscore.

    A number that is cut reads as another: `train.py:86`, `7`.
    """
    line = _LINE.search(piece)
    if line is not None and 0 < line.start() <= width:
        return line.start()
    bracket = piece.find("[", 1, width + 1)
    if bracket > 0 and len(piece.rstrip()) - bracket <= width:
        return bracket
    # An early underscore is as good where the rest then fits.
    first = min(width // 2, max(len(piece.rstrip()) - width - 1, 0))
    return max(piece.rfind(sign, first, width) for sign in "_,") + 1 or width


def fold(text: str, width: int, *, whole: bool = False) -> Iterator[str]:
    """The lines of a text, none longer than `width`, broken where a reader expects it.

    Args:
        text: the text.
        width: how many characters a line may have.
        whole: whether words, types and specs stay in one piece if they fit into a line.
    """
    width = max(width, 1)
    for paragraph in text.split("\n"):
        line = ""
        words = _WORDS.findall(paragraph) if whole else [paragraph]
        fitting = (
            [word] if whole and len(word.rstrip()) <= width else _BREAKS.split(word)
            for word in words
        )
        for piece in itertools.chain.from_iterable(fitting):
            if line and len((line + piece).rstrip()) > width:
                yield line.rstrip()
                line = ""
            while len(piece.rstrip()) > width:
                cut = _cut(piece, width)
                yield piece[:cut]
                piece = piece[cut:]
            line += piece
        yield line.rstrip()
