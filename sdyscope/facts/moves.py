"""How axes moved from value to value, where they began, and what stopped them, as facts.

``words.propagation`` makes the sentences of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.annotations import Annotation
from sdyscope.graph import Op, Sharding, ValueId
from sdyscope.values.mesh import AxisRef
from sdyscope.values.propagation_edges import EdgeNodeType, OriginSharding
from sdyscope.values.sharding_rule import FactorType
from sdyscope.values.source import SourceLocation

# --- Tensors of an op -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpTensor:
    """An operand or result of an op.

    Attributes:
        role: which of the two.
        index: its number.
        op: the op's kind.
        count: how many results the op has, or how many operands its sharding rule has; 0 without a
            rule.
    """

    role: EdgeNodeType
    index: int
    op: str
    count: int


@dataclass(frozen=True, slots=True)
class EdgeTensor:
    """A value on one side of a data flow edge, which Shardy puts between regions.

    Attributes:
        role: `operand` before the edge, `result` after it.
        index: its number.
    """

    role: EdgeNodeType
    index: int


@dataclass(frozen=True, slots=True)
class ReturnedTensor:
    """What main returns.

    Attributes:
        name: the result's name; empty for the value that is returned.
    """

    name: str


@dataclass(frozen=True, slots=True)
class FlowingTensor:
    """A value that is another one on the other side of a boundary.

    Attributes:
        is_source: whether it becomes that one; otherwise that one becomes it.
    """

    is_source: bool


TensorPlace: TypeAlias = OpTensor | EdgeTensor | ReturnedTensor | FlowingTensor


@dataclass(frozen=True, slots=True)
class TensorDim:
    """A dimension of a tensor of an op.

    Attributes:
        dimension: the dimension; None for the tensor itself.
        tensor: the tensor.
    """

    dimension: int | None
    tensor: TensorPlace


# --- What allowed a move --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of an op's sharding rule.

    Attributes:
        index: its number.
        size: its size; 0 where the rule does not say.
        type: what a partitioner must do when it is sharded.
    """

    index: int
    size: int
    type: FactorType


@dataclass(frozen=True, slots=True)
class ByRule:
    """An op's sharding rule says that two dimensions are one.

    Attributes:
        source: the dimension that the axis came from.
        target: the one that it went to.
        factor: the factor that both have; None where there is no such rule.
    """

    source: TensorDim
    target: TensorDim
    factor: Factor | None


@dataclass(frozen=True, slots=True)
class ByDataFlow:
    """Two values on either side of a boundary are sharded alike.

    Attributes:
        op: kind of the op whose boundary it is.
    """

    op: str


@dataclass(frozen=True, slots=True)
class ByGroup:
    """Two values are in one sharding group."""


@dataclass(frozen=True, slots=True)
class ByConstraint:
    """A constraint is applied to the value that it constrains."""


Allowed: TypeAlias = ByRule | ByDataFlow | ByGroup | ByConstraint
"""What allowed an axis to move."""

# --- Where an axis begins -------------------------------------------------------------------------

BeginningKind: TypeAlias = Literal[
    "argument", "result", "constraint", "type", "shard_map input", "shard_map output", "op"
]


@dataclass(frozen=True, slots=True)
class AnnotatedDim:
    """An annotation, as far as it is about one dimension.

    Attributes:
        kind: what is annotated.
        name: its pytree path or scope.
        sharding: what is written; None where it is not known.
        dimension: the dimension; None for the annotation as a whole.
        mapped: the function of the `shard_map` that it is on the boundary of, where that is known.
    """

    kind: BeginningKind
    name: str
    sharding: Sharding | None
    dimension: int | None
    mapped: str = ""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The annotation that an axis comes from.

    Attributes:
        kind: what the user annotated.
        name: its pytree path or scope.
        sharding: what is written there; None where it is not known.
        dimension: the annotated dimension; None when it has the axis no longer.
        priority: the priority of that dimension; None is Shardy's default, 0.
        source: the source line, where one is known.
        annotation: the annotation in the lowered module, where it is known.
        origin: what Shardy calls it, where it says.
    """

    __document__ = (
        *("kind", "name", "sharding", "dimension", "priority", "source", "origin", "mapped"),
    )

    kind: BeginningKind
    name: str
    sharding: Sharding | None
    dimension: int | None
    priority: int | None
    source: SourceLocation | None
    annotation: Annotation | None
    origin: OriginSharding | None = None

    @property
    def written(self) -> AnnotatedDim:
        """The annotation alone."""
        return AnnotatedDim(self.kind, self.name, self.sharding, self.dimension, self.mapped)

    @property
    def mapped(self) -> str:
        """The function of the `shard_map` that it is on the boundary of, where that is known."""
        return "" if self.annotation is None else self.annotation.mapped


# --- A way from annotation to value ---------------------------------------------------------------

Direction: TypeAlias = Literal["forward", "backward", "sideways", "data flow", "group"]
"""``forward``: operand to result; ``backward``: result to operand; ``sideways``: between operands
or between results; ``data flow``: the same value across a region or function boundary; ``group``:
between values of one sharding group."""


@dataclass(frozen=True, slots=True)
class Move:
    """One move of an axis, from one value to the next.

    Attributes:
        step: Shardy's number of the step; None when a rule moved it that no step stands for.
        axis: the axis or sub-axis that moved.
        through: the op, of the lowered module where it is known.
        direction: which way it went.
        rule: what allowed it.
        dimension: the dimension that it then sharded; None when it has it no longer.
        value: the value that it came to, in the propagated graph.
        lowered: that value in the lowered module; None where it has none of its own.
    """

    step: int | None
    axis: AxisRef
    through: Op
    direction: Direction
    rule: Allowed
    dimension: int | None
    value: ValueId
    lowered: ValueId | None = None

    __document__ = ("step", "axis", "through", "direction", "rule", "dimension")


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


# --- What stopped an axis -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoRule:
    """The op has no sharding rule."""


@dataclass(frozen=True, slots=True)
class NoFactor:
    """The op's rule has no dimension of the tensor for the factor.

    Attributes:
        factor: the factor that has the axis.
        tensor: the tensor without it.
    """

    factor: Factor
    tensor: TensorPlace


@dataclass(frozen=True, slots=True)
class Barrier:
    """A propagation barrier stands between the two."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing propagates along the factor.

    Attributes:
        factor: the factor.
    """

    factor: Factor


@dataclass(frozen=True, slots=True)
class SetAside:
    """An annotation keeps the axis from every dimension.

    Attributes:
        how: as what.
        axis: the axis.
        by: the annotation.
    """

    how: Literal["replicated", "unreduced"]
    axis: AxisRef
    by: AnnotatedDim


@dataclass(frozen=True, slots=True)
class Closed:
    """An annotation lets the dimension take no more axes.

    Attributes:
        dimension: the dimension.
        by: the annotation.
    """

    dimension: int
    by: AnnotatedDim


@dataclass(frozen=True, slots=True)
class Indivisible:
    """The factor does not divide into so many blocks.

    Attributes:
        factor: the factor.
        held: into how many blocks it is cut already.
        blocks: into how many the axis would cut each.
    """

    factor: Factor
    held: int
    blocks: int


@dataclass(frozen=True, slots=True)
class UsedByValue:
    """The value has the axis on another dimension.

    Attributes:
        dimension: that dimension.
        axis: the axis, or the part of it.
    """

    dimension: int
    axis: AxisRef


@dataclass(frozen=True, slots=True)
class InItsPlace:
    """The dimension is sharded on another axis where this one would go.

    Attributes:
        dimension: the dimension.
        axis: the axis that is there.
        other: the one that would go there.
    """

    dimension: int
    axis: AxisRef
    other: AxisRef


@dataclass(frozen=True, slots=True)
class UsedByOp:
    """Another tensor of the op has the axis for another factor, or another one for this factor.

    Attributes:
        place: the dimension of that tensor.
        axis: the axis that it has.
        is_same_factor: whether it is for the same factor.
    """

    place: TensorDim
    axis: AxisRef
    is_same_factor: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something else is in the way.

    Attributes:
        where: what, and where.
        beginning: the annotation that it comes from; None where none was found.
        step: Shardy's number of the step that brought it; None where none did.
        priorities: its priority and that of the axis, where it went first for that.
    """

    where: UsedByValue | InItsPlace | UsedByOp
    beginning: AnnotatedDim | None
    step: int | None
    priorities: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ByWayOfResult:
    """Operands follow a result, which can't have the axis.

    Attributes:
        tensor: the result.
        stop: what stopped it there.
    """

    tensor: TensorPlace
    stop: Stop


@dataclass(frozen=True, slots=True)
class NotSeen:
    """Nothing in the final shardings shows what stopped it."""


Stop: TypeAlias = (
    NoRule
    | NoFactor
    | Barrier
    | Blocked
    | SetAside
    | Closed
    | Indivisible
    | Conflict
    | ByWayOfResult
    | NotSeen
)
"""What stopped an axis."""

Reason: TypeAlias = Literal[
    "conflict",
    "priority",
    "closed",
    "replicated",
    "not divisible",
    "no factor",
    "blocked",
    "no rule",
    "barrier",
    "unknown",
]
"""What stopped an axis. ``conflict``: the value or the op already uses it, or others in its place;
``priority``: so, and those had a higher priority; ``closed``: an annotation lets the dimension take
no more axes; ``replicated``: an annotation keeps the axis from every dimension; ``not divisible``:
the size does not divide; ``no factor``: the op's rule has no dimension for it; ``blocked``: the
rule has one and nothing propagates along it; ``no rule``: the op has no rule; ``barrier``: a
propagation barrier; ``unknown``: nothing in the final shardings shows it."""


@dataclass(frozen=True, slots=True)
class Absence:
    """An axis that a value does not have although a tensor beside it has.

    Attributes:
        axis: the axis, or the part of it that is missing.
        dimension: the dimension that could have had it; None when the op's rule has none for it.
        at: the op between the two, of the lowered module where it is known.
        neighbour: the tensor that has the axis, and on which dimension.
        value: that tensor in the propagated graph; None for a result of the program.
        reason: what stopped it, in a word.
        stop: the same with all that is known of it.
        rival: the chain of what is in the way, where something is.
        repeated: how many more tensors beside the value were stopped by the same rule.
    """

    axis: AxisRef
    dimension: int | None
    at: Op
    neighbour: TensorDim
    value: ValueId | None
    reason: Reason
    stop: Stop
    rival: Chain | None = None
    repeated: int = 0

    __document__ = ("axis", "dimension", "at", "neighbour", "reason", "rival", "repeated")
