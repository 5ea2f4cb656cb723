"""The windows that an op reads or writes of its first operand, by the attributes of StableHLO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sdyscope.graph.model import Op
from sdyscope.graph.summed_dims import dimension_numbers


def window_sizes(op: Op, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The sizes of a window along each dimension; empty of an op that has none.

    Args:
        op: the op.
        shapes: those of its operands.
    """
    match op.mnemonic:
        case "dynamic_slice" | "gather":
            return op.integers("slice_sizes")
        case "dynamic_update_slice":
            return shapes[1]
        case "scatter":
            # Of its updates, those dimensions that its indices are not of.
            sizes = iter(_numbers(op, "scatter_dimension_numbers", "update_window_dims"))
            single = (*indexed_dims(op), *mapped_dims(op))
            return tuple(
                1 if dim in single else shapes[-1][next(sizes)] for dim in range(len(shapes[0]))
            )
    return ()


def mapped_dims(op: Op) -> tuple[int, ...]:
    """The dimensions of the first operand that `vmap` maps a gather or scatter over."""
    return (
        *_numbers(op, "dimension_numbers", "operand_batching_dims"),
        *_numbers(op, "scatter_dimension_numbers", "input_batching_dims"),
    )


def indexed_dims(op: Op) -> tuple[int, ...]:
    """Those of which a gather or scatter takes single elements, by their indices."""
    return (
        *_numbers(op, "dimension_numbers", "collapsed_slice_dims"),
        *_numbers(op, "scatter_dimension_numbers", "inserted_window_dims"),
    )


def _numbers(op: Op, attribute: str, name: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", dimension_numbers(op, attribute).get(name, ()))
