"""Rules about random numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sdyscope.facts.lint import RandomInHalves, RandomRepeats, RandomReplicated
from sdyscope.facts.sharded import Sharded
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.op_kinds import is_elementwise
from sdyscope.lint.manual_bodies import ManualBody, manual_bodies
from sdyscope.lint.rule import Sighting, rule
from sdyscope.lint.subject import Subject

#: Fewer numbers are keys, or nobody's trouble.
_MANY = 1024
#: What JAX calls the counters of a Threefry that can be split.
_SPLITTABLE = "iota_2x32_shape"


@rule("threefry-not-partitionable", "warning", needs="propagated")
def threefry_not_partitionable(subject: Subject) -> Iterator[Sighting]:
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
        numbers, sharded = place
        yield subject.at_op(op, RandomInHalves(numbers, sharded))


def _is_threefry(op: Op) -> bool:
    if op.callee is not None:
        return op.callee.startswith("threefry2x32")
    return "threefry2x32" in (op.call_target or "")


def _largest_in_pieces(
    subject: Subject, op: Op, dims: slice = slice(None)
) -> tuple[int, Sharded] | None:
    for number, kind in enumerate(op.types):
        shape = kind.shape
        if shape is None or None in shape:
            continue
        size = math.prod(each or 0 for each in shape)
        place = subject.placement((op.id, number)) if size >= _MANY else None
        if place is not None and any(shards > 1 for shards in place.shards[dims]):
            return size * len(op.types), subject.sharded(place)
    return None


@rule("rng-replicated", "warning", needs="propagated")
def rng_replicated(subject: Subject) -> Iterator[Sighting]:
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
        numbers, sharded = place
        yield subject.at_op(op, RandomReplicated(numbers // len(op.types), sharded))


#: Ops that apply a number to an element of data.
_APPLYING = frozenset({"add", "divide", "multiply", "select", "subtract"})
#: What a function has beside that.
_AROUND = frozenset({"argument", "call", "return"})


@rule("random-numbers-repeat", "warning")
def random_numbers_repeat(subject: Subject) -> Iterator[Sighting]:
    """Devices draw the same random numbers for different blocks of data.

    In the body of a `shard_map` a key that is the same on all devices along an axis gives each of
    them the same numbers. Multiplied with, added to or choosing among the elements of a block that
    differs along that axis, they are the same dropout mask, or noise, for each block. Outside of a
    `shard_map` the whole array is drawn, and each device has its own part of it. Fold the device's
    place into the key: `jax.random.fold_in(key, jax.lax.axis_index(axis))`.

    Numbers are followed from where the body draws them, one for an element, to where they meet
    data; not where both are in a loop or a function that the body calls, nor where numbers are
    spread or contracted first, as random weights are. Where the blocks are meant to get the same
    numbers, ignore it.
    """
    subject.require_shardy()
    graph = subject.graph
    axes_of: dict[int, list[str]] = {}
    for map_, axis, body in manual_bodies(subject):
        for op in graph.children(map_):
            if _draws(graph, op) and _is_applied(graph, op, body):
                axes_of.setdefault(op.id, []).append(axis)
    for node, axes in axes_of.items():
        yield subject.at_op(graph.ops[node], RandomRepeats(tuple(axes)))


def _draws(graph: OpGraph, op: Op) -> bool:
    return op.callee is not None and any(
        inner.kind == "stablehlo.rng_bit_generator" or _is_threefry(inner)
        for inner in (op, *graph.inside([op]))
    )


def _is_applied(graph: OpGraph, draw: Op, body: ManualBody) -> bool:
    """Whether numbers that are the same on all devices meet what differs, element by element."""
    shape = draw.types[0].shape
    if body.varies((draw.id, 0)) != "no":
        return False
    waiting, seen = [draw], {draw.id}
    while waiting:
        for user, _ in graph.uses(waiting.pop()):
            if user.id in seen or not user.types or user.types[0].shape != shape:
                continue
            seen.add(user.id)
            # jnp.where is a function of its own.
            inside = [user] if user.callee is None else graph.inside([user])
            made_by = [op for op in inside if op.mnemonic not in _AROUND]
            if not all(is_elementwise(op.kind) for op in made_by):
                continue
            varies = body.varies((user.id, 0))
            if varies == "yes" and not _APPLYING.isdisjoint(op.mnemonic for op in made_by):
                return True
            if varies == "no":
                waiting.append(user)
    return False
