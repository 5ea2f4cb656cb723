"""Along which dimensions an op puts elements elsewhere, or that it puts none."""

from __future__ import annotations

from collections.abc import Sequence

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
                op.integers(name) for name in ("start_indices", "limit_indices", "strides")
            )
            whole = [(0, size, 1) for size in shape]
            taken = zip(starts, limits, strides, strict=False)
            return frozenset(
                dim
                for dim, (own, all_of_it) in enumerate(zip(taken, whole, strict=False))
                if own != all_of_it
            )
        case "pad":
            edges = (op.integers(f"{edge}") for edge in ("edge_padding_low", "edge_padding_high"))
            padded = zip(*edges, op.integers("interior_padding"), strict=False)
            return frozenset(dim for dim, sizes in enumerate(padded) if any(sizes))
        case "concatenate" | "sort":
            dim = op.attributes.get("dimension")
            return frozenset((dim % max(len(shape), 1),) if isinstance(dim, int) else ())
        case "reverse":
            return frozenset(op.integers("dimensions"))
    return frozenset()


def cuts_ends_only(op: Op) -> bool:
    """Whether an op is a slice, or a padding by less than nothing, that cuts only the ends off.

    Every element that is left stays where it is, counted from the start of its dimension.

    Args:
        op: the op.
    """
    match op.mnemonic:
        case "slice":
            starts, strides = op.integers("start_indices"), op.integers("strides")
            return bool(starts) and not any(starts) and all(stride == 1 for stride in strides)
        case "pad":
            before = (*op.integers("edge_padding_low"), *op.integers("interior_padding"))
            after = op.integers("edge_padding_high")
            return bool(after) and not any(before) and all(size <= 0 for size in after)
    return False


def operand_given_back(op: Op, shapes: Sequence[Sequence[int] | None]) -> int | None:
    """Which operand is the result of an op that cuts, joins, pads, turns or sorts nothing.

    XLA takes such an op away before it partitions (`algebraic_simplifier.cc`): what JAX writes for
    a padding of none, a slice of all, or a turn of one element. None of any other op.

    Args:
        op: the op.
        shapes: of its operands, then of its result; None where that is dynamic.
    """
    *given, result = shapes
    if len(op.types) != 1 or result is None or not given or None in given:
        return None
    alike = [operand for operand, shape in enumerate(given) if shape == result]
    match op.mnemonic:
        case "slice" | "dynamic_slice":
            return 0 if given[0] == result else None
        case "dynamic_update_slice":
            return 1 if given[1] == result else None
        case "concatenate":  # The others are empty.
            return alike[0] if len(alike) == 1 else None
        case "pad" if len(op.integers("edge_padding_low")) == len(result):
            return None if rearranged_dims(op, result) else 0
        case "reverse" | "sort":
            moved = rearranged_dims(op, result)
            return 0 if moved and all(result[dim] == 1 for dim in moved) else None
    return None
