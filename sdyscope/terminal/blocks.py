"""What a command prints: texts, tables and pictures, with an empty line between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from sdyscope.process.output import answers
from sdyscope.terminal.chart import Area, Timeline, print_area, print_timeline
from sdyscope.terminal.listing import Listing, print_listing
from sdyscope.terminal.paragraphs import Paragraph, print_paragraphs
from sdyscope.terminal.table import Table, print_table

Block: TypeAlias = Table | Area | Timeline | Listing | Iterable[Paragraph] | str
"""A string is written as it is, not folded."""


def heading(text: str) -> list[Paragraph]:
    """The block above those that it is the heading of."""
    return [Paragraph(text, "heading")]


def print_blocks(blocks: Iterable[Block | None]) -> None:
    """Prints blocks with an empty line between, but none for None and for no paragraphs."""
    output = answers()
    is_first = True
    for block in blocks:
        if isinstance(block, Iterable) and not isinstance(block, str):
            block = tuple(block)
        if block is None or block == ():
            continue
        if not is_first:
            output.write("")
        is_first = False
        match block:
            case str():
                output.write(block)
            case Table():
                print_table(block, output)
            case Area():
                print_area(block, output)
            case Listing():
                print_listing(block, output)
            case Timeline():
                print_timeline(block, output)
            case _:
                print_paragraphs(block, output)
