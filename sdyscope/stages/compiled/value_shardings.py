"""The shardings of values as they are written in a module, and their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sdyscope.graph.types import TensorType, parse_type
from sdyscope.stages import compat
from sdyscope.stages.propagated.mlir_ops import owner
from sdyscope.syntax import shardy
from sdyscope.values.sharding import TensorSharding


def sharding_of(value: Any) -> TensorSharding | None:
    """The sharding of a value as it is written; None without one."""
    made_by = owner(value)
    if made_by is None:
        return _sharding_of_argument(value)
    if made_by.name.startswith("sdy."):
        attributes = made_by.attributes
        for name in ("out_sharding", "sharding"):
            if name in attributes:
                return parsed_sharding(str(attributes[name]))
    attribute = compat.value_sharding(value)
    return None if attribute is None else parsed_sharding(str(attribute))


def _sharding_of_argument(value: Any) -> TensorSharding | None:
    """The sharding of a block argument, which is written on the op that the block is in."""
    around = value.owner.owner.operation
    attributes, number = around.attributes, compat.argument_number(value)
    if around.name == "sdy.manual_computation":
        written = compat.shardings_per_value(attributes["in_shardings"])
        manual = shardy.parse_manual_axes(str(attributes["manual_axes"])).axes
        return without_axes(parsed_sharding(str(written[number])), manual)
    if around.name == "stablehlo.while" and "sdy.sharding" in attributes:
        written = compat.shardings_per_value(attributes["sdy.sharding"])
        return parsed_sharding(str(written[number]))
    attribute = compat.value_sharding(value)
    return None if attribute is None else parsed_sharding(str(attribute))


def without_axes(sharding: TensorSharding, names: Sequence[str]) -> TensorSharding:
    """A sharding without some axes: that of the block which a manual computation works on."""
    dims = tuple(
        replace(dim, axes=tuple(axis for axis in dim.axes if axis.name not in names))
        for dim in sharding.dim_shardings
    )
    return replace(sharding, dim_shardings=dims)


@lru_cache(1 << 12)
def parsed_type(text: str) -> TensorType:
    """As ``parse_type``; each text once."""
    return parse_type(text)


@lru_cache(1 << 12)
def parsed_sharding(text: str) -> TensorSharding:
    """The sharding that a text of MLIR says; each text is parsed once."""
    return shardy.parse_tensor_sharding(text)
