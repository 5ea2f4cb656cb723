"""An expression whose operands' shardings JAX can't combine, and what it accepts instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec
from sdyscope.values.source import SourceLocation

_Type = TypeVar("_Type")


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The type of an array on Explicit axes.

    Attributes:
        shape: its shape.
        dtype: MLIR element type.
        spec: its sharding.
        mesh: the mesh that it is on.
    """

    shape: tuple[int, ...]
    dtype: str
    spec: PartitionSpec
    mesh: Mesh


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a refused expression is made of.

    Attributes:
        text: the operand, as it is written.
        type: its type.
    """

    text: str
    type: ArrayType


@dataclass(frozen=True, slots=True)
class Sent:
    """What a choice sends.

    Attributes:
        kind: the collective.
        axes: the mesh axes that it is over.
        bytes: bytes that a device sends.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What an expression can be instead; JAX has traced it.

    Attributes:
        text: the expression, edited.
        results: the types of what it makes.
        sent: its predicted collectives, most bytes first; None where there is no prediction.
        an_iteration: whether it has a loop that runs nobody knows how often, and counts once.
    """

    text: str
    results: tuple[ArrayType, ...]
    sent: tuple[Sent, ...] | None
    an_iteration: bool = False

    @property
    def bytes(self) -> int | None:
        """Bytes that a device sends; None where there is no prediction."""
        return None if self.sent is None else sum(row.bytes for row in self.sent)


@dataclass(frozen=True, slots=True)
class DifferingTypes(Generic[_Type]):
    """Two types that have to be equal, as JAX prints them or as they are read.

    Attributes:
        kind: of a carry, what goes in and what comes out; of branches, what two of them return.
        value: the carry, or the first branch.
        other: the other branch; empty of a carry.
        path: of a branch, where in its result; empty for all of it.
        first: the type of what goes in, or of the first branch's.
        second: the type of what comes out, or of the other branch's.
    """

    kind: Literal["carry", "branch"]
    value: str
    other: str
    path: str
    first: _Type
    second: _Type

    @property
    def function(self) -> str:
        """The branch whose type is ``first``; empty of a carry."""
        return self.value if self.other else ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An expression that JAX refuses for the shardings of its operands, or of what it carries.

    Attributes:
        text: the expression, as it is written.
        source: its line.
        operands: its operands.
        choices: what JAX accepts instead, fewest bytes first.
        differences: of a loop or of branches, the types that have to be equal.
    """

    text: str
    source: SourceLocation
    operands: tuple[Operand, ...]
    choices: tuple[Choice, ...]
    differences: tuple[DifferingTypes[ArrayType], ...] = ()
