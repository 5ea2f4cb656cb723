"""What two propagations differ in, by where it begins."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.facts.propagated import Propagated
from sdyscope.staged import PARTITIONERS
from sdyscope.values.source import SourceLocation

__all__ = ["AFTER", "BEFORE", "Beginning", "DifferingValue", "Input", "PropagatedDiff"]

#: The sides of a comparison of one program with itself, its annotations changed.
BEFORE, AFTER = "before", "after"


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
    propagation_a: Propagated
    propagation_b: Propagated

    @property
    def under_a(self) -> str:
        """`under shardy`, `in before.mlir`, `before`."""
        return _under(self.a)

    @property
    def under_b(self) -> str:
        """`under gspmd`, `in after.mlir`, `after`."""
        return _under(self.b)


def _under(label: str) -> str:
    if label in (BEFORE, AFTER):
        return label
    return f"{'under' if label in PARTITIONERS else 'in'} {label}"
