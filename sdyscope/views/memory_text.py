"""What the text of a compiled program says of a device's memory, as a table and its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sdyscope.analysis.memory.text import TextMemory
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, number, shape, size
from sdyscope.views.memory import Memory


def document(name: str, file: str, found: TextMemory) -> Memory:
    """The document of `sdyscope memory --json` for the text of a compiled program."""
    return Memory(
        name=name,
        jax_version="",
        meshes=(),
        passed=True,
        compiled=(),
        failures=(),
        file=file,
        text=found,
    )


def heading(document: Memory, found: TextMemory) -> str:
    """The module, its file and for how many devices it is."""
    devices = "1 device" if found.devices == 1 else f"{found.devices:,} devices"
    return f"{document.name} ({document.file}); compiled for {devices}"


def groups(found: TextMemory) -> Table:
    """A row a top-level argument, one for all results, then what they take together."""
    shared = any(group.shared for group in found.groups)
    columns = [Column("group"), number("tensors"), number("stored")]
    if shared:
        columns.append(number("reused"))
    rows: list[Row] = []
    for kind, members in groupby(found.groups, lambda group: group.kind):
        rows.append(Heading(f"{kind}s"))
        for group in members:
            cells: list[Cell | str] = [group.name, f"{group.tensors:,}", size(group.stored)]
            if shared:
                cells.append(size(group.shared) if group.shared else Cell("-", "muted"))
            rows.append(tuple(cells))
    rows.append(Heading("a device holds"))
    rows.append(("in all", "", size(found.total), *[""] * shared))
    return Table(tuple(columns), tuple(rows))


def largest(found: TextMemory, top: int) -> Table:
    """A row for each of the largest arguments and results.

    Args:
      found: what the text says.
      top: how many rows; 0 for all.
    """
    blocks = sorted(found.blocks, key=lambda block: -block.stored)[: top or None]
    return Table(
        columns=(Column("the largest"), Column("block"), number("stored"), Column("shares with")),
        rows=tuple(
            (block.name, shape(block.shape, block.dtype), size(block.stored), block.shares)
            for block in blocks
        ),
    )


def footer(found: TextMemory, top: int) -> Iterator[Paragraph]:
    """What the numbers are, and what the text does not say."""
    for text in _footer(found, len(found.blocks) - top if top else 0):
        yield Paragraph(text, "muted", hang=3)


def _footer(found: TextMemory, left: int) -> Sequence[str]:
    lines = [f"{left:,} left out by --top"] if left > 0 else []
    away = sum(block.stored for block in found.blocks if block.memory_space)
    if away:
        lines.append(f"{size(away)} of it are not in the device's main memory")
    unused = [block.name for block in found.blocks if block.donated and not block.shares]
    if unused:
        more = f" and {len(unused) - 3:,} more" if len(unused) > 3 else ""
        lines.append(f"donated, but no result lies there: {', '.join(unused[:3])}{more}")
    lines.append("stored: bytes of what a device holds, with the padding of the hardware's tiles")
    if any(group.shared for group in found.groups):
        lines.append("reused: donated arguments' buffers, in which results lie")
    lines.append(
        "the text of a compiled program says nothing of temporaries, nor how large the whole "
        "tensors are: name the program itself, and it is compiled"
    )
    return lines
