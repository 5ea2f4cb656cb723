"""Which dimensions of its operands an op sums over, looks places up in, or keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from sdyscope.graph.model import Op


def summed_dims(op: Op, operand: int, rank: int, operands: int) -> frozenset[int] | None:
    """The dimensions of an operand that the op sums over or looks up in; None where not known.

    By the attributes of StableHLO's specification: what a product contracts, a reduction reduces;
    of a gather the dimensions that indices are of; of a scatter those of its updates that are
    scattered, and of its indices.

    Args:
        op: the op.
        operand: which operand.
        rank: its rank.
        operands: how many operands there are.
    """
    match op.mnemonic:
        case "dot_general":
            side = ("lhs", "rhs")[operand]
            return _dims(op, "dot_dimension_numbers", f"{side}_contracting_dimensions")
        case "reduce":
            reduced = cast("tuple[int, ...]", op.attributes.get("dimensions", ()))
            return frozenset(reduced if operand < operands // 2 else ())
        case "gather":
            return (
                _dims(op, "dimension_numbers", "start_index_map") if operand == 0 else frozenset()
            )
        case "scatter":
            inputs = operands // 2
            if operand < inputs:
                return frozenset()
            if operand == inputs:
                vector = dimension_numbers(op, "scatter_dimension_numbers").get("index_vector_dim")
                return frozenset(range(rank)) - {vector}
            windows = _dims(op, "scatter_dimension_numbers", "update_window_dims")
            return None if windows is None else frozenset(range(rank)) - windows
    return None


def dot_dims(op: Op, operand: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The batching and the contracting dimensions of a product's operand; None where not known."""
    side = ("lhs", "rhs")[operand]
    numbers = dimension_numbers(op, "dot_dimension_numbers")
    dims = [numbers.get(f"{side}_{kind}_dimensions") for kind in ("batching", "contracting")]
    if not all(isinstance(each, tuple) for each in dims):
        return None
    return cast("tuple[tuple[int, ...], tuple[int, ...]]", tuple(dims))


def free_dims(op: Op, operand: int, rank: int) -> frozenset[int]:
    """The dimensions that only this operand of a product gives its result; none of other ops."""
    if op.mnemonic != "dot_general":
        return frozenset()
    side = ("lhs", "rhs")[operand]
    shared = [
        _dims(op, "dot_dimension_numbers", f"{side}_{kind}_dimensions") or frozenset()
        for kind in ("contracting", "batching")
    ]
    return frozenset(range(rank)).difference(*shared)


def spatial_dims(op: Op) -> tuple[tuple[int, int], ...]:
    """The dimensions that a kernel moves over, in the input and the result; none of other ops."""
    if op.mnemonic != "convolution":
        return ()
    numbers = dimension_numbers(op, "dimension_numbers")
    sides = (numbers.get(f"{side}_spatial_dimensions", ()) for side in ("input", "output"))
    return tuple(zip(*cast("Iterable[tuple[int, ...]]", sides), strict=True))


def dimension_numbers(op: Op, name: str) -> Mapping[str, object]:
    """The dimension numbers that an attribute of an op has, by their names; none without it."""
    numbers = op.attributes.get(name)
    return numbers if isinstance(numbers, Mapping) else {}


def _dims(op: Op, name: str, field: str) -> frozenset[int] | None:
    dims = dimension_numbers(op, name).get(field)
    return frozenset(cast("tuple[int, ...]", dims)) if isinstance(dims, tuple) else None
