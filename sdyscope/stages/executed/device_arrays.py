"""What is on devices: shards of arrays, values for the host and from it, memory."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from sdyscope.errors import first_line
from sdyscope.facts.execution import (
    DeviceMemory,
    ExecutedArray,
    Extent,
    HostBlock,
    Shard,
    UnequalReplica,
)
from sdyscope.facts.remarks import Remark
from sdyscope.stages import compat


def is_key(value: Any) -> bool:
    """Whether it is an array of PRNG keys."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def on_host(value: Any) -> Any:
    """A value that is on no devices but the host's, so that it can be put anywhere.

    Of an array that lies on the devices of several processes, all of them must call this.
    """
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return multihost_utils.process_allgather(value, tiled=True)
    if is_key(value):
        data: Any = np.asarray(jax.random.key_data(value))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))
    return np.asarray(value) if isinstance(value, jax.Array) else value


def fetched(
    results: Sequence[Any], names: Sequence[str], devices: Sequence[Any]
) -> tuple[list[tuple[HostBlock, ...] | None], list[Remark]]:
    """Results on the host, as far as this process holds them, and a remark on what can't be.

    Args:
        results: arrays.
        names: what to call them.
        devices: those that the program runs on, in order.

    Returns:
        For each result its blocks: one where this process holds all of it; None where it can't be
        fetched.
    """
    outputs: list[tuple[HostBlock, ...] | None] = []
    notes = []
    for name, result in zip(names, results, strict=True):
        try:
            outputs.append(
                _blocks(jax.random.key_data(result) if is_key(result) else result, devices)
            )
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            # Partial results that nothing reduced.
            outputs.append(None)
            notes.append(Remark("not fetched", name, other=first_line(error)))
    return outputs, notes


def _blocks(array: Any, devices: Sequence[Any]) -> tuple[HostBlock, ...]:
    if is_unreduced(array):
        raise ValueError("it is not reduced over all axes of the mesh")
    if array.is_fully_addressable:
        return (HostBlock.whole(np.asarray(array)),)
    # One shard for each block: the replicas are compared with each other.
    shards = {str(shard.index): shard for shard in array.addressable_shards}
    return tuple(
        HostBlock(
            tuple(extents(shard.index, array.shape)),
            np.asarray(shard.data),
            devices.index(shard.device),
        )
        for shard in shards.values()
    )


def put(value: Any, sharding: Any) -> Any:
    """A value on devices; every process that has some of them must call this with the same value.

    Args:
        value: an array, on the host or anywhere.
        sharding: where to put it, a sharding or a device.
    """
    if _unreduced(sharding):
        return _parts(value, sharding)
    if isinstance(sharding, jax.Device) or sharding.is_fully_addressable:
        return jax.device_put(on_host(value), sharding)
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return jax.device_put(value, sharding)
    host = on_host(value)
    host = host if is_key(host) else np.asarray(host)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def _parts(value: Any, sharding: Any) -> Any:
    """Partial sums of a value, which JAX (0.10 excepted) puts nowhere: one whole, the others 0.

    Of axes that a maximum or minimum is pending over, every device has the whole.
    """
    if isinstance(value, jax.Array) and is_unreduced(value):
        return value
    host = np.asarray(on_host(value))
    kind = getattr(sharding.spec, "unreduced_kind", None)  # from JAX 0.12
    sums = kind is None or str(kind).endswith("sum")
    indices = _reduced(sharding).devices_indices_map(host.shape)
    pending = [sharding.mesh.axis_names.index(axis) for axis in sharding.spec.unreduced]
    blocks = []
    for position, device in np.ndenumerate(sharding.mesh.devices):
        if device in sharding.addressable_devices:
            block = host[indices[device]]
            is_first = not any(position[axis] for axis in pending)
            block = block if is_first or not sums else np.zeros_like(block)
            blocks.append(jax.device_put(block, device))
    return jax.make_array_from_single_device_arrays(host.shape, sharding, blocks)


def copied(array: Any, where: Any) -> Any:
    """An array once more, in memory of its own, to be donated.

    Args:
        array: a `jax.Array`.
        where: its sharding, or format.
    """
    if not is_unreduced(array):
        return jax.device_put(array, where, may_alias=False)
    shards = [jax.device_put(x.data, x.device, may_alias=False) for x in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, shards)


def digest(value: Any) -> str:
    """What tells a value from others, bit by bit; empty where other processes hold parts of it.

    Args:
        value: an array, on the host or anywhere; or a text.
    """
    if isinstance(value, str):
        value = np.frombuffer(value.encode(), np.uint8)
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return ""
    data = np.ascontiguousarray(jax.random.key_data(value) if is_key(value) else value)
    return hashlib.blake2b(data.tobytes(), digest_size=16).hexdigest()


def array_held(
    kind: Literal["argument", "result"],
    index: int,
    array: Any,
    devices: Sequence[Any],
    unequal: Iterable[UnequalReplica] = (),
) -> ExecutedArray:
    """What the devices of this process hold of an array.

    Args:
        kind: what the array is.
        index: its flat index.
        array: a `jax.Array`.
        devices: those that the program runs on, in order; a shard's device is its position in it.
        unequal: replicas that are not like the first one.
    """
    positions = {device: position for position, device in enumerate(devices)}
    whole, _ = compat.element_shape(array.aval)
    shards = [
        Shard(
            positions[shard.device],
            tuple(extents(index, whole)),
            (*shard.data.shape, *whole[array.ndim :]),
            replica,
            shard.data.on_device_size_in_bytes(),
        )
        for shard, index, replica in _located(array)
    ]
    return ExecutedArray(
        kind,
        index,
        tuple(whole),
        compat.hlo_sharding_text(array.sharding, array.ndim),
        array.ndim,
        tuple(sorted(shards, key=lambda shard: shard.device)),
        tuple(unequal),
    )


def is_unreduced(array: Any) -> bool:
    """Whether devices hold partial sums of it, so that what is of one place are no replicas."""
    return _unreduced(array.sharding)


def _unreduced(sharding: Any) -> bool:
    return bool(getattr(getattr(sharding, "spec", None), "unreduced", None))


def _reduced(sharding: Any) -> Any:
    """A sharding without what is pending, of which alone JAX lists blocks."""
    spec = jax.sharding.PartitionSpec(*compat.spec_entries(sharding.spec))
    return jax.sharding.NamedSharding(sharding.mesh, spec)


def _located(array: Any) -> Iterator[tuple[Any, tuple[slice, ...], int]]:
    """The shards of an array, each with its index and the number of the replica that it is."""
    if not is_unreduced(array):
        for shard in array.addressable_shards:
            yield shard, shard.index, shard.replica_id
        return
    indices = _reduced(array.sharding).devices_indices_map(array.shape)
    replicas: Counter[str] = Counter()
    for shard in array.addressable_shards:
        index = indices[shard.device]
        yield shard, index, replicas[str(index)]
        replicas[str(index)] += 1


def extents(index: Sequence[slice], shape: Sequence[int]) -> list[Extent]:
    """The extents of a block in every dimension of an array."""
    # Of PRNG keys the index has their words as well.
    return [part.indices(size)[:2] for part, size in zip(index, shape, strict=True)]


def peak_bytes(devices: Sequence[Any]) -> int | None:
    """Most bytes that were ever in use on one of the devices, if the backend counts them."""
    counts = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in devices]
    known = [int(count) for count in counts if count is not None]
    return max(known, default=None)


def device_memory(compiled: Any, devices: Sequence[Any], before: int | None) -> DeviceMemory:
    """What an executable needs on one device, as the compiler and the backend tell.

    Args:
        compiled: a `jax.stages.Compiled` that has run.
        devices: what it ran on.
        before: `peak_bytes` before it ran.
    """
    peak = peak_bytes(devices)
    analysis = compiled.memory_analysis()
    if analysis is None:
        return DeviceMemory(peak=peak, peak_is_bound=peak == before)
    return DeviceMemory(
        analysis.argument_size_in_bytes,
        analysis.output_size_in_bytes,
        analysis.alias_size_in_bytes,
        analysis.temp_size_in_bytes,
        peak,
        peak is not None and peak == before,
    )
