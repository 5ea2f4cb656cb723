"""Rules about random numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sdyscope.graph import Op
from sdyscope.lint.rule import Message, rule
from sdyscope.lint.subject import Subject

#: Fewer numbers are keys, or nobody's trouble.
_MANY = 1024
#: What JAX calls the counters of a Threefry that can be split.
_SPLITTABLE = "iota_2x32_shape"


@rule("threefry-not-partitionable", "warning", needs="propagated")
def threefry_not_partitionable(subject: Subject) -> Iterator[Message]:
    """Sharded random numbers are drawn with `jax_threefry_partitionable` off.

    The old form of Threefry computes an array in two halves and concatenates them. If the array is
    sharded, each device then has to send what it computed to where it belongs, and the numbers may
    depend on the sharding (jax-ml/jax#40232, jax-ml/jax#21232). With `jax_threefry_partitionable`,
    on by default since JAX 0.5, each device draws its own.

    In a `vmap` over keys that is sharded by key, the two halves of a key's numbers are on one
    device, and nothing is sent.

    It is read off the module, where the two forms look different. Draws of fewer than 1,024 words
    and unsharded draws are not reported.
    """
    graph = subject.graph
    splittable = {op.function for op in graph.operations() if op.scope.endswith(_SPLITTABLE)}
    for op in graph.operations():
        if not _is_threefry(op) or op.function in splittable:
            continue
        if op.function.startswith("threefry"):
            continue  # its own inside
        # Under vmap what is before the last dimension are keys, and each has its own two halves.
        place = _largest_in_pieces(subject, op, dims=slice(-1, None))
        if place is None:
            continue
        numbers, words = place
        yield Message(
            f"{numbers:,} random words are drawn with jax_threefry_partitionable off, and are "
            "sharded: their halves are computed together and sent where they belong.",
            tensor=subject.scope(op),
            kind="op",
            source=subject.source(op),
            partitioner=subject.partitioner,
            found=words,
            hint="Set jax_threefry_partitionable (JAX's default since 0.5); the numbers change.",
        )


def _is_threefry(op: Op) -> bool:
    if op.callee is not None:
        return op.callee.startswith("threefry2x32")
    return "threefry2x32" in (op.call_target or "")


def _largest_in_pieces(
    subject: Subject, op: Op, dims: slice = slice(None)
) -> tuple[int, str] | None:
    for number, kind in enumerate(op.types):
        shape = kind.shape
        if shape is None or None in shape:
            continue
        size = math.prod(each or 0 for each in shape)
        place = subject.placement((op.id, number)) if size >= _MANY else None
        if place is not None and any(shards > 1 for shards in place.shards[dims]):
            return size * len(op.types), subject.words(place)
    return None


@rule("rng-replicated", "warning", needs="propagated")
def rng_replicated(subject: Subject) -> Iterator[Message]:
    """Each device draws all random numbers and keeps only its part.

    The generators `rbg` and `unsafe_rbg` are one op of XLA's, which its partitioner does not split:
    whatever the sharding of the result, each device draws the whole array and slices. For dropout
    masks that is the cost of the mask times the number of devices.

    Draws of fewer than 1,024 numbers and replicated draws are not reported.
    """
    for op in subject.graph.operations():
        if op.kind not in ("stablehlo.rng_bit_generator", "stablehlo.rng", "mhlo.rng"):
            continue
        place = _largest_in_pieces(subject, op)
        if place is None:
            continue
        numbers, words = place
        yield Message(
            f"XLA's generator draws {numbers // len(op.types):,} numbers of which a device needs "
            "a part: it can't be split, so each device draws all of them and takes its own.",
            tensor=subject.scope(op),
            kind="op",
            source=subject.source(op),
            partitioner=subject.partitioner,
            found=words,
            hint="Draw with Threefry, which is split, or in a shard_map with a key for each "
            "device.",
        )
