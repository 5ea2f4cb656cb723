"""Lines of text, each with a tone and an indent, folded where the width is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sdyscope.facts.program import Partitioner
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


# --- what looks the same is told once -------------------------------------------------------------

_Item = TypeVar("_Item")


class _Under(Protocol):
    @property
    def partitioner(self) -> Partitioner | None: ...


_UnderPartitioner = TypeVar("_UnderPartitioner", bound=_Under)


def by_partitioner(
    items: Iterable[_UnderPartitioner], bare: Callable[[_UnderPartitioner], object]
) -> Iterator[tuple[_UnderPartitioner, tuple[Partitioner, ...]]]:
    """Items that look different, each with the partitioners under which it looks so.

    Args:
        items: the items.
        bare: what is left of one when it does not matter whose it is.
    """
    for same in alike(items, bare):
        yield same[0], tuple(item.partitioner for item in same if item.partitioner is not None)


def alike(items: Iterable[_Item], bare: Callable[[_Item], object]) -> list[list[_Item]]:
    """Items in groups of those that look the same, by the first of each group.

    Args:
        items: the items.
        bare: what is left of one when it does not matter whose it is.
    """
    groups: list[tuple[object, list[_Item]]] = []
    for item in items:
        looks = bare(item)
        for known, members in groups:
            if known == looks:
                members.append(item)
                break
        else:
            groups.append((looks, [item]))
    return [members for _, members in groups]
