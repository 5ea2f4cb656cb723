"""MLIR's and HLO's Python bindings, and Shardy's attributes in them."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import re
from typing import Any

import numpy as np
from jax._src import core
from jax._src.interpreters import mlir
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from sdyscope.stages.compat.versions import version_tuple
from sdyscope.syntax.strings import string_value

# A module of its own from JAX 0.10 on.
hlo: Any = importlib.import_module(
    "jaxlib._hlo" if importlib.util.find_spec("jaxlib._hlo") else "jaxlib._jax"
)


def new_context() -> Any:
    """An MLIR context in which every dialect that JAX's bindings know is loaded."""
    return mlir.make_ir_context()


def location_name(operation: Any) -> str:
    """The name that HLO has for an op, which is the outermost of its location; empty for none."""
    return split_location(operation.location)[1]


def split_location(location: Any) -> tuple[tuple[str, ...], str, Any]:
    """The types in front of a location's name, the name, and the location that it is around.

    A name that ends with a colon (``jit:``) is a type: XLA takes the next one for an op's name.
    """
    types: list[str] = []
    # Up to JAX 0.9 asking for the name of a location that has none aborts.
    while location.is_a_name() if hasattr(location, "is_a_name") else hasattr(location, "name_str"):
        name, inside = str(location.name_str), location.child_loc
        if not name.endswith(":"):
            return tuple(types), name, inside
        types.append(name)
        location = inside
    return tuple(types), "", location


def named_hlo_shardings() -> bool:
    """Whether XLA writes shardings with the names of axes in HLO (version 3): JAX 0.11.2 does."""
    flags = re.findall(r"--xla_enable_hlo_sharding_v3(?:=(\w+))?", os.environ.get("XLA_FLAGS", ""))
    if flags:
        return flags[-1].lower() not in ("false", "0")
    return version_tuple() >= (0, 11, 2)


def text(attribute: Any) -> str:
    r"""The text of a StringAttr, in which bytes that are no UTF-8 are written ``\xff``."""
    return string_value(ir.StringAttr(attribute))


def symbol_name(operation: Any) -> str:
    """The name of a function or another symbol."""
    return text(operation.attributes["sym_name"])


def is_public(operation: Any) -> bool:
    """Whether a function can be called from outside the module."""
    attributes = operation.attributes
    return "sym_visibility" not in attributes or text(attributes["sym_visibility"]) == "public"


def locations_are_writable() -> bool:
    """Whether the location of an op in MLIR can be set, which it can since JAX 0.9."""
    return getattr(ir.Operation.location, "fset", None) is not None


def dictionary_items(dictionary: Any) -> list[tuple[str, Any]]:
    """Names and values of a DictAttr or of an op's attributes.

    They iterate over pairs or, since JAX 0.10, names.
    """
    return [
        (item, dictionary[item]) if isinstance(item, str) else (item.name, item.attr)
        for item in dictionary
    ]


def dtype_name(dtype: Any) -> str:
    """MLIR's name of the element type that JAX lowers `dtype` to: `f32`, `bf16`, `i1`, `ui32`."""
    return _dtype_name(np.dtype(dtype))


@functools.cache
def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.name == "float0":  # the tangents of integers
        return "i1"
    with new_context(), ir.Location.unknown():
        return str(mlir.dtype_to_ir_type(dtype))


def element_shape(aval: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of an abstract value in the IR: a PRNG key is an array of `ui32` there."""
    physical = core.physical_aval(aval)
    return tuple(physical.shape), physical.dtype


def single_sharding(attribute: Any) -> Any:
    """The ``#sdy.sharding`` of an op with one result, from its ``#sdy.sharding_per_value``."""
    if sdy.TensorShardingAttr.isinstance(attribute):
        return attribute
    return next(iter(sdy.TensorShardingPerValueAttr(attribute).shardings))


def shardings_per_value(attribute: Any) -> list[Any]:
    """The ``#sdy.sharding``s in an ``#sdy.sharding_per_value``."""
    return list(sdy.TensorShardingPerValueAttr(attribute).shardings)


def value_sharding(value: Any) -> Any:
    """The ``#sdy.sharding`` written for a value; None when there is none.

    Those of the arguments of functions stand on the function; other block arguments have none.
    """
    owner = value.owner
    if isinstance(owner, ir.Block):
        function = owner.owner.operation
        if function.name != "func.func" or "arg_attrs" not in function.attributes:
            return None
        arguments: Any = function.attributes["arg_attrs"]
        return dict(dictionary_items(arguments[ir.BlockArgument(value).arg_number])).get(
            "sdy.sharding"
        )
    operation = owner.operation
    if operation.name in ("sdy.sharding_constraint", "sdy.reshard"):
        return operation.attributes["sharding"]
    name = "out_shardings" if operation.name == "sdy.manual_computation" else "sdy.sharding"
    if name not in operation.attributes:
        return None
    written = sdy.TensorShardingPerValueAttr(operation.attributes[name])
    return list(written.shardings)[ir.OpResult(value).result_number]


def fully_open(attribute: Any) -> Any:
    """An ``#sdy.sharding`` on the same mesh with all dimensions open; None if this is one."""
    sharding = sdy.TensorShardingAttr(attribute)
    rank = len(sharding.dimension_shardings)
    mesh = str(sharding.mesh_or_ref)
    dims = ", ".join(["{?}"] * rank)
    opened = ir.Attribute.parse(f"#sdy.sharding<{mesh}, [{dims}]>", attribute.context)
    return None if opened == attribute or rank == 0 else opened


def is_tuple(type_: Any) -> bool:
    """Whether an MLIR type is a tuple."""
    return str(type_).startswith("tuple<")


def is_block_argument(value: Any) -> bool:
    """Whether an MLIR value is an argument of a block, not an op's result."""
    return isinstance(value.owner, ir.Block)


def argument_number(value: Any) -> int:
    """Which argument of its block a block argument is."""
    return int(ir.BlockArgument(value).arg_number)


def result_number(value: Any) -> int:
    """Which of its op's results a value is."""
    return int(ir.OpResult(value).result_number)


def integers(attribute: Any) -> tuple[int, ...] | None:
    """The elements of a dense attribute of integers, in order; None for anything else."""
    try:
        dense: Any = ir.DenseIntElementsAttr(attribute)
    except ValueError:
        return None
    if dense.is_splat:
        shape = ir.ShapedType(dense.type).shape
        return (int(dense.get_splat_value().value),) * math.prod(shape)
    return tuple(int(number) for number in dense)


def comparison_direction(operation: Any) -> str:
    """How a ``stablehlo.compare`` compares: ``LT``, ``NE``, ..."""
    return str(
        stablehlo.ComparisonDirectionAttr(operation.attributes["comparison_direction"]).value
    )
