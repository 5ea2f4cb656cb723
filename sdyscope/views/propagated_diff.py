"""What two propagations differ in, by where it begins: as a document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sdyscope.analysis.diff.propagated import (
    DifferentValue,
    Group,
    PropagatedSide,
    inputs,
    propagated_diff,
)
from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.facts.propagated import ValueId
from sdyscope.inspection import PARTITIONERS
from sdyscope.values.source import SourceLocation
from sdyscope.views.propagated import (
    Describer,
    PropagationDocument,
    propagation_document,
    static_shape,
)
from sdyscope.words.places import op_text, scope_of
from sdyscope.words.sharding import REPLICATED


@dataclass(frozen=True, slots=True)
class DifferingValue:
    """A value that is sharded differently.

    Attributes:
      name: pytree path, or scope without the program's own name.
      kind: the operation, or argument.
      ssa: its SSA name in the first module.
      shape: shape of the whole tensor.
      dtype: MLIR element type.
      bytes: bytes of the whole tensor.
      source: line of user code.
      a: its sharding on the first side, as a PartitionSpec where it can be one.
      b: its sharding on the second side.
      words_a: where that puts it, in words.
      words_b: where that puts it, in words.
      bytes_a: bytes that a device holds on the first side.
      bytes_b: bytes that a device holds on the second side.
    """

    name: str
    kind: str
    ssa: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int
    source: SourceLocation | None
    a: str
    b: str
    words_a: str
    words_b: str
    bytes_a: int
    bytes_b: int


@dataclass(frozen=True, slots=True)
class Input:
    """What a value is computed from.

    Attributes:
      name: pytree path, or scope without the program's own name.
      a: its sharding on the first side.
    """

    name: str
    a: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """Differences that begin at one value.

    Attributes:
      begins: the value, whose inputs are sharded alike.
      inputs: what it is computed from.
      values: how many values differ from here on, this one included.
      bytes: bytes of them all.
      bytes_a: bytes that a device holds of them on the first side.
      bytes_b: bytes that a device holds of them on the second side.
      follows: the others, in program order.
    """

    begins: DifferingValue
    inputs: tuple[Input, ...]
    values: int
    bytes: int
    bytes_a: int
    bytes_b: int
    follows: tuple[DifferingValue, ...]


@dataclass(frozen=True, slots=True)
class PropagatedDiff:
    """Two propagations.

    Attributes:
      name: what is compared: the program's name, or the first module's.
      a: what to call the first side.
      b: what to call the second side.
      same: whether every value that could be compared is sharded alike, and two programs have the
        same values.
      same_values: how many are.
      different_values: how many are not.
      only_a: how many values only the first of two programs has.
      only_b: how many values only the second has.
      not_comparable: how many values could not be compared, by reason.
      beginnings: the differences, by where they begin, the largest first.
      propagation_a: by whom the first side was propagated, and how much that is worth.
      propagation_b: the same of the second.
    """

    name: str
    a: str
    b: str
    same: bool
    same_values: int
    different_values: int
    only_a: int
    only_b: int
    not_comparable: dict[str, int]
    beginnings: tuple[Beginning, ...]
    propagation_a: PropagationDocument
    propagation_b: PropagationDocument

    @property
    def under_a(self) -> str:
        """`under shardy`, `in before.mlir`, `before`."""
        return _under(self.a)

    @property
    def under_b(self) -> str:
        """`under gspmd`, `in after.mlir`, `after`."""
        return _under(self.b)


#: The sides of a comparison of one program with itself, its annotations changed.
BEFORE, AFTER = "before", "after"


def _plain(reason: str) -> str:
    """`folded before`, where the sides of a comparison are called so."""
    return re.sub(rf"\bunder (?={BEFORE}|{AFTER})", "", reason)


def _under(label: str) -> str:
    if label in (BEFORE, AFTER):
        return label
    return f"{'under' if label in PARTITIONERS else 'in'} {label}"


def program(
    name: str,
    sides: tuple[PropagatedSide, PropagatedSide],
    describers: tuple[Describer, Describer],
    *,
    by_name: bool = False,
) -> PropagatedDiff:
    """Compares two propagations and makes the document of it.

    Args:
      name: what to call what is compared.
      sides: the propagations.
      describers: those of each side.
      by_name: the two are different programs.
    """
    found = propagated_diff(*sides, by_name=by_name)
    only_a = only_b = 0
    if by_name:
        pairs = value_pairs(sides[0].graph, sides[1].graph, by_name=True)
        only_a = sum(value not in pairs for value in sides[0].propagated.values)
        paired = set(pairs.values())
        only_b = sum(value not in paired for value in sides[1].propagated.values)
    made = Documents.of(sides, describers)
    return PropagatedDiff(
        name=name,
        a=found.label_a,
        b=found.label_b,
        same=found.is_same and not (only_a or only_b),
        same_values=found.same,
        different_values=found.different,
        only_a=only_a,
        only_b=only_b,
        not_comparable={_plain(why): count for why, count in found.not_comparable.items()},
        beginnings=tuple(map(made.beginning, found.groups)),
        propagation_a=propagation_document(sides[0].propagated),
        propagation_b=propagation_document(sides[1].propagated),
    )


@dataclass(frozen=True)
class Documents:
    """Makes documents of values that are sharded differently.

    Attributes:
      sides: the propagations.
      describers: those of each side.
    """

    sides: tuple[PropagatedSide, PropagatedSide]
    describers: tuple[Describer, Describer]

    @classmethod
    def of(
        cls, sides: tuple[PropagatedSide, PropagatedSide], describers: tuple[Describer, Describer]
    ) -> Documents:
        """For two sides; GSPMD names no axes, which then are those of the other side's mesh."""
        meshes = [describer.mesh for describer in describers]
        for describer, other in zip(describers, reversed(meshes), strict=True):
            describer.mesh = describer.mesh or other
        return cls(sides, describers)

    def beginning(self, group: Group) -> Beginning:
        """A place where differences begin, with all that follow."""
        return Beginning(
            self.value(group.begins),
            tuple(
                Input(self._name(node, name), words) for node, name, words in self._inputs(group)
            ),
            group.count,
            group.bytes,
            group.bytes_a,
            group.bytes_b,
            tuple(map(self.value, group.follows)),
        )

    def _inputs(self, group: Group) -> Iterator[tuple[int, str, str]]:
        before = inputs(self.sides[0].graph, group.begins.a)
        for (node, result), name in zip(before, group.inputs, strict=True):
            yield node, name, self._short(0, (node, result))

    def _name(self, node: int, name: str) -> str:
        op = self.sides[0].graph.ops[node]
        if op.is_argument:
            return name
        scope, primitive = scope_of(op)
        return f"{scope}/{primitive or op_text(op.kind)}".lstrip("/")

    def _short(self, side: int, value: ValueId) -> str:
        found = self.sides[side].propagated.values[value]
        type_ = self.sides[side].graph.ops[value[0]].types[value[1]]
        return self.describers[side].value(found, type_).short

    def value(self, found: DifferentValue) -> DifferingValue:
        """One value, with its sharding on both sides."""
        op = self.sides[0].graph.ops[found.a[0]]
        type_ = op.types[found.a[1]]
        documents = [
            describer.value(side.propagated.values[value], side.graph.ops[value[0]].types[value[1]])
            for side, describer, value in zip(
                self.sides, self.describers, (found.a, found.b), strict=True
            )
        ]
        words = [
            document.placement.words if document.placement else f"{REPLICATED} on every device"
            for document in documents
        ]
        return DifferingValue(
            self._name(op.id, found.value.name),
            op.kind,
            found.value.ssa,
            static_shape(type_),
            type_.dtype,
            found.bytes,
            op.source,
            documents[0].short,
            documents[1].short,
            words[0],
            words[1],
            found.bytes_a,
            found.bytes_b,
        )
