"""What could be sharded further: free mesh axes that divide a dimension of what a device holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.memory.held import Held, Option
from sdyscope.facts.memory import Redundant
from sdyscope.values.sharding import UNCONSTRAINED, SpecEntry, entry_axes

__all__ = [
    "OfHeld",
    "Saving",
    "redundant",
    "saved_together",
    "under_sharded",
    "with_options",
]

#: What tells the layers of a model apart in a pytree path.
_INDEX = re.compile(r"\[\d+\]")


def with_options(held: Held) -> Held:
    """A tensor with the dimensions that could be cut along one more axis, and the best of it."""
    if held.sharding is None or held.shape is None:
        return held
    spec, sizes = held.sharding.spec, held.sharding.mesh.shape
    used = {*spec.axis_names(), *spec.unreduced, *spec.reduced}
    free = sorted(
        (axis for axis, size in sizes.items() if size > 1 and axis not in used),
        key=lambda axis: -sizes[axis],
    )
    entries = [*spec.entries, *[None] * (len(held.shape) - len(spec.entries))]
    # Only whole blocks are cut: JAX refuses an argument whose dimension does not divide.
    blocks = [_block(size, entry, sizes) for size, entry in zip(held.shape, entries, strict=True)]
    options = [
        Option(dim, axis, held.bytes_per_device - held.bytes_per_device // sizes[axis])
        for axis in free
        for dim, block in enumerate(blocks)
        if _divides(block, sizes[axis])
    ]
    factor = 1
    for axis in free:
        fitting = [dim for dim, block in enumerate(blocks) if _divides(block, sizes[axis])]
        if fitting:
            # A dimension that is whole yet, before one that is cut already; then the largest.
            best = max(fitting, key=lambda dim: (entries[dim] is None, blocks[dim]))
            entries[best] = (*entry_axes(entries[best]), axis)
            blocks[best] //= sizes[axis]
            factor *= sizes[axis]
    if factor == 1:
        return held
    return replace(
        held,
        options=tuple(sorted(options, key=lambda option: -option.saves)),
        best=replace(spec, entries=tuple(entries)),
        saves=held.bytes_per_device - held.bytes_per_device // factor,
    )


def _block(size: int, entry: SpecEntry, sizes: Mapping[str, int]) -> int:
    """Size of a dimension's block; 0 where it can't be cut further in whole blocks."""
    if entry is UNCONSTRAINED:
        return 0
    for axis in entry_axes(entry):
        if size % sizes[axis]:
            return 0
        size //= sizes[axis]
    return size


def _divides(block: int, size: int) -> bool:
    return block > 0 and block % size == 0


def under_sharded(held: Iterable[Held]) -> tuple[Held, ...]:
    """What could be cut further, what saves most first.

    A result that takes the place of an argument and is placed alike is not told again.
    """
    told: Counter[tuple[object, ...]] = Counter()
    found = []
    for one in held:
        key = (one.shape, one.dtype, one.placed)
        if one.kind == "argument":
            told[key] += 1
        elif told[key]:
            told[key] -= 1
            continue
        if one.best is not None:
            found.append(one)
    return tuple(sorted(found, key=lambda one: -one.saves))


class OfHeld:
    """What follows from the arguments and results that a device holds, ``tensors``."""

    tensors: tuple[Held, ...]

    @property
    def stored(self) -> int:
        """Bytes of arguments, and of results that lie in no argument's buffer."""
        return sum(
            tensor.stored.bytes
            for tensor in self.tensors
            if tensor.kind == "argument" or not tensor.shares
        )

    @property
    def savings(self) -> tuple[str, ...]:
        """Names of what could be sharded further, what saves most first."""
        return tuple(one.name for one in self.under_sharded)

    @property
    def under_sharded(self) -> tuple[Held, ...]:
        """What could be sharded further, what saves most first."""
        return under_sharded(self.tensors)


#: A smaller part of all that is redundant is not worth telling.
_WORTH_TELLING = 0.01


def redundant(held: Sequence[Held]) -> Iterator[Redundant]:
    """What is redundant in tensors that can't be sharded further, as far as it is worth telling."""
    least = _WORTH_TELLING * sum(tensor.replicated for tensor in held)
    for is_named in (True, False):
        members = [
            tensor
            for tensor in held
            if tensor.replicated
            and tensor.best is None
            and (tensor.sharding is not None) is is_named
        ]
        replicated = sum(tensor.replicated for tensor in members)
        if replicated > least:
            yield Redundant(is_named, len(members), replicated)


@dataclass(frozen=True, slots=True)
class Saving:
    """What could be cut further alike: one tensor, or those of repeated layers.

    Attributes:
        name: its pytree path; of several with ``*`` for the index that they differ in.
        tensors: which, at least one.
    """

    name: str
    tensors: tuple[Held, ...]

    @property
    def saves(self) -> int:
        """Bytes a device."""
        return sum(tensor.saves for tensor in self.tensors)


def saved_together(tensors: Iterable[Held]) -> tuple[Saving, ...]:
    """What could be cut further, tensors that differ in an index only together, the most first."""
    found: dict[tuple[object, ...], list[Held]] = {}
    for tensor in tensors:
        name = _INDEX.sub("[*]", tensor.name)
        key = (tensor.kind, name, tensor.type, str(tensor.sharding), str(tensor.best))
        found.setdefault(key, []).append(tensor)
    savings = (
        Saving(
            members[0].name if len(members) == 1 else _INDEX.sub("[*]", members[0].name),
            tuple(members),
        )
        for members in found.values()
    )
    return tuple(sorted(savings, key=lambda saving: -saving.saves))
