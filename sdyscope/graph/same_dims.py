"""Which dimensions of an op's operands and results are one, by the attributes of StableHLO."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from sdyscope.graph.model import Op
from sdyscope.graph.summed_dims import dot_dims

#: An operand or result of an op, counted together, operands first; and one of its dimensions.
TensorDim: TypeAlias = tuple[int, int]


def same_dims(op: Op, shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[TensorDim, ...]]:
    """The dimensions that are one, group by group.

    Of ops that are not known here, those of one size at one place in tensors of one rank.

    Args:
        op: the op.
        shapes: those of its operands, then of its results.
    """
    last = len(shapes) - 1
    match op.mnemonic:
        case "dot_general":
            yield from _of_product(op, shapes)
        case "gather":
            yield from _of_lookup(op, shapes)
        case "scatter":
            yield from _of_scatter(op, shapes)
        case "transpose":
            order = op.integers("permutation")
            yield from (((0, dim), (last, at)) for at, dim in enumerate(order))
        case "broadcast_in_dim":
            dims = op.integers("broadcast_dimensions")
            for dim, at in enumerate(dims):
                if shapes[0][dim] == shapes[last][at]:
                    yield (0, dim), (last, at)
        case "reduce":
            reduced, inputs = op.integers("dimensions"), len(shapes) // 3
            kept = (dim for dim in range(len(shapes[0])) if dim not in reduced)
            for at, dim in enumerate(kept):
                given = ((tensor, dim) for tensor in range(inputs))
                yield *given, *((2 * inputs + tensor, at) for tensor in range(inputs))
        case "reshape":
            yield from _of_reshape(shapes[0], shapes[last])
        case "optimization_barrier" | "while":
            # What goes through, each by itself.
            count = len(shapes) // 2
            for at, shape in enumerate(shapes[:count]):
                yield from (((at, dim), (count + at, dim)) for dim in range(len(shape)))
        case _:
            rank = max(map(len, shapes), default=0)
            for dim in range(rank):
                by_size: dict[int, list[TensorDim]] = {}
                for tensor, shape in enumerate(shapes):
                    if len(shape) == rank:
                        by_size.setdefault(shape[dim], []).append((tensor, dim))
                yield from map(tuple, by_size.values())


def _of_product(op: Op, shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[TensorDim, ...]]:
    sides = [dot_dims(op, operand) for operand in range(2)]
    if None in sides:
        return
    (batch, contracted), (other_batch, other_contracted) = cast(
        "list[tuple[tuple[int, ...], tuple[int, ...]]]", sides
    )
    for dim, other in zip(contracted, other_contracted, strict=True):
        yield (0, dim), (1, other)
    for at, (dim, other) in enumerate(zip(batch, other_batch, strict=True)):
        yield (0, dim), (1, other), (2, at)
    at = len(batch)
    for operand, own in enumerate(((*batch, *contracted), (*other_batch, *other_contracted))):
        for dim in range(len(shapes[operand])):
            if dim not in own:
                yield (operand, dim), (2, at)
                at += 1


def _of_lookup(op: Op, shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[TensorDim, ...]]:
    """What is taken whole, and what the indices have besides themselves."""
    numbers = op.attributes.get("dimension_numbers")
    sizes = op.integers("slice_sizes")
    if not isinstance(numbers, Mapping) or len(sizes) != len(shapes[0]):
        return
    offset, gone, at = (
        cast("tuple[int, ...]", numbers.get(name, ()))
        for name in ("offset_dims", "collapsed_slice_dims", "operand_batching_dims")
    )
    vector = numbers.get("index_vector_dim")
    taken = (dim for dim in range(len(shapes[0])) if dim not in (*gone, *at))
    for dim, result in zip(taken, offset, strict=False):
        if sizes[dim] == shapes[0][dim]:
            yield (0, dim), (2, result)
    besides = (dim for dim in range(len(shapes[1])) if dim != vector)
    kept = (dim for dim in range(len(shapes[2])) if dim not in offset)
    result_of = dict(zip(besides, kept, strict=False))
    yield from (((1, dim), (2, result)) for dim, result in result_of.items())
    batched = cast("tuple[int, ...]", numbers.get("start_indices_batching_dims", ()))
    yield from (((0, dim), (2, result_of[by])) for dim, by in zip(at, batched, strict=False))


def _of_scatter(op: Op, shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[TensorDim, ...]]:
    """What goes on into the result, a window where it is whole; and what the indices are of."""
    numbers = op.attributes.get("scatter_dimension_numbers")
    if not isinstance(numbers, Mapping):
        return
    windows, gone, at, batched = (
        cast("tuple[int, ...]", numbers.get(name, ()))
        for name in (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
        )
    )
    indices = len(shapes) // 3  # As many inputs before them as updates and results behind.
    updates, results = range(indices + 1, 2 * indices + 1), range(2 * indices + 1, len(shapes))
    window = iter(windows)
    besides = (dim for dim in range(len(shapes[indices])) if dim != numbers.get("index_vector_dim"))
    scattered = (dim for dim in range(len(shapes[updates[0]])) if dim not in windows)
    places = dict(zip(besides, scattered, strict=False))
    for dim, size in enumerate(shapes[0]):
        group = [(tensor, dim) for tensor in (*range(indices), *results)]
        place = None if dim in (*gone, *at) else next(window, None)
        if place is not None and shapes[updates[0]][place] == size:
            group += [(tensor, place) for tensor in updates]
        if dim in at:
            batch = batched[at.index(dim)]
            group.append((indices, batch))
            place = places.pop(batch, None)
            group += [] if place is None else [(tensor, place) for tensor in updates]
        yield tuple(group)
    for dim, place in places.items():
        yield (indices, dim), *((tensor, place) for tensor in updates)


def _of_reshape(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[TensorDim, ...]]:
    """The major dimensions of what is split or joined."""
    for joined, parts in reshape_groups(before, after):
        yield (0, joined[0]), (1, parts[0])


def reshape_groups(
    before: Sequence[int], after: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The dimensions of a reshape's operand and result that hold the same elements.

    As few at a time as can be, the major ones first; those of one element are in none, and nothing
    is where there are no elements.

    Args:
        before: shape of the operand.
        after: shape of the result.
    """
    if 0 in before:
        return
    left, right = (
        deque(dim for dim, size in enumerate(shape) if size != 1) for shape in (before, after)
    )
    while left:
        joined, parts = [left.popleft()], [right.popleft()]
        sizes = before[joined[0]], after[parts[0]]
        while sizes[0] != sizes[1]:
            if sizes[0] > sizes[1]:
                parts.append(right.popleft())
                sizes = sizes[0], sizes[1] * after[parts[-1]]
            else:
                joined.append(left.popleft())
                sizes = sizes[0] * before[joined[-1]], sizes[1]
        yield tuple(joined), tuple(parts)
