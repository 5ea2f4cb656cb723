"""What is on devices: shards and copies of arrays, values for the host, memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sdyscope.execution import DeviceMemory, ExecutedArray, Extent, Shard, UnequalCopy
from sdyscope.stages import compat

__all__ = [
    "array_held",
    "device_memory",
    "fetched",
    "first_line",
    "on_host",
    "peak_bytes",
    "results_held",
]


def is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def on_host(value: Any) -> Any:
    """A value that is on no devices but the host's, so that it can be put anywhere."""
    if is_key(value):
        data: Any = np.asarray(jax.random.key_data(value))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))
    return np.asarray(value) if isinstance(value, jax.Array) else value


def fetched(results: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], list[str]]:
    """Results as numpy arrays, None where that can't be, and a sentence on each of those."""
    outputs: list[Any] = []
    notes = []
    for name, result in zip(names, results, strict=True):
        try:
            outputs.append(np.asarray(jax.random.key_data(result) if is_key(result) else result))
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            # Partial results that nothing reduced, or shards of other processes.
            outputs.append(None)
            notes.append(
                f"{name} can't be fetched whole, so it is not compared: {first_line(error)}"
            )
    return outputs, notes


def results_held(results: Sequence[Any], devices: Sequence[Any]) -> list[ExecutedArray]:
    """What the devices hold of each result; see `array_held`."""
    return [array_held("result", index, result, devices) for index, result in enumerate(results)]


def array_held(
    kind: Literal["argument", "result"], index: int, array: Any, devices: Sequence[Any]
) -> ExecutedArray:
    """What the devices hold of an array, copies compared where it is a result.

    Args:
      kind: what the array is.
      index: its flat index.
      array: a `jax.Array`.
      devices: those that the program runs on, in order; a shard's device is its position in it.
    """
    positions = {device: position for position, device in enumerate(devices)}
    whole, _ = compat.element_shape(array.aval)
    shards = [
        Shard(
            positions[shard.device],
            tuple(_extents(shard.index, whole)),
            (*shard.data.shape, *whole[array.ndim :]),
            shard.replica_id,
        )
        for shard in array.addressable_shards
    ]
    return ExecutedArray(
        kind,
        index,
        tuple(whole),
        compat.hlo_sharding_text(array.sharding, array.ndim),
        array.ndim,
        tuple(sorted(shards, key=lambda shard: shard.device)),
        tuple(_unequal_copies(array, positions)) if kind == "result" else (),
    )


def _unequal_copies(array: Any, positions: Mapping[Any, int]) -> Iterator[UnequalCopy]:
    """The copies of a block that are not, bit by bit, what its first holder has."""
    first: dict[str, tuple[int, Any]] = {}
    data = jax.random.key_data(array) if is_key(array) else array
    for shard in sorted(data.addressable_shards, key=lambda shard: positions[shard.device]):
        device, held = positions[shard.device], np.asarray(shard.data)
        holder, block = first.setdefault(str(shard.index), (device, held))
        if held.tobytes() != block.tobytes():
            yield UnequalCopy(device, holder, _relative_error(held, block))


def _relative_error(one: Any, two: Any) -> float:
    """Norm of the difference over the norm of the second."""
    wide = np.complex128 if np.iscomplexobj(one) else np.float64
    one, two = one.astype(wide), two.astype(wide)
    with np.errstate(all="ignore"):
        distance, norm = np.linalg.norm(one - two), np.linalg.norm(two)
        return float(distance / norm) if norm and np.isfinite(distance) else math.inf


def _extents(index: Sequence[slice], shape: Sequence[int]) -> list[Extent]:
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
    told = compiled.memory_analysis()
    if told is None:
        return DeviceMemory(peak=peak, peak_is_bound=peak == before)
    return DeviceMemory(
        told.argument_size_in_bytes,
        told.output_size_in_bytes,
        told.alias_size_in_bytes,
        told.temp_size_in_bytes,
        peak,
        peak is not None and peak == before,
    )


def first_line(error: Exception) -> str:
    """What an error says, in a line; of an error in a callback, what the callback raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "no message"
    first, traceback, _ = lines[0].partition(": Traceback (most recent call last)")
    # What a callback raised is in the last line.
    return f"{first}: {lines[-1]}" if traceback else first
