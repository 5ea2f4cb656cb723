"""What several devices or processes have the same of, compared bit by bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import numpy as np

from sdyscope.facts.execution import Extent, Reference, UnequalReplica
from sdyscope.stages.executed.device_arrays import digest, extents, is_key, is_unreduced
from sdyscope.stages.executed.processes import ProcessGroup

_Index: TypeAlias = tuple[Extent, ...]

_First: TypeAlias = tuple[int, str]
"""Position of the first device that holds a block, and the digest of what it holds."""

_Held: TypeAlias = list[tuple[int, _Index, Any]]
"""Of one array: each device of this process, the block that it holds, and what is in it (numpy)."""


def unequal_replicas(
    results: Sequence[Any], devices: Sequence[Any], group: ProcessGroup
) -> list[tuple[UnequalReplica, ...]]:
    """The replicas on this process's devices that are not, bit by bit, what the first holder has.

    Args:
        results: arrays; every process must give the same ones.
        devices: those that the program runs on, in order.
        group: the processes.

    Returns:
        For each result the replicas, by device. The first holder may be another process's: of the
        others only digests are sent, and what differs.
    """
    positions = {device: position for position, device in enumerate(devices)}
    held = [_held(result, positions) for result in results]
    mine = [_firsts(array) for array in held]
    said = group.all_of(
        [tuple(firsts.items()) for firsts in mine],
        "compared its replicas",
        list[tuple[tuple[_Index, _First], ...]],
    )
    by_process = [[dict(first) for first in firsts] for firsts in said]
    return [
        tuple(_unequal(held[k], mine[k], [firsts[k] for firsts in by_process], f"r/{k}", group))
        for k in range(len(results))
    ]


def _held(array: Any, positions: Mapping[Any, int]) -> _Held:
    if is_unreduced(array):
        return []
    data = jax.random.key_data(array) if is_key(array) else array
    shards = sorted(data.addressable_shards, key=lambda shard: positions[shard.device])
    return [
        (
            positions[shard.device],
            tuple(extents(shard.index, data.shape)),
            np.asarray(shard.data),
        )
        for shard in shards
    ]


def _firsts(held: _Held) -> dict[_Index, _First]:
    firsts: dict[_Index, _First] = {}
    for device, index, values in held:
        if index not in firsts:
            firsts[index] = (device, digest(values))
    return firsts


def _unequal(
    held: _Held,
    mine: Mapping[_Index, _First],
    by_process: Sequence[Mapping[_Index, _First]],
    key: str,
    group: ProcessGroup,
) -> Iterator[UnequalReplica]:
    first: dict[_Index, tuple[int, Any]] = {}
    own: dict[_Index, Any] = {}
    for _, index, values in held:
        own.setdefault(index, values)
    everyone = {
        index: {k: firsts[index] for k, firsts in enumerate(by_process) if index in firsts}
        for index in mine
    }
    owners = {index: min(said, key=lambda k: said[k][0]) for index, said in everyone.items()}
    # All that others need is told before anything is waited for.
    for index, (_, said) in mine.items():
        differ = any(its != said for _, its in everyone[index].values())
        if differ and owners[index] == group.number:
            group.tell(f"{key}/{group.rounds}/{index}", own[index].tobytes())
    for index, (_, said) in mine.items():
        device, its = everyone[index][owners[index]]
        values = own[index]
        if its != said:
            owner = group.members[owners[index]]
            data = group.fetch(f"{key}/{group.rounds}/{index}", owner)
            values = np.frombuffer(data, values.dtype).reshape(values.shape)
        first[index] = (device, values)
    for device, index, values in held:
        holder, block = first[index]
        if device != holder and values.tobytes() != block.tobytes():
            yield UnequalReplica(device, holder, _relative_error(values, block))


def _relative_error(actual: Any, expected: Any) -> float:
    """Norm of the difference over the norm of the second."""
    wide = np.complex128 if np.iscomplexobj(actual) else np.float64
    actual, expected = actual.astype(wide), expected.astype(wide)
    with np.errstate(all="ignore"):
        distance, norm = np.linalg.norm(actual - expected), np.linalg.norm(expected)
        return float(distance / norm) if norm and np.isfinite(distance) else math.inf


def firsts_results(reference: Reference, group: ProcessGroup) -> Reference:
    """A step on one device, with process 0's results where this process has others.

    Args:
        reference: what this process has computed; every process must give its own.
        group: the processes.

    Raises:
        CompilerError: another process has none.
    """
    if group.count == 1:
        return reference
    mine = None if reference.failure else [digest(output) for output in reference.outputs]
    by_process = group.all_of(mine, "run it on one device", list[str] | None)
    if any(said is None for said in by_process):
        return reference
    outputs = list(reference.outputs)
    differ = [
        k for k, first in enumerate(by_process[0]) if any(said[k] != first for said in by_process)
    ]
    for k in differ:
        if group.number == 0:
            group.tell(f"reference/{group.rounds}/{k}", outputs[k].tobytes())
        elif by_process[group.number][k] != by_process[0][k]:
            data = group.fetch(f"reference/{group.rounds}/{k}", group.members[0])
            outputs[k] = np.frombuffer(data, outputs[k].dtype).reshape(outputs[k].shape)
    return replace(reference, outputs=tuple(outputs))
