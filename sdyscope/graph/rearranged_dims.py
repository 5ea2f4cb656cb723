"""Along which dimensions an op puts elements elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sdyscope.graph.model import Op


def rearranged_dims(op: Op, shape: Sequence[int]) -> frozenset[int]:
    """The dimensions of an operand along which the op cuts, joins, pads, turns or sorts it.

    By the attributes of StableHLO's specification; none of any other op.

    Args:
        op: the op.
        shape: the operand's.
    """
    match op.mnemonic:
        case "slice":
            starts, limits, strides = (
                _numbers(op, name) for name in ("start_indices", "limit_indices", "strides")
            )
            whole = [(0, size, 1) for size in shape]
            taken = zip(starts, limits, strides, strict=False)
            return frozenset(
                dim
                for dim, (own, all_of_it) in enumerate(zip(taken, whole, strict=False))
                if own != all_of_it
            )
        case "pad":
            edges = (_numbers(op, f"{edge}") for edge in ("edge_padding_low", "edge_padding_high"))
            padded = zip(*edges, _numbers(op, "interior_padding"), strict=False)
            return frozenset(dim for dim, sizes in enumerate(padded) if any(sizes))
        case "concatenate" | "sort":
            dim = op.attributes.get("dimension")
            return frozenset((dim % max(len(shape), 1),) if isinstance(dim, int) else ())
        case "reverse":
            return frozenset(_numbers(op, "dimensions"))
    return frozenset()


def _numbers(op: Op, name: str) -> tuple[int, ...]:
    numbers = op.attributes.get(name)
    return cast("tuple[int, ...]", numbers) if isinstance(numbers, tuple) else ()
