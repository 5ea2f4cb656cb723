"""Listings of source: figures and line numbers in the margin, notes below the line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sdyscope.process.output import Output, answers
from sdyscope.terminal.table import STYLES, Tone, axis_styles, fold
from sdyscope.words.visible import abridged, visible

#: What a note begins with, under the code that it is about.
_NOTE: Final = "^ "

#: A note is not folded into less than this: then its indent gives way.
_NARROWEST: Final = 50

#: Characters between the columns of the margin, and between it and the code.
_GAP: Final = 2


@dataclass(frozen=True, slots=True)
class ListingNote:
    """A note below a line.

    Attributes:
        text: what it says.
        tone: what its reader should feel.
    """

    text: str
    tone: Tone = "plain"

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", abridged(visible(self.text)))


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of source.

    Attributes:
        margin: what stands in front of it, a text for each column of the listing, its number last.
        code: its text; None for a gap, which is shown as three dots.
        notes: what stands below it.
    """

    margin: tuple[str, ...]
    code: str | None
    notes: tuple[ListingNote, ...] = ()

    def __post_init__(self) -> None:
        if self.code is not None:
            object.__setattr__(self, "code", abridged(visible(self.code.expandtabs(4).rstrip())))


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines of one file.

    Attributes:
        title: a line above; empty for none.
        columns: headers of the margin, as many as each line has texts.
        lines: the lines.
        axes: names of mesh axes, in the order of their colours.
    """

    title: str
    columns: tuple[str, ...]
    lines: tuple[Listed, ...]
    axes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    """A line as it is printed: its text, its tone, and where the tone begins."""

    text: str
    tone: Tone = "plain"
    begins: int = 0
    is_note: bool = False


def _lines(listing: Listing, columns: int | None) -> Iterator[_Line]:
    widths = [
        max(map(len, texts))
        for texts in zip(listing.columns, *(line.margin for line in listing.lines), strict=True)
    ]
    margin = sum(widths) + _GAP * len(widths)
    if listing.title:
        yield _Line(visible(listing.title), "heading")
    yield _Line(_row(listing.columns, widths).rstrip(), "muted")
    for line in listing.lines:
        if line.code is None:
            yield _Line(" " * margin + "...", "muted")
            continue
        front = _row(line.margin, widths)
        rest = len(line.code) - len(line.code.lstrip())
        first, *more = _within(line.code, columns, margin, rest + 4)
        yield _Line((front + first).rstrip(), "plain" if line.notes else "muted", margin)
        for text in more:
            yield _Line((" " * margin + text).rstrip(), "plain" if line.notes else "muted", margin)
        for note in line.notes:
            indent = margin + rest
            if columns is not None:
                indent = max(min(indent, columns - _NARROWEST), 0)
            room = None if columns is None else max(columns - indent - len(_NOTE), 1)
            texts = [note.text] if room is None else list(fold(note.text, room, whole=True))
            for number, text in enumerate(texts):
                begin = _NOTE if number == 0 else " " * len(_NOTE)
                yield _Line(f"{' ' * indent}{begin}{text}", note.tone, 0, True)


def _row(texts: Sequence[str], widths: Sequence[int]) -> str:
    gap = " " * _GAP
    return "".join(f"{text:>{width}}{gap}" for text, width in zip(texts, widths, strict=True))


def _within(code: str, columns: int | None, margin: int, hang: int) -> list[str]:
    """Code that is no wider than what is left of a line, cut between words where there are any."""
    if columns is None or margin + len(code) <= columns:
        return [code]
    room = max(columns - margin, 1)
    hang = min(hang, room // 2)
    cut = _cut(code, room)
    lines, rest = [code[:cut]], code[cut:]
    while rest:
        cut = _cut(rest, room - hang)
        lines.append(" " * hang + rest[:cut])
        rest = rest[cut:]
    return lines


#: Where code is cut, best first: behind a space, a comma or an opening bracket, a dot.
_CUTS: Final = (" ", ",([{", ".")


def _cut(code: str, room: int) -> int:
    """How many characters of code go into a line."""
    if len(code) <= room:
        return len(code)
    for marks in _CUTS:
        at = max(code.rfind(mark, room // 2, room) for mark in marks) + 1
        if at:
            return at
    return room


def print_listing(listing: Listing, output: Output | None = None) -> None:
    """Prints a listing, with mesh axes in colours of their own on a terminal."""
    from rich.console import Console
    from rich.text import Text

    output = output or answers()
    console = Console(file=output.stream, force_terminal=True if output.terminal else None)
    text = Text()
    for line in _lines(listing, output.columns):
        row = Text(line.text)
        row.stylize(STYLES["muted"], 0, line.begins)
        row.stylize(STYLES[line.tone], line.begins)
        if line.is_note:
            for style, begin, end in axis_styles(line.text, listing.axes):
                row.stylize(style, begin, end)
        text.append_text(row).append("\n")
    console.print(text, soft_wrap=True, end="")
