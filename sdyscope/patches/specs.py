"""Where a source says how something is sharded: the axes of each dimension, as they are written.

That is a call of ``PartitionSpec``, a tuple or list of axes (``('fsdp', None)``), or the last
arguments of a call (``shard(x, 'data', None)``). What an expression says that is no literal
(``BATCH``) is not known, and stays as it is written.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import libcst as cst

from sdyscope.patches.source import Source, Splice
from sdyscope.values.sharding import PartitionSpec, SpecEntry

#: What is said of a dimension by an expression that is no literal.
UNKNOWN: Final = "?"

Form: TypeAlias = Literal["spec", "tuple", "arguments"]
"""``spec``: a call whose arguments are the dimensions and nothing else; ``tuple``: a tuple or list;
``arguments``: a call whose last arguments they are."""

#: What a call of PartitionSpec is called where its name says nothing else.
_SPECS = frozenset({"P", "PS", "PartitionSpec", "Spec", "PartSpec"})


@dataclass(frozen=True, slots=True)
class SpecToken:
    """What is written for one dimension.

    Attributes:
        entry: what it says; ``UNKNOWN`` where it is no literal.
        text: as it is written.
        start: its first character in the source.
        end: behind its last.
    """

    entry: SpecEntry | Literal["?"]
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class SpecLiteral:
    """A place at which a sharding is written.

    Attributes:
        source: the file.
        form: what it is.
        callee: name of the function that is called; empty for a tuple.
        line: the line that it begins in.
        tokens: the dimensions.
        inside: the first character behind the opening bracket.
        until: the closing bracket, or the first argument that is no dimension.
        comma: whether a comma stands behind the last token.
        node: the call, tuple or list.
    """

    source: Source = field(repr=False, compare=False, hash=False)
    form: Form
    callee: str
    line: int
    tokens: tuple[SpecToken, ...]
    inside: int
    until: int
    comma: bool
    node: cst.BaseExpression = field(repr=False, compare=False, hash=False)

    def says(self, spec: PartitionSpec, rank: int) -> tuple[SpecToken, ...] | None:
        """The tokens that say a sharding of a tensor; None where it says another.

        Args:
            spec: the sharding.
            rank: how many dimensions the tensor has.
        """
        entries = padded(spec, rank)
        lengths: Sequence[int] = (len(self.tokens),)
        if self.form == "arguments":
            lengths = range(min(rank, len(self.tokens)), 0, -1)
        for length in lengths:
            if length > rank:
                continue
            first = len(self.tokens) - length
            tokens = self.tokens[first:]
            if _names_axes(self.tokens[:first]):
                break  # What names an axis is about a dimension, and so is all behind it.
            if any(entry is not None for entry in entries[length:]):
                continue
            known = [token.entry for token in tokens if token.entry != UNKNOWN]
            if self.form == "arguments" and not any(known) and any(entries):
                continue
            if all(
                token.entry in (UNKNOWN, entry)
                for token, entry in zip(tokens, entries, strict=False)
            ):
                return tokens
        return () if self.form == "arguments" and not self.tokens and not any(entries) else None

    def with_spec(
        self, before: PartitionSpec, after: PartitionSpec, rank: int
    ) -> tuple[Splice, ...] | None:
        """The edits after which it says another sharding; None where it does not say the first."""
        tokens = self.says(before, rank)
        if tokens is None:
            return None
        old, new = padded(before, rank), padded(after, rank)
        length = len(tokens)
        needed = max((at + 1 for at, entry in enumerate(new) if entry is not None), default=0)
        # Where dimensions are exchanged, so is what is written of them: `P(RULES["mlp"], None)`.
        exchanged = Counter(new[:length]) == Counter(old[:length])
        written = {entry: token.text for entry, token in zip(old, tokens, strict=False)}
        splices = [
            Splice(
                token.start,
                token.end,
                written[new[at]] if exchanged else spec_entry_text(new[at], self.source.quote),
            )
            for at, token in enumerate(tokens)
            if new[at] != old[at]
        ]
        if needed > length:
            more = [spec_entry_text(entry, self.source.quote) for entry in new[length:needed]]
            at = tokens[-1].end if tokens else self.inside
            follows = bool(tokens) or self.form == "arguments"
            splices.append(Splice(at, at, ", ".join(([""] if follows else []) + more)))
        if self.form == "tuple" and length == 0 and needed == 1 and not self.comma:
            splices.append(Splice(self.until, self.until, ","))
        return tuple(splices)


def padded(spec: PartitionSpec, rank: int) -> tuple[SpecEntry, ...]:
    """The entries of a sharding for each of so many dimensions."""
    return (*spec.entries, *(None,) * (rank - len(spec.entries)))


def spec_entry_text(entry: SpecEntry, quote: str = "'") -> str:
    """What is written for a dimension: ``None``, ``'data'``, ``('data', 'fsdp')``."""
    if isinstance(entry, tuple):
        return f"({', '.join(f'{quote}{axis}{quote}' for axis in entry)})"
    if isinstance(entry, str):
        return f"{quote}{entry}{quote}"
    return "None" if entry is None else "P.UNCONSTRAINED"


def spec_text(spec: PartitionSpec, name: str, quote: str = "'") -> str:
    """``P('data', None)``, as it is written in a source.

    Args:
        spec: the sharding.
        name: what the class is called there.
        quote: the quotation mark to use.
    """
    parts = [spec_entry_text(entry, quote) for entry in spec.entries]
    return f"{name}({', '.join(parts)})".replace("P.UNCONSTRAINED", f"{name}.UNCONSTRAINED")


def spec_literals(source: Source, axes: Collection[str]) -> Iterator[SpecLiteral]:
    """Every place of a source at which axes of a mesh are put on dimensions.

    A call that names no axis is one where another call of the same function does.

    Args:
        source: the file.
        axes: the names of the axes.
    """
    bare: list[SpecLiteral] = []
    callees: set[str] = set()
    for node in source.nodes():
        literal = None
        if isinstance(node, cst.Call):
            literal = _call(source, node, axes)
        elif isinstance(node, cst.Tuple | cst.List):
            literal = _tuple(source, node, axes)
        if literal is None:
            continue
        if literal.form == "arguments" and not _names_axes(literal.tokens):
            bare.append(literal)
            continue
        if literal.form == "arguments":
            callees.add(literal.callee)
        yield literal
    yield from (literal for literal in bare if literal.callee in callees)


def _tuple(source: Source, node: cst.Tuple | cst.List, axes: Collection[str]) -> SpecLiteral | None:
    tokens = _tokens(source, [element.value for element in node.elements], axes)
    if not _names_axes(tokens) or (isinstance(source.parent(node), cst.Arg) and not node.lpar):
        return None
    start, end = source.extent(node)
    # The place of a tuple is that of what is in its parentheses.
    bracket = 1 if isinstance(node, cst.List) else 0
    last = node.elements[-1]
    return SpecLiteral(
        source,
        "tuple",
        "",
        source.line(node),
        tokens,
        start + bracket,
        end - bracket,
        isinstance(last.comma, cst.Comma),
        node,
    )


def _call(source: Source, node: cst.Call, axes: Collection[str]) -> SpecLiteral | None:
    positional = []
    for argument in node.args:
        if argument.keyword is not None or argument.star:
            break
        positional.append(argument.value)
    callee = source.written(node.func)
    tokens = _tokens(source, positional, axes)
    is_spec = callee.rpartition(".")[2] in _SPECS and len(tokens) == len(node.args)
    if not is_spec:
        kept = len(positional)
        while kept and (
            tokens[kept - 1].entry != UNKNOWN
            or isinstance(positional[kept - 1], cst.Name | cst.Attribute)
        ):
            kept -= 1
        tokens = tokens[kept:]
    inside = source.text.index("(", source.extent(node.func)[1]) + 1
    if not is_spec and not tokens and positional:
        inside = source.whole(positional[-1])[1]
    return SpecLiteral(
        source,
        "spec" if is_spec else "arguments",
        callee,
        source.line(node),
        tokens,
        inside,
        source.extent(node)[1] - 1,
        False,
        node,
    )


def _tokens(
    source: Source, nodes: Sequence[cst.BaseExpression], axes: Collection[str]
) -> tuple[SpecToken, ...]:
    tokens = []
    for node in nodes:
        start, end = source.whole(node) if isinstance(node, cst.Tuple) else source.extent(node)
        tokens.append(SpecToken(written_entry(node, axes), source.text[start:end], start, end))
    return tuple(tokens)


def written_entry(node: cst.BaseExpression, axes: Collection[str]) -> SpecEntry | Literal["?"]:
    """What is written for a dimension; ``UNKNOWN`` where it is no literal.

    Args:
        node: what is written.
        axes: the names of the mesh's axes.
    """
    if isinstance(node, cst.Name) and node.value == "None":
        return None
    if isinstance(node, cst.SimpleString):
        value = ast.literal_eval(node.value)
        return value if value in axes else UNKNOWN
    if isinstance(node, cst.Tuple | cst.List) and node.elements:
        names = [written_entry(element.value, axes) for element in node.elements]
        if all(isinstance(name, str) and name != UNKNOWN for name in names):
            known = tuple(name for name in names if isinstance(name, str))
            return known if len(known) > 1 else known[0]
    return UNKNOWN


def _names_axes(tokens: Sequence[SpecToken]) -> bool:
    return any(token.entry not in (None, UNKNOWN) for token in tokens)
