"""One source file: its expressions by their place, and edits of its text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, ParentNodeProvider

from sdyscope.errors import TargetError, read_text
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a source file, as Python and MLIR say it.

    Attributes:
        file: path of the file.
        line: first line, counted from 1.
        column: byte of that line that it begins with, counted from 0.
        end_line: last line.
        end_column: byte of the last line behind its end.
        function: name of the function that it is in; empty when not known.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str = ""

    @property
    def location(self) -> SourceLocation:
        """Where it begins."""
        return SourceLocation(self.file, self.line, self.column, self.function)


@dataclass(frozen=True, slots=True, order=True)
class Splice:
    """Text in place of some characters of a source.

    Attributes:
        start: the first that is replaced, counted from 0 in the whole text.
        end: behind the last; ``start`` to insert.
        text: what stands there from now on.
    """

    start: int
    end: int
    text: str


#: A blank inside a bracket, with the comma before the last one where it stands behind another.
_INSIDE: Final = re.compile(r"(?<=[(\[{]) |(?<=,)(?P<last>[^()\[\]{}]*), (?=[)\]}])| (?=[)\]}])")


def one_line(text: str) -> str:
    """Python's text without its breaks, to be shown: `f(a, b)` of a call over four lines."""
    return _INSIDE.sub(lambda match: match["last"] or "", " ".join(text.split()))


class Overlap(TargetError):  # noqa: N818 - a result, named for what it says
    """Two edits are of the same characters."""


class Source:
    """A Python file that can be edited.

    Args:
        file: its path.
        text: its text.

    Raises:
        TargetError: it is no Python.
    """

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        try:
            module = cst.parse_module(text)
        except cst.ParserSyntaxError as error:
            raise TargetError(
                f"{file} is not Python that can be edited: {error.message.partition(chr(10))[0]}",
                file=file,
                line=error.raw_line,
            ) from error
        self._wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self._spans = self._wrapper.resolve(ByteSpanPositionProvider)
        self._parents = self._wrapper.resolve(ParentNodeProvider)

    @property
    def module(self) -> cst.Module:
        """Its syntax tree."""
        return self._wrapper.module

    @cached_property
    def _data(self) -> bytes:
        return self.text.encode()

    @cached_property
    def _lines(self) -> list[int]:
        """The byte that each line begins with."""
        starts = [0]
        for line in self._data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def _expressions(self) -> Mapping[tuple[int, int], cst.BaseExpression]:
        """Expressions by the bytes that they take; of several the outermost."""
        nodes: dict[tuple[int, int], cst.BaseExpression] = {}
        for node, span in self._spans.items():
            if isinstance(node, cst.BaseExpression):
                key = (span.start, span.start + span.length)
                before = nodes.get(key)
                if before is None or self._is_inside(before, node):
                    nodes[key] = node
        return nodes

    def _is_inside(self, inner: cst.CSTNode, outer: cst.CSTNode) -> bool:
        at: cst.CSTNode | None = inner
        while at is not None:
            if at is outer:
                return True
            at = self._parents.get(at)
        return False

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node that another is a part of; None for the module."""
        return self._parents.get(node)

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """What a node is in, from the inside out."""
        at = self._parents.get(node)
        while at is not None:
            yield at
            at = self._parents.get(at)

    def nodes(self) -> Iterator[cst.CSTNode]:
        """All nodes that have a place."""
        return iter(self._spans)

    def expression(self, span: Span) -> cst.BaseExpression | None:
        """The expression that takes just these characters; None where there is none."""
        if not (0 < span.line < len(self._lines) and 0 < span.end_line < len(self._lines)):
            return None
        start = self._lines[span.line - 1] + span.column
        return self._expressions.get((start, self._lines[span.end_line - 1] + span.end_column))

    def extent(self, node: cst.CSTNode) -> tuple[int, int]:
        """The characters of the text that a node takes, without the parentheses around it."""
        span = self._spans[node]
        return self._character(span.start), self._character(span.start + span.length)

    def _character(self, byte: int) -> int:
        """The character that begins with a byte."""
        if self.text.isascii():
            return byte
        line = bisect_right(self._lines, byte) - 1
        return self._characters[line] + len(self._data[self._lines[line] : byte].decode())

    @cached_property
    def _characters(self) -> list[int]:
        """The character that each line begins with."""
        starts = [0]
        for first, behind in pairwise(self._lines):
            starts.append(starts[-1] + len(self._data[first:behind].decode()))
        return starts

    def whole(self, node: cst.BaseExpression) -> tuple[int, int]:
        """The characters that an expression takes, with the parentheses around it."""
        start, end = self.extent(node)
        if not node.lpar:
            return start, end
        # The place of a tuple is that of what is in its parentheses; of an empty one theirs.
        inside = 1 if isinstance(node, cst.Tuple) and not node.elements else 0
        for _ in node.lpar:
            start = self.text.rindex("(", 0, start + inside)
            end = self.text.index(")", end - inside) + 1
            inside = 0
        return start, end

    def written(self, node: cst.CSTNode) -> str:
        """The text of a node, as it is written."""
        span = self._spans[node]
        return self._data[span.start : span.start + span.length].decode()

    def on_one_line(self, node: cst.CSTNode) -> str:
        """The text of a node as it reads on one line, to be shown."""
        return one_line(self.written(node))

    def whole_line(self, node: cst.BaseExpression, value: str) -> tuple[int, int] | None:
        """The lines of ``x = node`` where ``node`` is to become ``x``; None where that is other.

        A statement that is all of its block stays, for a block has to have one.

        Args:
            node: the expression.
            value: what is to stand in its place.
        """
        statement = self.parent(node)
        line = None if statement is None else self.parent(statement)
        if not isinstance(statement, cst.Assign) or not isinstance(line, cst.SimpleStatementLine):
            return None
        targets = [self.written(target.target) for target in statement.targets]
        block = self.parent(line)
        siblings = getattr(block, "body", ())
        if targets != [value] or len(line.body) != 1 or len(siblings) < 2:
            return None
        start, end = self.extent(statement)
        begin = self.text.rfind("\n", 0, start) + 1
        after = self.text.find("\n", end)
        return begin, len(self.text) if after < 0 else after + 1

    def line(self, node: cst.CSTNode) -> int:
        """The line that a node begins in, counted from 1."""
        return self._data.count(b"\n", 0, self._spans[node].start) + 1

    def location(self, node: cst.CSTNode) -> SourceLocation:
        """Where a node begins, with the byte of its line, which tells it from others there."""
        line = self.line(node)
        return SourceLocation(self.file, line, self._spans[node].start - self._lines[line - 1])

    @cached_property
    def quote(self) -> str:
        """The quotation mark that the file has more of."""
        return "'" if self.text.count("'") > self.text.count('"') else '"'


def read_source(file: str) -> Source:
    """The source of a file.

    Raises:
        TargetError: it can't be read, or is no Python.
    """
    return Source(file, read_text(file, "source", newline=""))


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """A text with some of its characters replaced.

    Insertions at one place stand in the order in which they are given.

    Raises:
        Overlap: two replace the same characters.
    """
    parts: list[str] = []
    at = 0
    for splice in sorted(splices, key=lambda splice: (splice.start, splice.end)):
        if splice.start < at:
            raise Overlap("Two edits change the same expression.")
        parts += [text[at : splice.start], splice.text]
        at = splice.end
    return "".join([*parts, text[at:]])


def last_name(node: cst.BaseExpression) -> str:
    """The name that ends what is named: `jit` of `jax.jit`; empty for any other expression."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""
