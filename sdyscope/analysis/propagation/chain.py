"""What a chain is made of: the annotation that an axis comes from, and each of its moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.annotations import Annotation
from sdyscope.facts.propagated import ValueId
from sdyscope.values.mesh import AxisRef
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.source import SourceLocation

__all__ = ["Beginning", "BeginningKind", "Chain", "Direction", "Move"]

Direction: TypeAlias = Literal["forward", "backward", "sideways", "data flow", "group"]
"""``forward``: operand to result; ``backward``: result to operand; ``sideways``: between operands
or between results; ``data flow``: the same value across a region or function boundary; ``group``:
between values of one sharding group."""

BeginningKind: TypeAlias = Literal[
    "argument", "result", "constraint", "shard_map input", "shard_map output", "op"
]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The annotation that an axis comes from.

    Attributes:
        kind: what the user annotated.
        name: its pytree path or scope.
        words: ``the annotation {"model"} on dim 1 of the argument params['w1']``.
        dimension: the annotated dimension; None when it has the axis no longer.
        priority: the priority of that dimension; None is Shardy's default, 0.
        source: the source line, where one is known.
        annotation: the annotation in the lowered module, where it is known.
        origin: what Shardy calls it, where it says.
    """

    kind: BeginningKind
    name: str
    words: str
    dimension: int | None
    priority: int | None
    source: SourceLocation | None
    annotation: Annotation | None
    origin: OriginSharding | None = None


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
        rule: what allowed it, in words.
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
    rule: str
    value: tuple[int, int]
    dimension: int | None
    lowered: ValueId | None = None

    @property
    def words(self) -> str:
        """``step 4: "data" goes forward through dot_general at m.py:7: dim 0 of ... is ...``."""
        number = "without a step" if self.number is None else f"step {self.number}"
        name = self.kind.rpartition(".")[2]
        where = f" at {self.source}" if self.source is not None else ""
        if self.direction == "group":
            return f"{number}: {self.axis} is shared: {self.rule}"
        if self.direction == "data flow":
            return f"{number}: {self.axis} crosses the boundary of {name}{where}: {self.rule}"
        way = f"goes {self.direction} through {name}{where}"
        return f"{number}: {self.axis} {way}: {self.rule}"


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

    @property
    def words(self) -> tuple[str, ...]:
        """The chain, a sentence a step: where it begins, then each move."""
        start = "an annotation that was not found"
        if self.beginning is not None:
            start = self.beginning.words
            if self.beginning.source is not None:
                start += f" at {self.beginning.source}"
        return (start, *(move.words for move in self.moves))
