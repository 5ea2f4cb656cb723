"""Entries of the table of functions."""

from __future__ import annotations

from collections.abc import Mapping

from sdyscope.graph.attributes import result_shardings
from sdyscope.graph.model import Argument, AttributeValue, Op, Result
from sdyscope.graph.types import TensorType

__all__ = ["argument_of", "result_of"]


def argument_of(op: Op) -> Argument:
    """An entry of the table of functions, from the argument's node."""
    return Argument(
        op.id,
        op.argument,
        op.location.scope,
        op.types[0],
        op.shardings[0],
        op.attributes,
        op.location,
    )


def result_of(index: int, type_: TensorType, attributes: Mapping[str, AttributeValue]) -> Result:
    """An entry of the table of functions, from the attributes written on the result."""
    name = attributes.get("jax.result_info", "")
    return Result(index, name, type_, result_shardings(attributes, 1)[0], attributes)
