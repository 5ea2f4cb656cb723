"""What two sides of a comparison are, what differs between them, and what was not compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sdyscope.annotations import Annotation
from sdyscope.facts.memory import GroupName, Held, HeldKind, MemoryPart
from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation
from sdyscope.facts.over_time import Phase
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import NamedValue, Propagated, ValueId
from sdyscope.facts.remarks import Remark
from sdyscope.facts.sharded import Sharded
from sdyscope.facts.traffic import CollectiveKind, Tally
from sdyscope.formatters import Displayed, Summarized, in_place
from sdyscope.graph import TensorType
from sdyscope.hardware.names import Hardware
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.source import SourceLocation

Across: TypeAlias = Literal["partitioners", "hardware", "programs", "annotations"]
"""One program under two partitioners, on two kinds of hardware or with other annotations, or two
programs."""

Change: TypeAlias = Literal["changed", "only in a", "only in b"]
"""That something is not the same, or that only one side has it."""

#: The sides of a comparison of one program with itself, its annotations changed.
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, slots=True)
class LoneMesh:
    """A mesh that only one side has.

    Attributes:
        label: what to call that side.
        mesh: the mesh; its text where it could not be read.
    """

    label: str
    mesh: Mesh | str


NotComparedReason: TypeAlias = Literal[
    "absent", "not partitioned", "folded", "no fixed shape", "no placement"
]
"""``absent``: the other module has no such value; ``not partitioned``: values of this kind have no
sharding; ``folded``: the compiler computed the value; ``no fixed shape``: it is no tensor of a
fixed shape; ``no placement``: nothing says where its sharding puts it."""


@dataclass(frozen=True, slots=True)
class NotComparedValues:
    """Values that could not be compared, for one reason.

    Attributes:
        reason: why.
        side: what the side is called that it is about; empty for both.
        values: how many there are.
    """

    reason: NotComparedReason
    side: str
    values: int


# --- lowered modules ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorSide:
    """A tensor on one side.

    Attributes:
        shape: shape of the whole tensor; null where it is dynamic.
        dtype: MLIR element type.
        source: line of user code.
        sharding: what is written on it.
        donated: an argument whose buffer a result may take.
        donated_to: the path of the result that takes it; empty where XLA chooses one.
        attributes: what else is written on an argument or result.
        annotation: the same in its module.
    """

    annotation: Annotation
    sharding: Sharded

    __document__ = in_place(
        annotation=("shape", "dtype", "source"),
        sharding=("sharding", "donated", "donated_to", "attributes"),
    )

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the whole tensor; None where it is dynamic."""
        return self.annotation.shape

    @property
    def dtype(self) -> str:
        """MLIR element type."""
        return self.annotation.dtype

    @property
    def source(self) -> SourceLocation | None:
        """Line of user code."""
        return self.annotation.source

    @property
    def donated(self) -> bool:
        """Whether it is an argument whose buffer a result may take."""
        return self.annotation.donated

    @property
    def donated_to(self) -> str:
        """The path of the result that takes it; empty where XLA chooses one."""
        return self.annotation.donated_to

    @property
    def attributes(self) -> tuple[str, ...]:
        """What else is written on an argument or result."""
        return self.annotation.attributes


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor that is not the same on both sides.

    Attributes:
        tensor: its path or scope.
        kind: what it is.
        change: what happened to it.
        what: which of type, placement, open dimensions, manual axes, memory, priorities,
            replicated axes, donation and other attributes changed.
        a: the tensor on the first side; None where only the second has it.
        b: the tensor on the second side; None where only the first has it.
    """

    tensor: str
    kind: str
    change: Change
    what: tuple[str, ...]
    a: TensorSide | None
    b: TensorSide | None

    @property
    def own(self) -> tuple[TensorSide, Literal["a", "b"]]:
        """The tensor on the first side that has it, and which that is."""
        if self.a is not None:
            return self.a, "a"
        assert self.b is not None
        return self.b, "b"


@dataclass(frozen=True)
class OpDifference:
    """Ops of one kind in one scope that are not the same on both sides.

    Attributes:
        scope: their scope, without the program's own name; empty for ops without one.
        kind: name of the operation, of a custom call with its target.
        count_a: how many the first side has.
        count_b: how many the second side has.
        types_a: result types that the first side has more ops with, and how many more.
        types_b: result types that the second side has more ops with.
        attributes_a: where their result types are the same, the attributes that the first side has
            more ops with, as ``permutation = (1, 0)``, and how many more.
            Where these are the same, too, what ops are computed from: ``operands = (x, y)``.
        attributes_b: attributes or operands that the second side has more ops with.
    """

    scope: str
    kind: str
    count_a: int
    count_b: int
    types_a: Mapping[str, int]
    types_b: Mapping[str, int]
    attributes_a: Mapping[str, int] = field(default_factory=dict)
    attributes_b: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many ops of the side that has more have no equal on the other, at least."""
        if not (self.types_a or self.types_b):
            return max(*self.attributes_a.values(), *self.attributes_b.values(), 0, 0)
        return max(sum(self.types_a.values()), sum(self.types_b.values()))


@dataclass(frozen=True, kw_only=True)
class LoweredDiff(Displayed):
    """Two modules.

    Attributes:
        name: what is compared: the program's name, or the first module's.
        across: what the two sides are.
        a: what to call the first side.
        b: what to call the second side.
        same: whether there is no difference.
        same_tensors: how many tensors are the same.
        not_compared: tensors with one text on both sides that can't be read or can't be.
        meshes: meshes that only one side has.
        tensors: the tensors that differ.
        ops_compared: whether ops and meshes were compared: not between partitioners, each of which
            has its own ops for constraints and ``shard_map``.
        ops: the ops that differ, the most first.
        left_out: how many constraints that JAX writes on its own for one partitioner alone were
            left out, by side.
        under: the partitioner that both programs were lowered under, where others were asked for,
            too.
        devices_reordered: whether the devices are in another order, which is a difference of its
            own: all else is compared by a device's position in its mesh.
        kernels_not_compared: how many kernels have another code on the second side, which may be
            because of the source lines in it.
        constants_not_compared: how many constants have no values in the module, as dumps and
            recorded runs leave out large ones.
        callbacks_not_compared: how many callbacks both have: what they call is known by a number of
            the process alone.
    """

    name: str
    across: Across
    a: str
    b: str
    same_tensors: int
    not_compared: tuple[str, ...] = ()
    meshes: tuple[LoneMesh, ...] = ()
    tensors: tuple[TensorDifference, ...] = ()
    ops_compared: bool = True
    ops: tuple[OpDifference, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    under: Partitioner | None = None
    devices_reordered: bool = False
    kernels_not_compared: int = 0
    constants_not_compared: int = 0
    callbacks_not_compared: int = 0

    __document__ = in_place(b=("b", "same"))

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        return self.is_alike and not self.devices_reordered

    @property
    def is_alike(self) -> bool:
        """Whether nothing differs but perhaps the order of devices."""
        return not (self.meshes or self.tensors or self.ops)

    @property
    def leaves_out(self) -> bool:
        """Whether something that may differ was not compared."""
        return bool(
            self.not_compared
            or self.kernels_not_compared
            or self.constants_not_compared
            or self.callbacks_not_compared
        )


# --- propagations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DifferingValue:
    """A value that is sharded differently.

    Attributes:
        value: its names, in the first module.
        a: its sharding on the first side.
        b: its sharding on the second side.
        other: which value of the second module it is.
        other_type: its type there.
        shape_b: its shape there; null where it is dynamic.
        dtype_b: its MLIR element type there.
    """

    value: NamedValue
    a: Sharded
    b: Sharded
    other: ValueId
    other_type: TensorType

    __document__ = ("value", "a", "b", "shape_b", "dtype_b")

    @property
    def shape_b(self) -> tuple[int, ...] | None:
        """Its shape on the second side; None where it is dynamic."""
        return self.other_type.static_shape

    @property
    def dtype_b(self) -> str:
        """Its MLIR element type on the second side."""
        return self.other_type.dtype

    @property
    def is_retyped(self) -> bool:
        """Whether it has another dtype or shape there."""
        return (self.shape_b, self.dtype_b) != (self.value.shape, self.value.dtype)


@dataclass(frozen=True, slots=True)
class Input:
    """What a value is computed from.

    Attributes:
        name: pytree path, or scope without the program's own name.
        sharding: its sharding on the first side.
    """

    name: str
    sharding: Sharded


@dataclass(frozen=True, slots=True)
class Divergence:
    """Differences that begin at one value.

    Attributes:
        begins: the value, whose inputs are sharded alike.
        inputs: what its op is computed from.
        values: how many values differ from here on, this one included.
        bytes: bytes of them all.
        bytes_a: bytes of them that a device holds on the first side.
        bytes_b: bytes of them that a device holds on the second side.
        follows: the others, in program order.
    """

    begins: DifferingValue
    inputs: tuple[Input, ...]
    follows: tuple[DifferingValue, ...]

    __document__ = ("begins", "inputs", "values", "bytes", "bytes_a", "bytes_b", "follows")

    @property
    def all_values(self) -> tuple[DifferingValue, ...]:
        """The value and the others."""
        return (self.begins, *self.follows)

    @property
    def values(self) -> int:
        """How many values differ from here on, the first included."""
        return 1 + len(self.follows)

    @property
    def bytes(self) -> int:
        """Bytes of all these tensors."""
        return sum(value.value.bytes or 0 for value in self.all_values)

    @property
    def bytes_a(self) -> int:
        """Bytes of them that a device holds on the first side."""
        return sum(value.a.bytes_per_device or 0 for value in self.all_values)

    @property
    def bytes_b(self) -> int:
        """Bytes of them that a device holds on the second side."""
        return sum(value.b.bytes_per_device or 0 for value in self.all_values)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PropagatedDiff(Summarized):
    """Two propagations.

    Attributes:
        name: what is compared: the program's name, or the first module's.
        across: what the two sides are.
        a: what to call the first side.
        b: what to call the second side.
        same: whether every value that could be compared is sharded alike, and two programs have
            the same values, of the same types, on devices in one order.
        same_values: how many are.
        different_values: how many are not.
        other_types: how many of both have another dtype or size in the second of two programs.
        only_a: how many values only the first of two programs has.
        only_b: how many values only the second has.
        not_compared: values of the first module that could not be compared, by reason; of two
            programs, of those that both have.
        beginnings: the differences, by where they begin, the largest tensors first.
        propagation_a: by whom the first side was propagated, and how much that is worth.
        propagation_b: the same of the second.
        devices_reordered: whether the devices of two programs are in another order.
    """

    name: str
    across: Across
    a: str
    b: str
    same_values: int
    other_types: int = 0
    only_a: int = 0
    only_b: int = 0
    not_compared: tuple[NotComparedValues, ...]
    beginnings: tuple[Divergence, ...]
    propagation_a: Propagated
    propagation_b: Propagated
    devices_reordered: bool = False

    __document__ = in_place(b=("b", "same"), same_values=("same_values", "different_values"))

    @property
    def same(self) -> bool:
        """Whether all that was compared is sharded alike, and two programs have the same values."""
        return self.is_alike and not self.devices_reordered

    @property
    def is_alike(self) -> bool:
        """Whether nothing differs but perhaps the order of devices."""
        return not (self.beginnings or self.other_types or self.only_a or self.only_b)

    @property
    def different_values(self) -> int:
        """How many values are sharded differently."""
        return sum(beginning.values for beginning in self.beginnings)

    @property
    def compared(self) -> int:
        """How many values were compared."""
        return self.same_values + self.different_values


# --- compiled programs ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProgramSide:
    """A compiled program on one side.

    Attributes:
        label: what to call it: a partitioner, some hardware, a program.
        partitioner: under which it was compiled; None for the text of a compiled program.
        hardware: what it was compiled for; None likewise.
        device_kind: what the compiler calls such a device; None likewise.
        is_text: whether it is the text of a compiled program, which says less.
        devices: how many run it; None where it could not be compiled.
        mesh: the mesh whose axes are named; None where none is known that fits.
        total: its collectives in one step of one device; None where it could not be compiled.
        dtypes: how many tensors of its collectives have which element type.
        rematerializations: how many values the partitioner resharded by making them whole on every
            device (involuntary full rematerialization).
        unread: how many lines of the compiled program could not be read.
        failure: why it could not be compiled; empty where it was.
        origins_missing: why it is not known why its collectives are there; empty where it is.
        memory_missing: why it is not known what a device holds of it; empty where it is, and where
            nobody looked.
        notes: what else the compile says, and how its collectives were counted.
    """

    label: str
    partitioner: Partitioner | None = None
    hardware: Hardware | None = None
    device_kind: str | None = None
    is_text: bool = False
    devices: int | None = None
    mesh: Mesh | None = None
    total: Tally | None = None
    dtypes: Mapping[str, int] = field(default_factory=dict)
    rematerializations: int = 0
    unread: int = 0
    failure: str = ""
    origins_missing: Remark | str = ""
    memory_missing: str = ""
    notes: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class DifferenceKey:
    """What tensors of collectives are matched by.

    Attributes:
        phase: forward, backward or other.
        scope: scope of the op that they are communicated for, without the program and primitive.
        primitive: JAX's primitive.
        kind: what is done.
        axes: mesh axes that it is done over; None where no set of axes has the groups, or where
            one of the two programs has no mesh.
        group_size: devices that work together, where ``axes`` is None; None where it varies.
    """

    phase: Phase
    scope: str
    primitive: str
    kind: CollectiveKind
    axes: tuple[AxisRef, ...] | None
    group_size: int | None


@dataclass(frozen=True, slots=True)
class Communicated:
    """Tensors that one program communicates in a step.

    Attributes:
        tensors: how many, loops included.
        bytes: their bytes on one device.
        sent: bytes that a device sends for them.
        received: bytes that it receives.
        shapes: how many have which type and local shape.
        origins: why: what leads to an annotation, or to a line of the program that says it itself.
    """

    tensors: int
    bytes: int
    sent: int
    received: int
    shapes: Mapping[str, int]
    origins: tuple[CollectiveOrigin, ...]


Otherwise: TypeAlias = Literal["", "types", "devices"]
"""What differs of collectives that send as much: the types of their tensors, or which devices send
to each other."""


@dataclass(frozen=True, slots=True)
class CollectiveDifference:
    """Collectives that are not the same on both sides, of one op or of an op of repeated layers.

    Attributes:
        change: what happened.
        key: what they were matched by; of several layers the scope has ``*`` for the number.
        scopes: the scopes, one for each layer.
        sources: lines of user code of both sides, each once, in order.
        a: what the first program communicates.
        b: what the second communicates.
        sent: bytes that a device sends more in the second program.
        otherwise: what differs where as many tensors have as many bytes: their types, or which
            devices send to each other; empty for all else.
        cause: number of its cause, from 0; None where none was found.
    """

    change: Change
    key: DifferenceKey
    scopes: tuple[str, ...]
    sources: tuple[SourceLocation, ...]
    a: Communicated
    b: Communicated
    otherwise: Otherwise
    cause: int | None

    __document__ = in_place(otherwise=("sent", "otherwise"))

    @property
    def sent(self) -> int:
        """Bytes that a device sends more in the second program."""
        return self.b.sent - self.a.sent


@dataclass(frozen=True, slots=True)
class KindAxesDifference:
    """Collectives of one kind over the same axes that do not come to the same.

    Attributes:
        kind: HLO's opcode.
        axes: the mesh axes; None where no set of axes has the groups, or one of the two programs
            has no mesh.
        group_size: devices that work together, where ``axes`` is None; None where it varies.
        a: what they come to in the first program.
        b: what they come to in the second.
    """

    kind: CollectiveKind
    axes: tuple[AxisRef, ...] | None
    group_size: int | None
    a: Tally
    b: Tally


Place: TypeAlias = Divergence | TensorDifference
"""Where differences begin: a value from which on values are sharded differently, or a constraint
that only one program has."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What differences in collectives follow from: exactly one of ``begins`` and ``constraint``.

    Attributes:
        begins: a value at which propagation begins to differ: its inputs are sharded alike.
        constraint: a constraint that only one program has.
        layers: in how many layers it is the same; the first of them is named.
        values: how many values are sharded differently from there on.
        sent: bytes that a device sends more in the second program because of it.
        differences: how many of the differences follow from it.
        annotations_a: annotations behind what the first program communicates of these, what is
            sent most for first; numbers of layers are ``*``, and `axes` are empty.
        annotations_b: the same of the second.
        places: the place in each layer, the first layer's first.
    """

    places: tuple[Place, ...]
    sent: int
    differences: int
    annotations_a: tuple[OriginAnnotation, ...]
    annotations_b: tuple[OriginAnnotation, ...]

    __document__ = in_place(places=(), sent=("begins", "constraint", "layers", "values", "sent"))

    @property
    def begins(self) -> DifferingValue | None:
        """The value at which propagation begins to differ; None for a constraint."""
        place = self.places[0]
        return place.begins if isinstance(place, Divergence) else None

    @property
    def constraint(self) -> TensorDifference | None:
        """The constraint that only one program has; None for a value."""
        place = self.places[0]
        return None if isinstance(place, Divergence) else place

    @property
    def layers(self) -> int:
        """In how many layers it is the same."""
        return len(self.places)

    @property
    def values(self) -> int:
        """How many values are sharded differently from there on."""
        return sum(place.values for place in self.places if isinstance(place, Divergence))


@dataclass(frozen=True, slots=True)
class NotCompared:
    """Arguments or results that were not compared.

    Attributes:
        kind: what they are.
        names: their pytree paths.
        side: the side that does not say how they are sharded; empty for both.
    """

    kind: Literal["argument", "result"]
    names: tuple[str, ...]
    side: Literal["a", "b", ""]


MemoryKind: TypeAlias = Literal["argument", "result", "needed", "total"]
"""``argument`` and ``result``: a group of tensors, as the hardware stores them; ``needed``: a part
of what the compiler says a device needs; ``total``: all of that."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Bytes a device on both sides.

    Of two texts ``total`` is what arguments and results take.

    Attributes:
        kind: what they are.
        name: the group, the part of what a device needs, or all results of a text.
        a: bytes in the first program; None where it has no such group.
        b: bytes in the second.
    """

    kind: MemoryKind
    name: GroupName | MemoryPart
    a: int | None
    b: int | None

    @property
    def differs(self) -> bool:
        """Whether the bytes are not the same."""
        return self.a != self.b


EntryChange: TypeAlias = Literal[
    "type", "sharding", "memory", "layout", "buffer", "only in a", "only in b"
]
"""What is not the same: shape or element type alone; the placement or the block that a device
holds; the memory that it is in; the order of its dimensions there and their tiles; whose buffer it
is in, or whether its buffer was donated; or that only one side has it."""


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """An argument or result that is not the same on both sides.

    Attributes:
        kind: what it is.
        name: its pytree path.
        change: what is not the same.
        a: what a device holds of it on the first side; None where only the second has it.
        b: what a device holds of it on the second side; None where only the first has it.
    """

    kind: HeldKind
    name: str
    change: EntryChange
    a: Held | None
    b: Held | None


@dataclass(frozen=True, slots=True)
class Entries:
    """Arguments and results of both sides.

    Attributes:
        same: how many are sharded and stored alike.
        different: those that are not.
        not_compared: those of which nobody says.
    """

    same: int = 0
    different: tuple[EntryDifference, ...] = ()
    not_compared: tuple[NotCompared, ...] = ()


@dataclass(frozen=True, kw_only=True, repr=False)
class CompiledDiff(Summarized):
    """Two compiled programs.

    Attributes:
        name: what is compared: the program's name, or the first module's.
        across: what the two sides are.
        same: whether a device sends the same and holds the same in both, and the devices of two
            programs are in one order.
        a: the first side.
        b: the second side.
        by_kind_and_axes: totals that differ, by kind and axes.
        memory: bytes a device on both sides, alike or not; none where one side does not know them.
        memory_compared: whether what both hold is known; None where one of them was not compiled.
        entries: arguments and results that are sharded or stored differently, and those that were
            not compared; None where one side does not know them.
        causes: where the differences begin, the most bytes first.
        causes_missing: why it is not known where they begin, as the compiler says; empty where
            that was found, or nobody could look.
        same_shardings: whether both have the same values, each sharded the same way after
            propagation, so that nothing begins there; None where that is not known.
        collectives: what differs, what makes the largest difference in bytes first.
        moved: how many tensors both communicate alike, for ops of other scopes.
        devices_reordered: whether the devices of two programs are in another order.
    """

    name: str
    across: Across
    a: ProgramSide
    b: ProgramSide
    by_kind_and_axes: tuple[KindAxesDifference, ...] = ()
    memory: tuple[MemoryRow, ...] = ()
    entries: Entries | None = None
    causes: tuple[Cause, ...] = ()
    causes_missing: Remark | str = ""
    same_shardings: bool | None = None
    collectives: tuple[CollectiveDifference, ...] = ()
    moved: int = 0
    devices_reordered: bool = False

    __document__ = in_place(across=("across", "same"), memory=("memory", "memory_compared"))

    @property
    def same(self) -> bool:
        """Whether a device sends and holds the same, and the devices are in one order."""
        return self.is_alike and not self.devices_reordered

    @property
    def is_alike(self) -> bool:
        """Whether a device sends the same and holds the same, arguments and results alike.

        ``entries.not_compared`` says of which of these it is not known.
        """
        return (
            not (self.a.failure or self.b.failure)
            and not self.sends_differ
            and not self.memory_differs
            and not (self.entries is not None and self.entries.different)
        )

    @property
    def sends_differ(self) -> bool:
        """Whether a device does not send the same, as far as both were compiled."""
        return self.a.total != self.b.total or bool(self.collectives)

    @property
    def memory_differs(self) -> bool:
        """Whether a device does not hold as many bytes, as far as that is known."""
        return any(row.differs for row in self.memory)

    @property
    def memory_compared(self) -> bool | None:
        """Whether what both hold is known; None where one of them was not compiled."""
        return None if self.a.failure or self.b.failure else bool(self.memory)

    @property
    def total_memory(self) -> MemoryRow | None:
        """Bytes a device in all, on both sides; None where they are not known."""
        return next((row for row in self.memory if row.kind == "total"), None)

    @property
    def aliases(self) -> int:
        """Bytes of results in the buffers of donated arguments, on both sides."""
        rows = [row for row in self.memory if row.name is MemoryPart.ALIASES]
        return sum((row.a or 0) + (row.b or 0) for row in rows)

    @property
    def has_text(self) -> bool:
        """Whether one side is the text of a compiled program, which says less."""
        return self.a.is_text or self.b.is_text


AnyDiff: TypeAlias = LoweredDiff | PropagatedDiff | CompiledDiff
"""What two sides differ in at a stage."""


def telling(diffs: Sequence[AnyDiff]) -> AnyDiff | None:
    """What matters most: what is sent and needed, then what is sharded; None where all is the same.

    Args:
        diffs: of two sides, stage by stage.
    """
    return next((diff for diff in reversed(diffs) if not diff.same), None)
