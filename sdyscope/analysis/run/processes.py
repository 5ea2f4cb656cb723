"""What several processes measured of one program, put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sdyscope.facts.execution import (
    BlockDifference,
    DeviceMemory,
    ExecutedArray,
    Execution,
    ProcessTimes,
    Reference,
)


def execution_of_all(parts: Sequence[Execution]) -> Execution:
    """One execution of what each process saw of it, compared with one device already.

    Shards, replicas and differences are those of all processes. A step lasts until its last process
    is ready, and memory is that of the fullest device.

    Args:
        parts: one a process, all under one partitioner.
    """
    first = parts[0]
    if len(parts) == 1 or first.failure:
        return first
    return replace(
        first,
        arrays=tuple(map(_array, zip(*(part.arrays for part in parts), strict=True))),
        # Where the reference failed in one process, nothing is known of the whole.
        differences=tuple(
            map(_differences, zip(*(part.differences for part in parts), strict=False))
        ),
        compile_seconds=max(part.compile_seconds or 0.0 for part in parts),
        step_seconds=tuple(map(max, zip(*(part.step_seconds for part in parts), strict=True))),
        memory=_memory([part.memory for part in parts]),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        parts=tuple(
            ProcessTimes(part.compile_seconds, part.step_seconds, part.memory.peak)
            for part in parts
        ),
    )


def _array(parts: Sequence[ExecutedArray]) -> ExecutedArray:
    shards = [shard for part in parts for shard in part.shards]
    unequal = [replica for part in parts for replica in part.unequal]
    return replace(
        parts[0],
        shards=tuple(sorted(shards, key=lambda shard: shard.device)),
        unequal=tuple(sorted(unequal, key=lambda replica: replica.device)),
    )


def _differences(
    parts: Sequence[tuple[BlockDifference, ...] | None],
) -> tuple[BlockDifference, ...] | None:
    known = [part for part in parts if part is not None]
    # Where a process could not compare its part, the error of the whole is not known.
    return tuple(figure for part in known for figure in part) if len(known) == len(parts) else None


def _memory(parts: Sequence[DeviceMemory]) -> DeviceMemory:
    peak = _most(part.peak for part in parts)
    return DeviceMemory(
        _most(part.arguments for part in parts),
        _most(part.results for part in parts),
        _most(part.aliased for part in parts),
        _most(part.temporaries for part in parts),
        peak,
        any(part.peak_is_bound for part in parts if part.peak == peak),
    )


def _most(counts: Iterable[int | None]) -> int | None:
    return max((count for count in counts if count is not None), default=None)


def reference_of_all(parts: Sequence[Reference]) -> Reference:
    """The step on one device, as every process ran it for itself; the slowest one's time."""
    failed = next((part for part in parts if part.failure), None)
    if failed is not None:
        return failed
    times = [part.step_seconds for part in parts if part.step_seconds is not None]
    return replace(parts[0], step_seconds=max(times, default=None))
