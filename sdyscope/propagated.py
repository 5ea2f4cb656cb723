"""What a partitioner's propagation decided, value by value, beside the lowered module.

Values are those of the lowered module's op graph: result ``result`` of node ``op``, block arguments
included. A value that the compiler folded or merged away on its way to the partitioner is listed
with its fate, never left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sdyscope.graph import OpGraph, Sharding
from sdyscope.mesh import AxisRef
from sdyscope.placement import Placement
from sdyscope.program import Partitioner
from sdyscope.propagation import EdgeNodeType, OriginSharding

ValueId: TypeAlias = tuple[int, int]
"""(node in the lowered graph, which of its results)."""

Fate: TypeAlias = Literal["kept", "merged", "folded", "not partitioned"]
"""``kept``: the partitioner has this value; ``merged``: it has one value for this and others;
``folded``: it is gone, as constants and what is computed from them are; ``not partitioned``: it has
no sharding by nature (a token, a value inside a reduction's body)."""

Exactness: TypeAlias = Literal["exact", "approximate"]
"""``exact``: by a recipe whose result a test compares with XLA's own dump, or the dump itself."""


@dataclass(frozen=True, slots=True)
class PropagatedValue:
    """One value of the lowered module after propagation.

    Attributes:
        id: which value.
        fate: what became of it on the way to the partitioner.
        sharding: what the partitioner decided; None where it has no such value, or left it
            without a sharding (which is replicated).
        placement: where that puts every block; None likewise, or where it has no placement.
        origins: for each axis, the user's annotations that it comes from (Shardy only).
        node: the value's producer in the propagated graph; None where the value is gone.
        result: which of its results.
        merged_with: other values of the lowered module that became the same one.
    """

    id: ValueId
    fate: Fate
    sharding: Sharding | None = None
    placement: Placement | None = None
    origins: tuple[tuple[AxisRef, OriginSharding], ...] = ()
    node: int | None = None
    result: int = 0
    merged_with: tuple[ValueId, ...] = ()


@dataclass(frozen=True, slots=True)
class PropagationStep:
    """One move of one axis: in step ``number``, from a value to others, through an op.

    Attributes:
        number: Shardy's number of the step, from 0.
        axis: the axis or sub-axis that moved.
        op: node in the propagated graph that it moved through.
        source: operand or result that it came from, and which.
        targets: operands and results that it went to.
    """

    number: int
    axis: AxisRef
    op: int
    source: tuple[EdgeNodeType, int]
    targets: tuple[tuple[EdgeNodeType, int], ...]


@dataclass(frozen=True)
class Propagated:
    """The propagation of one module under one partitioner.

    Attributes:
        partitioner: whose.
        exactness: whether this is what XLA decides, proven by a test, or an approximation.
        source: what it was taken from, in words.
        graph: op graph of the module after propagation, as the partitioner has it.
        values: every value of the lowered module.
        steps: what moved when (Shardy only), in order.
        counts: how many values have each fate.
        notes: what else is worth knowing, one sentence each.
    """

    partitioner: Partitioner
    exactness: Exactness
    source: str
    graph: OpGraph
    values: Mapping[ValueId, PropagatedValue]
    steps: tuple[PropagationStep, ...] = ()
    counts: Mapping[Fate, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
