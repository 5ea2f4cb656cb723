"""What a chain is made of: the annotation that an axis comes from, and each of its moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.facts.moves import Allowed, Beginning
from sdyscope.facts.propagated import ValueId
from sdyscope.values.mesh import AxisRef
from sdyscope.values.source import SourceLocation

__all__ = ["Chain", "Direction", "Move"]

Direction: TypeAlias = Literal["forward", "backward", "sideways", "data flow", "group"]
"""``forward``: operand to result; ``backward``: result to operand; ``sideways``: between operands
or between results; ``data flow``: the same value across a region or function boundary; ``group``:
between values of one sharding group."""


@dataclass(frozen=True, slots=True)
class Move:
    """One move of an axis, from one value to the next.

    Attributes:
        number: Shardy's number of the step; None when a rule moved it that no step stands for.
        axis: the axis or sub-axis that moved.
        op: node in the propagated graph that it moved through.
        kind: that op's kind.
        scope: that op's scope.
        source: that op's source line.
        direction: which way it went.
        rule: what allowed it.
        value: the value that it came to, in the propagated graph.
        dimension: the dimension of that value which it shards; None when it has it no longer.
        lowered: that value in the lowered module; None where it has none of its own.
    """

    number: int | None
    axis: AxisRef
    op: int
    kind: str
    scope: str
    source: SourceLocation | None
    direction: Direction
    rule: Allowed
    value: tuple[int, int]
    dimension: int | None
    lowered: ValueId | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """Why a dimension of a value is sharded on an axis.

    Attributes:
        dimension: the dimension.
        axis: the axis, or the part of it that this chain is about.
        beginning: the annotation that it comes from; None when none was found.
        moves: from there to the value, in order; none where the value itself is annotated.
    """

    dimension: int
    axis: AxisRef
    beginning: Beginning | None
    moves: tuple[Move, ...]

    @property
    def is_explained(self) -> bool:
        """Whether it begins at an annotation."""
        return self.beginning is not None
