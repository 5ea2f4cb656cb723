"""What rules of lint see, as facts; ``words.lint`` makes the sentences of them.

Where a fact is about a tensor, ``sharded`` is that tensor as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from sdyscope.facts.origins import OriginAnnotation
from sdyscope.facts.over_time import Phase
from sdyscope.facts.program import Partitioner
from sdyscope.facts.sharded import Sharded
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.hlo import Shape
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.source import SourceLocation

# --- Arguments and results ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnderSharded:
    """A tensor is not sharded over axes that others are sharded over, though dimensions divide.

    Attributes:
        group: the top-level argument that it belongs to.
        missing: the axes, each with a dimension that it divides.
        shares: the parts of the group's bytes that are on each; empty where the batch is on them.
        saves: bytes that a device would hold less.
        alike: how many tensors this goes for as well: its optimizer state, or others of the group.
        sharded: the tensor.
    """

    group: str
    missing: tuple[tuple[str, int], ...]
    shares: tuple[float, ...]
    saves: int
    alike: int
    sharded: Sharded


@dataclass(frozen=True, slots=True)
class StateDiffers:
    """Optimizer state has another sharding than its parameter, which is ``wanted``."""

    parameter: str
    wanted: Sharded
    sharded: Sharded


NextValueRelation: TypeAlias = Literal["next value", "gradient", "path", "type"]
"""What a result is to an argument; ``path`` and ``type``: it has that of it, and may be its next
value."""


@dataclass(frozen=True, slots=True)
class NextValueDiffers:
    """A result has another sharding than the argument whose next value, or gradient, it is."""

    result: str
    wanted: Sharded
    sharded: Sharded
    relation: NextValueRelation


@dataclass(frozen=True, slots=True)
class NextValueHeld:
    """Tensors of an argument and their next values are held at once, of so many bytes.

    ``result`` may be the next value, by its shape and type; it is empty where paths say which is.
    ``memory`` is the kind that both are in, empty of the device's own.
    """

    group: str
    tensors: int
    result: str
    bytes: int
    memory: str = ""


@dataclass(frozen=True, slots=True)
class BatchWhole:
    """A batch is not sharded over a data axis of this size."""

    axis: str
    size: int
    sharded: Sharded


# --- Axes and their links -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnusedAxis:
    """No sharding names a mesh axis of this size."""

    axis: str
    size: int


@dataclass(frozen=True, slots=True)
class SizeOneAxis:
    """A sharding, and those of this many more tensors, name a mesh axis of size 1."""

    axis: str
    more: int


@dataclass(frozen=True, slots=True)
class SlowOrder:
    """Another order of the mesh's axes would take this share of the time."""

    axes: tuple[str, ...]
    best: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Most of what a device sends in a step goes over one axis.

    Its slowest links, called ``link``, are that much slower than those of the fastest axis.
    """

    axis: str
    sent: int
    total: int
    link: str
    fastest: str
    factor: float


# --- Constraints ----------------------------------------------------------------------------------


Twice: TypeAlias = Literal["moved", "chained", "same value"]
"""``moved``: a second constraint takes what a first makes, and nothing else does; ``chained``: it
does, and others do; ``same value``: both take one value."""


@dataclass(frozen=True, slots=True)
class ConstrainedTwice:
    """A value is constrained twice: ``wanted`` is what the other constraint says, on that line.

    ``is_cut``: each device has what it needs.
    """

    how: Twice
    is_cut: bool
    source: SourceLocation | None
    wanted: Sharded
    sharded: Sharded


@dataclass(frozen=True, slots=True)
class Overridden:
    """A constraint did not hold, by a partitioner's decision.

    It is a value inside, or returned as ``result``, perhaps since its dimensions do not divide.
    """

    by: Partitioner | None
    result: str
    is_padded: bool
    wanted: Sharded
    sharded: Sharded


# --- What is sent ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sending:
    """What collectives of one kind send over the same axes.

    Attributes:
        kind: what they do.
        axes: the mesh axes; None where no set of axes has their groups.
        mesh: the mesh; None where none is named.
        sent: bytes that a device sends for them in a step.
        times: how often a step runs them.
        is_unknown: whether they are in a loop that runs an unknown number of times.
    """

    kind: CollectiveKind
    axes: tuple[AxisRef, ...] | None
    mesh: Mesh | None
    sent: int
    times: int
    is_unknown: bool = False


Side: TypeAlias = Literal["operand", "result"]
"""Of a collective."""

SIDES: Final[tuple[Side, ...]] = get_args(Side)


@dataclass(frozen=True, slots=True)
class LayoutCopied:
    """A tensor is copied into another layout for collectives.

    Attributes:
        sending: the collectives.
        sides: what is copied of them.
        bytes: bytes that a device copies in a step.
        share: what part that is of all that it reads and writes.
        dimension: the dimension that they work along; None where there is none.
        outermost: the dimension that is outermost in the ops around them.
        is_divided: whether that divides by the devices that work together.
        is_contractible: whether the op that takes the result may contract the dimension.
    """

    sending: Sending
    sides: tuple[Side, ...]
    bytes: int
    share: float
    dimension: int | None
    outermost: int
    is_divided: bool
    is_contractible: bool


@dataclass(frozen=True, slots=True)
class ValueName:
    """A value by its name, and whether it is the carry of a loop that begins with what has that."""

    name: str
    is_carried: bool


@dataclass(frozen=True, slots=True)
class CallGathers:
    """An operand of a custom call of this target is gathered for it, of this size in bytes."""

    target: str
    sending: Sending
    bytes: int


@dataclass(frozen=True, slots=True)
class CallTakesPieces:
    """A custom call without a sharding rule takes an operand that is in pieces."""

    target: str
    operand: ValueName
    sharded: Sharded


@dataclass(frozen=True, slots=True)
class CallbackGathers:
    """A callback to the host takes an operand and others, of which so many bytes are gathered."""

    operand: ValueName
    bytes: int


@dataclass(frozen=True, slots=True)
class GatheredInLoop:
    """One value, of this many bytes, is gathered in each iteration; sent is what need not be."""

    sending: Sending
    bytes: int


@dataclass(frozen=True, slots=True)
class BatchInStep:
    """A loop over a batch goes on until it is done for the examples of all devices."""

    sending: Sending


@dataclass(frozen=True, slots=True)
class ScannedSharded:
    """A loop takes elements of a sharded dimension one by one, or writes them."""

    dim: int
    size: int
    is_read: bool
    sharded: Sharded


@dataclass(frozen=True, slots=True)
class SlicesCrossed:
    """Collectives in a loop cross slices."""

    sending: Sending


@dataclass(frozen=True, slots=True)
class ParameterGathered:
    """A parameter is gathered over axes that the batch is not sharded over.

    ``passes``: where, of a program that is differentiated.
    """

    sending: Sending
    passes: tuple[Phase, ...]
    sharded: Sharded


@dataclass(frozen=True, slots=True)
class BatchLost:
    """A product of this shape is summed over axes of the batch, which annotations shard it on."""

    sending: Sending
    axes: tuple[str, ...]
    shape: Shape
    causes: tuple[OriginAnnotation, ...]


@dataclass(frozen=True, slots=True)
class ActivationGathered:
    """Activations of one shape are gathered again and again.

    Attributes:
        sending: what they send.
        scopes: in how many scopes, numbers in their names left out.
        share: what part of all that a device sends.
        cause: what shards most of their bytes; None where that is not known of any.
        others: how many more annotations shard the rest.
        explained: how many gathers a step that is known of.
        asking: the constraint that itself asks for most of their bytes; None where ops do.
    """

    sending: Sending
    scopes: int
    share: float
    cause: OriginAnnotation | None
    others: int
    explained: int
    asking: OriginAnnotation | None = None


@dataclass(frozen=True, slots=True)
class ReshapeNotSplit:
    """A reshape can't keep how a dimension is sharded.

    Attributes:
        sending: what is sent for it.
        before: the shape that it takes.
        after: the shape that it makes.
        dim: the dimension of ``before`` that is sharded.
        axes: the mesh axes that it is on.
        shards: in how many blocks it is.
        first: the first of the dimensions that it is joined with, itself where it is split.
        parts: the sizes of the dimensions that it, or what it is joined with, is made into.
        together: the axes of both that ``first`` alone could be on; empty where it does not divide.
    """

    sending: Sending
    before: tuple[int, ...]
    after: tuple[int, ...]
    dim: int
    axes: tuple[str, ...]
    shards: int
    first: int
    parts: tuple[int, ...]
    together: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpNotSplit:
    """XLA gathers what an op takes that could work on blocks.

    Attributes:
        sending: what is sent for it.
        op: the op.
        shape: of what it takes.
        dims: the dimensions that are gathered.
        mixes: whether the op mixes what is along one of them.
        kept: of ``top_k`` along a dimension that is sharded, how many elements of a row the blocks
            give together.
    """

    sending: Sending
    op: str
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    mixes: bool
    kept: int


@dataclass(frozen=True, slots=True)
class WindowNotSplit:
    """XLA gathers a tensor of which an op reads or writes a window.

    Attributes:
        sending: what is sent for it.
        op: the op, as StableHLO calls it.
        shape: of the tensor.
        dim: the dimension along which the window is cut out and the tensor sharded.
        size: of the window along it.
        place: the number of the dimension without those that the op is mapped over.
    """

    sending: Sending
    op: str
    shape: tuple[int, ...]
    dim: int
    size: int
    place: int


@dataclass(frozen=True, slots=True)
class SummedInLoop:
    """Sums in each iteration of a loop that only adds them up.

    Attributes:
        sending: what they send.
        tensors: how many tensors are summed.
        by: who sums: the partitioner, the program in a shard_map, or its backward pass in one.
        of: what the partitioner sums: gradients that the loop's body takes, values, or what the
            backward pass of a loop adds up.
        loop: the loop's line.
    """

    sending: Sending
    tensors: int
    by: Literal["partitioner", "program", "backward"] = "partitioner"
    of: Literal["gradients", "values", "backward loop"] = "gradients"
    loop: SourceLocation | None = None


WastedKind: TypeAlias = Literal[
    "reduced twice", "reduced to be sliced", "gathered to be sliced", "reduced in a loop"
]
"""``reduced twice``: a sum of what does not differ along the axes, which multiplies it;
``reduced to be sliced``: a sum of which a device keeps a slice; ``gathered to be sliced``: a gather
likewise; ``reduced in a loop``: a sum in each iteration of what the loop adds up."""


@dataclass(frozen=True, slots=True)
class Wasted:
    """A collective whose work is done already, or again, or thrown away.

    Attributes:
        kind: what is wrong.
        op: its node in the op graph of the lowered module.
        other: the node of the first sum, of the slice, or of the loop.
        axes: the mesh axes.
        sent: bytes that a device sends in a step and need not.
        times: how often a step runs it.
        dimension: the dimension that is sliced; None for none.
        divided: whether what is summed twice is divided by the number of devices again.
        source: its line.
        scope: its scope.
        devices: how many devices there are along the axes.
        first: the line of the first sum, or of the loop.
        backward: whether it is in the backward pass.
    """

    kind: WastedKind
    op: int
    other: int
    axes: tuple[str, ...]
    sent: int
    times: int = 1
    dimension: int | None = None
    divided: bool = False
    source: SourceLocation | None = None
    scope: str = ""
    devices: int = 1
    first: SourceLocation | None = None
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Replicating:
    """XLA can only reshard a tensor by replicating it: logged of so many ops, or predicted, of 0.

    A sharding that can't be read is as XLA writes it.
    """

    wanted: Sharded | str
    sharded: Sharded | str
    ops: int


# --- Random numbers and partial sums --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RandomInHalves:
    """This many sharded random words are drawn with ``jax_threefry_partitionable`` off."""

    words: int
    sharded: Sharded


@dataclass(frozen=True, slots=True)
class RandomReplicated:
    """Each device draws this many sharded random numbers, and keeps its own."""

    numbers: int
    sharded: Sharded


@dataclass(frozen=True, slots=True)
class RandomRepeats:
    """Devices along these axes draw the same random numbers for other blocks of data."""

    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutputDiffers:
    """An output of a ``shard_map`` differs along an axis that its spec leaves out."""

    output: int
    axis: str


@dataclass(frozen=True, slots=True)
class NeverReduced:
    """A tensor is unreduced over an axis that nothing reduces over; the text says its sharding."""

    axis: str
    text: str


# --- Modules and mappings -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FellBack:
    """The compiler ran another partitioner, for this reason; what to do about it."""

    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class LogicalUnused:
    """Mappings have a logical axis that no tensor has; these are all that tensors have."""

    axis: str
    mappings: tuple[str, ...]
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogicalCollide:
    """Mappings put several of a tensor's dimensions on one mesh axis."""

    tensor: str
    mappings: tuple[str, ...]
    axis: str
    dims: tuple[str, ...]
    logical: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogicalWhole:
    """A mapping maps none of the logical axes of a parameter."""

    tensor: str
    mapping: str
    logical: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogicalIndivisible:
    """A dimension does not divide by the mesh axes, with their sizes, that it is mapped to.

    ``fitting``: the mappings under which it does.
    """

    tensor: str
    mappings: tuple[str, ...]
    dim: str
    size: int
    axes: tuple[tuple[str, int], ...]
    fitting: tuple[str, ...]


HeldFact: TypeAlias = (
    UnderSharded | StateDiffers | NextValueDiffers | NextValueHeld | BatchWhole | ConstrainedTwice
)
AxisFact: TypeAlias = UnusedAxis | SizeOneAxis | SlowOrder | SlowLink | Overridden
SentFact: TypeAlias = (
    LayoutCopied
    | CallGathers
    | CallTakesPieces
    | CallbackGathers
    | GatheredInLoop
    | BatchInStep
    | ScannedSharded
    | SlicesCrossed
    | ParameterGathered
    | BatchLost
    | ActivationGathered
    | ReshapeNotSplit
    | OpNotSplit
    | WindowNotSplit
    | SummedInLoop
    | Wasted
    | Replicating
)
ValueFact: TypeAlias = (
    RandomInHalves | RandomReplicated | RandomRepeats | OutputDiffers | NeverReduced
)
MappingFact: TypeAlias = (
    FellBack | LogicalUnused | LogicalCollide | LogicalWhole | LogicalIndivisible
)
LintFact: TypeAlias = HeldFact | AxisFact | SentFact | ValueFact | MappingFact
"""What rules of lint may see."""
