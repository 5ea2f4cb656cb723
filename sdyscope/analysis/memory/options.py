"""What could be sharded further: free mesh axes that divide a dimension of what a device holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.naming.paths import without_indices
from sdyscope.annotations import shared_name
from sdyscope.facts.memory import Held, Option, Redundant
from sdyscope.values.sharding import (
    UNCONSTRAINED,
    NamedSharding,
    PartitionSpec,
    SpecEntry,
    entry_axes,
)


def with_options(held: Held) -> Held:
    """A tensor with the dimensions that could be cut along one more axis, and the best of it."""
    if held.sharding is None or held.shape is None or not held.bytes_per_device:
        return held
    cuts = _Cuts(held.sharding, held.shape, held.key_dims)
    options = [
        Option(dim, axis, held.bytes_per_device - held.bytes_per_device // cuts.sizes[axis])
        for axis in cuts.free
        for dim in cuts.fitting(axis)
    ]
    best, factor = cuts.best()
    if factor == 1:
        return held
    return replace(
        held,
        options=tuple(sorted(options, key=lambda option: -option.saves)),
        best=best,
        saves=held.bytes_per_device - held.bytes_per_device // factor,
    )


def cut_further(
    sharding: NamedSharding, shape: Sequence[int], key_dims: int = 0
) -> tuple[PartitionSpec, int]:
    """A sharding with all that can be cut along free axes, and into how many times more blocks.

    Args:
        sharding: the sharding.
        shape: shape of the whole tensor.
        key_dims: how many of the last dimensions are not cut: JAX shards no words of a PRNG key.
    """
    return _Cuts(sharding, shape, key_dims).best()


class _Cuts:
    """How a tensor could be cut along mesh axes that its sharding does not use."""

    def __init__(self, sharding: NamedSharding, shape: Sequence[int], key_dims: int) -> None:
        self.spec, self.sizes = sharding.spec, sharding.mesh.shape
        used = {*self.spec.axis_names(), *self.spec.unreduced, *self.spec.reduced}
        self.free = sorted(
            (axis for axis, size in self.sizes.items() if size > 1 and axis not in used),
            key=lambda axis: -self.sizes[axis],
        )
        missing = len(shape) - len(self.spec.entries)
        self.entries: list[SpecEntry] = [*self.spec.entries, *[None] * missing]
        # Only whole blocks are cut: JAX refuses an argument whose dimension does not divide.
        self.blocks = [
            _block(size, entry, self.sizes) for size, entry in zip(shape, self.entries, strict=True)
        ]
        whole = len(shape) - key_dims
        self.blocks[whole:] = [0] * key_dims

    def fitting(self, axis: str) -> list[int]:
        """The dimensions that an axis divides."""
        return [dim for dim, block in enumerate(self.blocks) if _divides(block, self.sizes[axis])]

    def best(self) -> tuple[PartitionSpec, int]:
        """The spec with each free axis on the dimension that it suits best."""
        factor = 1
        for axis in self.free:
            fitting = self.fitting(axis)
            if fitting:
                # A dimension that is whole yet, before one that is cut already; then the largest.
                best = max(fitting, key=lambda dim: (self.entries[dim] is None, self.blocks[dim]))
                self.entries[best] = (*entry_axes(self.entries[best]), axis)
                self.blocks[best] //= self.sizes[axis]
                factor *= self.sizes[axis]
        return replace(self.spec, entries=tuple(self.entries)), factor


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
    unpaired: Counter[tuple[object, ...]] = Counter()
    splittable = []
    for tensor in held:
        key = (tensor.shape, tensor.dtype, tensor.placed)
        if tensor.kind == "argument":
            unpaired[key] += 1
        elif unpaired[key]:
            unpaired[key] -= 1
            continue
        if tensor.best is not None:
            splittable.append(tensor)
    return tuple(sorted(splittable, key=lambda tensor: -tensor.saves))


#: What could be saved of the arguments is worth saying first from this part of them on.
_WORTH_SAYING_FIRST = 0.1


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
        return tuple(tensor.name for tensor in self.under_sharded)

    @property
    def large_savings(self) -> tuple[Held, ...]:
        """Arguments that could be sharded further; none where that saves a small part of them."""
        members = tuple(tensor for tensor in self.under_sharded if tensor.kind == "argument")
        saves = sum(tensor.saves for tensor in members)
        return members if saves >= _WORTH_SAYING_FIRST * self.argument_bytes else ()

    @property
    def argument_bytes(self) -> int:
        """Bytes of all arguments that a device holds."""
        return sum(tensor.bytes_per_device for tensor in self.tensors if tensor.kind == "argument")

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
    alike: dict[tuple[object, ...], list[Held]] = {}
    for tensor in tensors:
        name = without_indices(tensor.name)
        key = (tensor.kind, name, tensor.type, str(tensor.sharding), str(tensor.best))
        alike.setdefault(key, []).append(tensor)
    savings = (
        Saving(shared_name([tensor.name for tensor in members]), tuple(members))
        for members in alike.values()
    )
    return tuple(sorted(savings, key=lambda saving: -saving.saves))
