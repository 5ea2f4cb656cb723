"""What there is to call by a name of the memory of a device."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sdyscope.values.entry_layout import MemorySpace


class MemoryPart(Enum):
    """What the compiler counts of the memory that a device needs; the attribute that has it."""

    ARGUMENTS = "arguments"
    RESULTS = "results"
    ALIASES = "aliases"
    TEMPORARIES = "temporaries"
    CODE = "generated_code"
    TOTAL = "total"
    HOST = "host"


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
