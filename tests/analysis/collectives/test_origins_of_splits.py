"""Origins of ops that XLA splits, or may split, over axes that no annotation names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from origin_programs import (
    MESH,
    PARTITIONERS,
    abstract,
    collectives_of,
    counted,
    cubed,
    in_cube,
    named,
    of_cube,
    of_kind,
    parts_of,
)

from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.words.origins import origin_text, spec_text

pytestmark = pytest.mark.compiles


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_does_not_split_is_gathered_for_it(partitioner: Any) -> None:
    """Propagation lets a Fourier transform keep its axes, and the partitioner gathers it."""
    x = abstract((16, 64), "data", "model")
    collectives = collectives_of(jax.jit(jnp.fft.fft), x, partitioner=partitioner)
    origins = {axis.name: origin for each, _, origin in parts_of(collectives) for axis in each.axes}
    assert {origin.op for origin in origins.values()} == {"fft"}
    after = {name: spec_text(origin.after) for name, origin in origins.items()}
    # One all-gather after the other: none leaves the other axis.
    assert after == {"data": "P(None, None)", "model": "P(None, None)"}


def test_a_gather_over_an_axis_that_only_xla_uses_is_split() -> None:
    index = counted((24,), "data")
    # Of the updates, which are whole; the result has `model`, by the weight behind.
    updates, w = abstract((24, 32), None, None), abstract((32, 16), "model", None)
    step = jax.jit(lambda x, index, updates, w: jnp.tanh(x.at[index].set(updates)) @ w)
    parts = parts_of(collectives_of(step, abstract((16, 32), "data"), index, updates, w))
    (whole,) = (o for c, part, o in parts if part.shape.leaves[0].dimensions == (24, 32))
    assert (whole.kind, whole.op) == ("split", "scatter")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_product_that_xla_splits_of_itself(partitioner: Any) -> None:
    x = abstract((16, 16), None, "model")
    parts = parts_of(collectives_of(jax.jit(lambda x: x @ x), x, partitioner=partitioner))
    of_data = [origin for each, _, origin in parts if [a.name for a in each.axes] == ["data"]]
    assert [origin.kind for origin in of_data] == ["split"]
    assert origin_text(of_data[0]) == (
        "XLA itself splits dot_general over these axes; nothing that it sums is sharded on them"
    )


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_lookup_that_xla_splits_is_not_for_what_is_computed_of_it(partitioner: Any) -> None:
    """XLA cuts the rows over `model`, which only the weight behind has."""
    x, w = abstract((128, 32), "data"), abstract((32, 32), None, "model")
    at = counted((512,), "data")
    step = jax.jit(lambda x, at, w: x[at] @ w)
    parts = parts_of(collectives_of(step, x, at, w, partitioner=partitioner))
    of_model = [
        (each.kind, origin.op, origin.kind)
        for each, _, origin in parts
        if [axis.name for axis in each.axes] == ["model"]
    ]
    assert of_model == [("all-reduce", "gather", "split")]


def test_the_edges_of_windows_that_xla_splits_of_itself_are_for_no_tensor_further_on() -> None:
    """The convolution has no `b`, which XLA splits it over; the gain behind it has."""

    def step(x: Any, w: Any, gain: Any) -> Any:
        dims = ("NWC", "WIO", "NWC")
        kernel = jnp.stack([w] * 3)
        y = jax.lax.conv_general_dilated(x[None], kernel, (1,), "SAME", dimension_numbers=dims)[0]
        y = jnp.tanh(y) * gain
        return jax.lax.with_sharding_constraint(y, in_cube("c", "a"))

    args = (cubed((16, 16), None, ("a", "c")), cubed((16, 16), "c", "a"), cubed((16,), "b"))
    parts = parts_of(of_cube(jax.jit(step), *args))
    of_b = [
        (origin.kind, origin.op)
        for each, _, origin in parts
        if each.kind == "collective-permute" and [axis.name for axis in each.axes or ()] == ["b"]
    ]
    assert set(of_b) == {("split", "conv_general_dilated")}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_sum_that_xla_may_split_without_its_annotations_says_so(partitioner: Any) -> None:
    """Without `x`'s sharding XLA sums over `data` all the same: `model` is on other dimensions."""
    x, w = abstract((16, 32), None, "data"), abstract((4, 32, 8), None, None, "model")
    step = jax.jit(lambda x, w, sizes: jax.lax.ragged_dot(x, w, sizes))
    for each, sums in ((x, "reduction"), (abstract((16, 32)), "split")):
        collectives = collectives_of(step, each, w, counted((4,), "model"), partitioner=partitioner)
        (origin,) = of_kind(parts_of(collectives), "all-reduce")
        assert origin.kind == sums
        if origin.kind == "reduction":
            assert "perhaps by XLA itself)" in origin_text(origin)


def test_a_product_both_of_whose_sides_have_an_axis_may_be_split() -> None:
    """The layer's sum over `data` stays without `x`'s sharding: `model` is rows and columns."""
    x, layers = abstract((16, 32), "model", "data"), abstract((4, 32, 32), None, None, "model")
    step = jax.jit(lambda x, layers: jax.lax.scan(lambda c, w: (c @ w, None), x, layers)[0])
    parts = parts_of(collectives_of(step, x, layers))
    (origin,) = of_kind(parts, "all-reduce")
    assert (origin.kind, origin.may_split) == ("reduction", True)


def test_a_sum_that_xla_does_not_split_of_itself_says_nothing_of_it() -> None:
    x, w = abstract((16, 32), "data", "model"), abstract((32, 8), "model")
    (origin,) = (o for *_, o in parts_of(collectives_of(jax.jit(jnp.matmul), x, w)))
    assert (origin.kind, origin.may_split) == ("reduction", False)
    # A batch that both sides have is one dimension.
    x, w = abstract((4, 16, 32), "data", None, "model"), abstract((4, 32, 8), "data", "model")
    (origin,) = (o for *_, o in parts_of(collectives_of(jax.jit(jnp.matmul), x, w)))
    assert (origin.kind, origin.may_split) == ("reduction", False)


def test_a_product_of_a_value_with_itself_may_be_split_by_xla() -> None:
    """No sharding of it suits both sides; once it has none, XLA may still split one of them."""
    step = jax.jit(lambda x: jnp.einsum("bd,bc->dc", x, x))
    parts = parts_of(collectives_of(step, abstract((16, 32), None, "data")))
    (origin,) = of_kind(parts, "all-gather")
    assert origin.may_split


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_product_torn_between_other_axes_says_whose_these_are(partitioner: Any) -> None:
    """No other tensor has `a`: it is gathered since `b` is on one dimension of each side."""
    con = jax.lax.with_sharding_constraint
    apart = in_cube(None, ("a", "b"))

    def step(x: Any) -> Any:
        y = con(x, apart)
        z = jnp.tanh(y.reshape(2, 8, -1)).sum(0).repeat(2, 0)
        return jnp.einsum("ab,cb,cd->ad", z, x, x)

    parts = parts_of(of_cube(jax.jit(step), cubed((16, 16), None, "a"), partitioner=partitioner))
    for each, _, origin in parts:
        if each.kind == "all-gather":
            assert named(origin, "needed"), origin_text(origin)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_xla_may_split_a_sum_to_which_an_axis_comes_once_its_annotation_has_gone_whole(
    partitioner: Any,
) -> None:
    """`o` has `model` too, and without it that comes from `u`, as `k` has it on the result."""

    def step(x: Any, k: Any, o: Any, u: Any) -> Any:
        h = jnp.tanh(x)
        return h @ k.T, h @ o, o + u

    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    sharded = abstract((16, 16), "model"), abstract((16, 16), "data", "model")
    arguments = free, *sharded, abstract((16, 16), "model")
    program = Program("step", jax.jit(step), arguments, mesh=compat.abstract_mesh(MESH))
    inspection = Inspection(program, [partitioner])
    sums = [o for _, _, o in parts_of(inspection.collectives(partitioner)) if o.kind == "reduction"]
    assert sums
    assert all(origin.may_split for origin in sums)
    without = inspection.what_if({"o": None}).collectives(partitioner)
    assert "split" in {origin.kind for _, _, origin in parts_of(without)}


def test_xla_may_split_a_sum_both_of_whose_sides_get_another_axis() -> None:
    """Layers share the axis of their biases; without these, `x` shards both sides of a product."""

    def loss(layers: Any, head: Any, x: Any) -> Any:
        for w, b in layers:
            x = jnp.maximum(x @ w + b, 0)
        return (jnp.tanh(x @ head) ** 2).sum()

    def step(layers: Any, head: Any, x: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, layers, jax.grad(loss)(layers, head, x))

    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    layers = [(free, cubed((16,), "a"))] * 2
    arguments = layers, cubed((16, 16), None, "a"), cubed((16, 16), "c", "b")
    outs = [(None, layers[0][1].sharding)] * 2
    jitted = jax.jit(step, out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner="gspmd"))
    sums = [
        origin
        for each, _, origin in parts
        if origin.kind == "reduction" and [axis.name for axis in each.axes or ()] == ["a"]
    ]
    assert sums
    assert all(origin.may_split for origin in sums)


def test_xla_may_split_a_sum_to_which_an_axis_comes_from_far_away() -> None:
    """Behind as many ops as a rematerialized layer has."""

    def step(x: Any, u: Any, w: Any, v: Any) -> Any:
        def layer(h: Any, _: Any) -> Any:
            h = h + u
            for _ in range(70):
                h = jnp.tanh(h)
            return h @ w + v, None

        return jax.lax.scan(layer, x, None, length=3)[0]

    arguments = (
        *(abstract((16, 32), None, "data"), abstract((16, 32), None, "model")),
        *(abstract((32, 32), "data"), abstract((32,), "model")),
    )
    program = Program("step", jax.jit(step), arguments, mesh=compat.abstract_mesh(MESH))
    inspection = Inspection(program, ["gspmd"])
    (origin,) = (
        o for _, _, o in parts_of(inspection.collectives("gspmd")) if o.kind == "reduction"
    )
    assert origin.may_split
    without = inspection.what_if({"x": None, "w": None}).collectives("gspmd")
    assert "split" in {origin.kind for _, _, origin in parts_of(without)}
