"""Names that libraries give the dimensions of a program's arguments."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from sdyscope.facts.program import Program
from sdyscope.inspection import inspect
from sdyscope.lint import named_axes
from sdyscope.mesh_config import MappedMesh
from sdyscope.stages.lowered.named_axes import argument_axis_names


def leaf(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_named_arrays_of_haliax() -> None:
    hax = pytest.importorskip("haliax")
    axes = hax.Axis("embed", 8), hax.Axis("mlp", 16)
    args = ({"w": hax.NamedArray(leaf(8, 16), axes), "b": leaf(16)}, leaf(4))
    found = argument_axis_names(Program("p", jax.jit(lambda p, x: x), args))
    assert found == (None, ("embed", "mlp"), None)


def test_logically_partitioned_of_flax() -> None:
    linen = pytest.importorskip("flax.linen")
    boxed = {
        "logical": linen.LogicallyPartitioned(leaf(8, 16), ("embed", None)),
        # Its names are mesh axes.
        "physical": linen.Partitioned(leaf(8, 16), ("data", None)),
    }
    axes = argument_axis_names(Program("p", jax.jit(lambda p: p), (boxed,)))
    assert axes == (("embed", "unnamed"), None)


@dataclass
class Axes:
    """An object that has axes, and no names of them."""

    axes: tuple[int, ...] = (0, 1)
    array: Any = None


def test_what_only_looks_like_a_named_array_is_none() -> None:
    args = ({"w": leaf(2)}, leaf(3))
    assert argument_axis_names(Program("p", jax.jit(lambda p, x: x), args)) == (None, None)
    static = jax.jit(lambda _, x: x, static_argnums=0)
    assert argument_axis_names(Program("p", static, (Axes(), leaf(3)))) == (None, None)


def test_of_alike_arguments_the_shortest_path_stands_for_all() -> None:
    args = ({"w": leaf(8, 16)}, {"mu": {"w": leaf(8, 16)}}, leaf(4, 8), leaf(7))
    program = inspect(jax.jit(lambda p, state, x, unused: (p, state, x)), *args)
    names = [("embed", "mlp"), ("embed", "mlp"), ("batch", "embed"), ("embed",)]
    axes = named_axes(MappedMesh(), program.requested, names)
    assert axes is not None
    assert axes.parameters == {"p['w']": ("embed", "mlp")}
    # It has the axis of the batch; what jit drops is not in the module.
    assert axes.activations == {"x": ("batch", "embed")}
    assert named_axes(MappedMesh(), program.requested, names[:-1]) is None
    assert named_axes(MappedMesh(), program.requested, [None] * 4) is None
