"""Lines of text, each with a tone and an indent, folded where the width is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sdyscope.process.output import Output, answers
from sdyscope.terminal.messages import HANG
from sdyscope.terminal.table import Table, Tone, hanging, print_table, print_text
from sdyscope.words.visible import abridged, visible

#: Text is not folded into a column narrower than this: then its indent gives way.
_NARROWEST = 20


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text of one or more lines.

    Attributes:
        text: the text; empty for a blank line.
        tone: what its reader should feel.
        indent: the column that it begins in.
        hang: how many columns further in it goes on.
        axes: names of mesh axes, in the order of their colours; none where they have none.
    """

    text: str
    tone: Tone = "plain"
    indent: int = 0
    hang: int = HANG
    axes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", abridged(visible(self.text)))


def print_paragraphs(paragraphs: Iterable[Paragraph], output: Output | None = None) -> None:
    """Prints paragraphs one under the other."""
    output = output or answers()
    for paragraph in paragraphs:
        text = "\n".join(lines(paragraph, output.columns))
        print_text(text, paragraph.tone, output, paragraph.axes)


def print_parts(parts: Iterable[Paragraph | Table], output: Output | None = None) -> None:
    """Prints paragraphs and tables one under the other."""
    for part in parts:
        if isinstance(part, Table):
            print_table(part, output)
        else:
            print_paragraphs([part], output)


def lines(paragraph: Paragraph, columns: int | None) -> list[str]:
    """The lines of a paragraph, no wider than `columns`."""
    if columns is None:
        return [" " * paragraph.indent + line for line in paragraph.text.split("\n")]
    indent = max(min(paragraph.indent, columns - _NARROWEST), 0)
    hang = max(min(paragraph.hang, columns - _NARROWEST - indent), 0)
    return [
        line
        for text in paragraph.text.split("\n")
        for line in hanging(text, columns, indent=indent, hang=hang)
    ]
