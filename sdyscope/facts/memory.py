"""What there is to call by a name of the memory of a device."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

from sdyscope.formatters import in_place
from sdyscope.values.convert import to_placement
from sdyscope.values.entry_layout import MemorySpace, StoredArray
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import NamedSharding, PartitionSpec


class MemoryPart(Enum):
    """What the compiler counts of the memory that a device needs; the attribute that has it."""

    ARGUMENTS = "arguments"
    RESULTS = "results"
    ALIASES = "aliases"
    TEMPORARIES = "temporaries"
    CODE = "generated_code"
    TOTAL = "total"
    HOST = "host"


#: The parts that add up to all that a device needs.
SUMMANDS: Final = (
    MemoryPart.ARGUMENTS,
    MemoryPart.RESULTS,
    MemoryPart.TEMPORARIES,
    MemoryPart.CODE,
)


@dataclass(frozen=True, slots=True)
class GroupName:
    """The arguments or results that belong together, in one memory.

    Attributes:
        name: the top-level argument or result: ``params``, ``result[0]``.
        memory: ``device``, or ``host`` for what is offloaded (``memory_kind="pinned_host"``).
    """

    name: str
    memory: MemorySpace


@dataclass(frozen=True, slots=True)
class Redundant:
    """What is held more than once, and no free axis of the mesh would save.

    Attributes:
        is_named: whether a PartitionSpec can say how the tensors are sharded.
        tensors: how many they are.
        replicated: bytes a device.
    """

    is_named: bool
    tensors: int
    replicated: int


@dataclass(frozen=True, slots=True)
class Sureness:
    """How sure the bytes of a device are, and who placed the tensors.

    Attributes:
        is_text: whether only the text of a compiled program is known, which says neither how the
            compiler counts nor who placed what.
        equal: whether the compiler counts the same; None where it does not say.
        unknown: how many tensors are where nobody says.
        chosen: how many the compiler placed.
        remade: how many values were resharded by full rematerialization.
    """

    is_text: bool
    equal: bool | None
    unknown: int
    chosen: int
    remade: int


@dataclass(frozen=True, slots=True)
class TensorTotal:
    """What all arguments, or all results, take.

    Attributes:
        tensors: how many there are, without the dropped ones.
        bytes: bytes of all that are known.
        bytes_per_device: bytes that a device holds; a tensor without a sharding counts as
            replicated. What is kept in the host's memory is not in it.
        bytes_on_host: bytes that the host holds for a device (`memory_kind="pinned_host"`).
        unplaced: how many have no sharding.
        impossible: how many have a sharding that can't be read or can't be; of these a device holds
            nobody knows how much, and they are not counted.
        unknown: how many have no known number of bytes, and are not counted.
    """

    tensors: int
    bytes: int
    bytes_per_device: int
    bytes_on_host: int
    unplaced: int
    impossible: int
    unknown: int


HeldKind: TypeAlias = Literal["argument", "result"]


Origin: TypeAlias = Literal["requested", "lowered", "propagated", "compiled", "unknown"]
"""Who says where a tensor is: its author, the lowered module, or, where both leave it open, the
compiler; of a program that is not compiled, propagation."""


@dataclass(frozen=True, slots=True)
class Option:
    """One dimension that could be cut along one more axis.

    Attributes:
        dim: the dimension.
        axis: the free mesh axis, whose size divides it.
        saves: bytes a device that this alone saves.
    """

    dim: int
    axis: str
    saves: int


@dataclass(frozen=True, slots=True)
class Held:
    """An argument or a result, and what a device holds of it.

    Attributes:
        name: pytree path.
        kind: what it is.
        group: the top-level argument or result that it belongs to.
        number: which parameter or result of the compiled module it is.
        shape: shape of the whole tensor; None where only a compiled program's text is known, which
            has blocks alone.
        dtype: MLIR element type; of a text HLO's.
        origin: who says where it is.
        sharding: where it is, on the program's mesh; None where no PartitionSpec can say that.
        replicas: how many devices hold the same block; None where nobody says.
        bytes: bytes of the whole tensor; None where its shape is not known.
        bytes_per_device: bytes of the block that a device holds.
        stored: how the compiler stores that block.
        donated: whether the argument's buffer was donated.
        shares: the argument or result that lies in the same buffer; empty for none.
        options: single dimensions that could be cut further, what saves most first.
        best: with all that can be cut along free axes; None when nothing can.
        saves: bytes a device that `best` saves.
        placement: where it is, as the compiler or propagation says, else as it was closed in the
            lowered module; None where nobody says.
        key_dims: how many of the last dimensions may be the words of a PRNG key, which JAX doesn't
            shard.
    """

    name: str
    kind: HeldKind
    group: str
    number: int
    shape: tuple[int, ...] | None
    dtype: str
    origin: Origin
    sharding: NamedSharding | None
    replicas: int | None
    bytes: int | None
    bytes_per_device: int
    stored: StoredArray
    donated: bool = False
    shares: str = ""
    options: tuple[Option, ...] = ()
    best: PartitionSpec | None = None
    saves: int = 0
    placement: Placement | None = None
    key_dims: int = 0

    __document__ = in_place(stored=("stored", "replicated"), placement=(), key_dims=())

    @property
    def type(self) -> tuple[tuple[int, ...], str]:
        """Shape and element type of the whole tensor, of its block where only that is known."""
        return self.stored.shape if self.shape is None else self.shape, self.dtype

    @property
    def placed(self) -> object:
        """Something that is equal for two tensors of one shape that are placed alike."""
        if self.sharding is None or self.shape is None:
            return self.stored.shape
        return to_placement(self.sharding, len(self.shape))

    @property
    def replicated(self) -> int:
        """Bytes a device that it would not hold if there were one replica."""
        return self.bytes_per_device - self.bytes_per_device // (self.replicas or 1)
