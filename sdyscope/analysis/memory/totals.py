"""What a device holds, in groups, and whether it comes to what the compiler counted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sdyscope.facts.compiled import Compiled
from sdyscope.facts.findings import Observation, OtherBytes
from sdyscope.facts.memory import GroupName, Held, HeldKind
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.entry_layout import EntryLayout, MemorySpace, StoredArray


@dataclass(frozen=True, slots=True)
class Group:
    """What belongs to one top-level argument, or to one top-level result, in one memory.

    Attributes:
        kind: what they are.
        name: the group's name: `params`, `result[0]`.
        memory: `device`, or `host` for what is offloaded (`memory_kind="pinned_host"`).
        tensors: how many.
        bytes: bytes of the whole tensors; None where they are not known.
        bytes_per_device: bytes of what a device holds, without the padding of tiles.
        stored: bytes of what a device stores, with that padding.
        replicated: bytes a device that it would not hold if every block were held once.
        shared: bytes a device, as stored, that lie in the buffers of arguments (of results), or
            that are given to results (of arguments).
    """

    kind: HeldKind
    name: str
    memory: MemorySpace
    tensors: int
    bytes: int | None
    bytes_per_device: int
    stored: int
    replicated: int
    shared: int

    @property
    def title(self) -> GroupName:
        """The name, and where it is."""
        return GroupName(self.name, self.memory)


def groups(held: Iterable[Held]) -> tuple[Group, ...]:
    """Sums by the top-level argument or result that tensors belong to, and by where they are."""
    groups: dict[tuple[HeldKind, str, MemorySpace], list[Held]] = {}
    for tensor in held:
        groups.setdefault((tensor.kind, tensor.group, tensor.stored.memory), []).append(tensor)
    return tuple(
        Group(
            kind,
            name,
            memory,
            len(members),
            _sum(member.bytes for member in members),
            sum(member.bytes_per_device for member in members),
            sum(member.stored.bytes for member in members),
            sum(member.replicated for member in members),
            sum(member.stored.bytes for member in members if member.shares),
        )
        for (kind, name, memory), members in groups.items()
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum; None where one is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


#: A multiple of what XLA pads its tables to on TPUs.
_ALIGNMENT = 1024


def compared(
    layout: EntryLayout, held: Sequence[Held], compiled: Compiled
) -> tuple[bool | None, int]:
    """Whether the bytes are what the compiler says, and those of the results' table."""
    memory = compiled.memory
    if memory is None or compiled.platform is None:
        return None, 0
    # A CPU has one memory, whatever the arrays' kinds say, and counts it as the device's.
    one_memory = compiled.platform == "cpu"
    on_host = (_bytes(layout.parameters, "host"), _bytes(layout.results, "host"))
    of_arguments = memory.arguments - _bytes(layout.parameters, "device")
    of_results = memory.outputs - _bytes(layout.results, "device")
    if one_memory:
        of_arguments, of_results = of_arguments - on_host[0], of_results - on_host[1]
    equal = (
        all(map(_is_as_compiled, held))
        and (one_memory or on_host == (memory.host_arguments, memory.host_outputs))
        # A token of an ordered effect has an entry and is no tensor.
        and len(held)
        == sum(array.dtype != "token" for array in (*layout.parameters, *layout.results))
        and _is_table(of_arguments, len(layout.parameters) * layout.parameters_are_tuple, compiled)
        and _is_table(of_results, len(layout.results) * layout.results_are_tuple, compiled)
    )
    return equal, max(of_results, 0)


def _bytes(arrays: Iterable[StoredArray], memory: MemorySpace) -> int:
    return sum(array.bytes for array in arrays if array.memory == memory)


def _is_table(count: int, entries: int, compiled: Compiled) -> bool:
    """Whether so many bytes are a table of addresses: 8 bytes each, on TPUs 4 and some padding."""
    if compiled.platform == "tpu" and entries:
        return 4 * entries <= count <= -(-8 * entries // _ALIGNMENT) * _ALIGNMENT
    return count == 8 * entries


def _is_as_compiled(held: Held) -> bool:
    return held.bytes_per_device == num_bytes(math.prod(held.stored.shape), held.dtype)


def bytes_differ(held: Sequence[Held], compiled: Compiled) -> Observation:
    """The observation that they are not."""
    memory = compiled.memory
    wrong = tuple(tensor.name for tensor in held if not _is_as_compiled(tensor))
    ours = sum(tensor.stored.bytes for tensor in held if tensor.kind == "argument")
    fact = OtherBytes(wrong, ours, 0 if memory is None else memory.arguments)
    return Observation("bytes-differ", "warning", fact, partitioner=compiled.partitioner)
