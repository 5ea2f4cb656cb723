"""Where arrays that are there are, as JAX says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec as JaxPartitionSpec
from jax.sharding import Sharding as JaxSharding

from sdyscope.errors import SdyscopeError, TargetError, first_line, kind_of
from sdyscope.stages import compat
from sdyscope.stages.lowered.request import from_jax_sharding
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.values.convert import to_placement
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec, SpecEntry
from sdyscope.values.tiling import TupleSharding
from sdyscope.words.sharding import placement_text


@dataclass(frozen=True)
class MisplacedArray:
    """An array that is not where it was expected.

    Attributes:
        expected: where that is.
        found: where it is.
        devices: on how many devices another block is than expected.
        of: how many devices there are, of both.
    """

    expected: str
    found: str
    devices: int
    of: int


def is_array(value: Any) -> bool:
    """Whether it is an array on devices, and no tracer."""
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


def as_spec(spec: Any, rank: int) -> PartitionSpec:
    """JAX's PartitionSpec, or that of a NamedSharding, as ours.

    Raises:
        TargetError: it is neither, or is for more dimensions than there are.
    """
    entries = spec.spec if isinstance(spec, JaxNamedSharding) else spec
    if not isinstance(entries, JaxPartitionSpec):
        raise TargetError(
            f"A sharding is needed, not {kind_of(spec)}.",
            hint="Give a PartitionSpec or a NamedSharding.",
        )
    written = compat.spec_entries(entries)
    if len(written) > rank:
        raise TargetError(f"{entries} is for a tensor of rank {len(written)}, not {rank}.")
    read: list[SpecEntry] = []
    for entry in written:
        if entry is JaxPartitionSpec.UNCONSTRAINED:
            read.append(UNCONSTRAINED)
        else:
            read.append(tuple(map(str, entry)) if isinstance(entry, tuple) else entry)
    unreduced = frozenset(getattr(entries, "unreduced", None) or ())
    return PartitionSpec(tuple(read), unreduced)


def difference(array: Any, expected: Any, mesh: Any = None) -> MisplacedArray | None:
    """How an array's placement differs from a sharding's; None where no block is elsewhere.

    JAX lists what each device holds of both (``Sharding.devices_indices_map``).

    Args:
        array: a ``jax.Array``.
        expected: a ``PartitionSpec``, ours or JAX's, or any JAX sharding. Dimensions that are
            ``UNCONSTRAINED`` may be sharded in any way.
        mesh: the mesh that a PartitionSpec is on; by default the array's.

    Raises:
        TargetError: there is no mesh, or the array can't be sharded so.
    """
    open_dims: frozenset[int] = frozenset()
    if not isinstance(expected, JaxSharding):
        spec = expected if isinstance(expected, PartitionSpec) else as_spec(expected, array.ndim)
        if len(spec.entries) > array.ndim:
            raise TargetError(f"{spec} is for more dimensions than the array's {array.ndim}.")
        mesh = mesh if mesh is not None else getattr(array.sharding, "mesh", None)
        if mesh is None:
            if not any(spec.axis_names()):
                return _not_replicated(array, spec)
            raise TargetError(
                f"The array is on no mesh whose axes {spec} could name: {array.sharding}",
                hint="Give the mesh with mesh=..., or expect a NamedSharding.",
            )
        open_dims = frozenset(k for k, e in enumerate(spec.entries) if e is UNCONSTRAINED)
        closed = [None if entry is UNCONSTRAINED else entry for entry in spec.entries]
        sets = {"unreduced": set(spec.unreduced)} if spec.unreduced else {}
        try:
            expected = JaxNamedSharding(mesh, JaxPartitionSpec(*closed, **sets))
        except ValueError as error:
            raise TargetError(f"{spec} names no axes of this mesh: {first_line(error)}") from error
        shown = str(spec)
    else:
        shown = _words(expected, array.ndim)
    wanted, actual = _blocks(expected, array.shape), _blocks(array.sharding, array.shape)
    every = wanted.keys() | actual.keys()
    wrong = sum(_differs(wanted.get(device), actual.get(device), open_dims) for device in every)
    if not wrong and _unreduced(expected) == _unreduced(array.sharding):
        return None
    return MisplacedArray(shown, _words(array.sharding, array.ndim), wrong, len(every))


def _not_replicated(array: Any, spec: PartitionSpec) -> MisplacedArray | None:
    if array.sharding.is_fully_replicated or not array.ndim:
        return None
    count = len(array.sharding.device_set)
    return MisplacedArray(str(spec), _words(array.sharding, array.ndim), count, count)


def _blocks(sharding: Any, shape: tuple[int, ...]) -> Mapping[Any, tuple[tuple[int, int], ...]]:
    """What each device holds: first and last index of each dimension."""
    try:
        listed = sharding.devices_indices_map(shape)
    except ValueError as error:
        raise TargetError(
            f"An array of shape {shape} can't be sharded so: {first_line(error)}"
        ) from error
    return {
        device: tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=False))
        for device, index in listed.items()
    }


def _differs(
    first: tuple[tuple[int, int], ...] | None,
    second: tuple[tuple[int, int], ...] | None,
    open_dims: frozenset[int],
) -> bool:
    if first is None or second is None:
        return True
    return any(
        a != b for k, (a, b) in enumerate(zip(first, second, strict=True)) if k not in open_dims
    )


def _unreduced(sharding: Any) -> frozenset[str]:
    return frozenset(getattr(getattr(sharding, "spec", None), "unreduced", None) or ())


def _words(sharding: Any, ndim: int) -> str:
    named, _ = from_jax_sharding(sharding, ndim)
    if named is not None:
        return str(named.spec)
    count = len(sharding.device_set)
    if count == 1:
        return f"whole on one device, {next(iter(sharding.device_set))}"
    try:
        parsed = parse_hlo_sharding(compat.hlo_sharding_text(sharding, ndim))
        if not isinstance(parsed, TupleSharding):
            return placement_text(to_placement(parsed, ndim, None, count))
    except SdyscopeError:
        pass  # As JAX writes it.
    return str(sharding)
