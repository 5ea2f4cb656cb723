"""Origins in loops and functions: what is carried, and what each call gives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from origin_programs import (
    PARTITIONERS,
    abstract,
    attention,
    collectives_of,
    constrained,
    cubed,
    in_cube,
    named,
    of_cube,
    of_kind,
    parts_of,
)

from sdyscope.analysis.collectives import boundaries
from sdyscope.stages import compat
from sdyscope.words.origins import origin_text, spec_text

pytestmark = pytest.mark.compiles


@pytest.mark.skipif(compat.version_tuple() < (0, 8), reason="Shardy then brings b to both calls")
def test_what_a_call_makes_is_not_what_another_call_of_the_function_makes() -> None:
    """XLA moves the second one-hot to `b` and gathers that; the first has `b` of itself."""

    def step(at: Any, x: Any) -> Any:
        y = jax.nn.one_hot(at, 16) @ x
        return jax.nn.one_hot(at, 16) @ y, jax.nn.one_hot(at, 16) @ y

    fun = jax.jit(step, out_shardings=(in_cube("b", "c"), in_cube(None, ("c", "a"))))
    arguments = cubed((16,), "c", dtype=jnp.int32), cubed((16, 32), "a")
    parts = parts_of(of_cube(fun, *arguments))
    gathers = [
        origin
        for collective, part, origin in parts
        if collective.kind == "all-gather" and part.shape.leaves[0].dimensions == (16, 16)
    ]
    assert [named(origin, "has") for origin in gathers] == [{("at", "P('c')")}]


def test_what_a_loop_moves_to_another_axis_and_gathers_is_what_its_product_takes() -> None:
    def loss(layers: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, layers)[0].sum()

    step = jax.jit(lambda x, layers, w: jnp.tanh(jax.grad(loss)(layers, x)) @ w)
    x, layers = abstract((16, 32), None, "model"), abstract((4, 32, 32), "data")
    w = abstract((32, 16), ("data", "model"))
    parts = parts_of(collectives_of(step, x, layers, w))
    (origin,) = (o for c, part, o in parts if part.shape.leaves[0].dimensions == (16, 32))
    assert (origin.op, named(origin, "has")) == ("dot_general", {("x", "P(None, 'model')")})
    # What XLA takes out of the loop before it starts, a function of the loop's body needs.
    gathers = [part.shape.leaves[0].dimensions for c, part, o in parts if o.value == "layers"]
    assert sorted(gathers) == [(4, 16, 32), (4, 32, 16)]
    assert {o.op for _, _, o in parts if o.value == "layers"} == {"dynamic_slice"}


def test_what_several_calls_give_a_function_is_sharded_as_each_gives_it() -> None:
    """Both stacks are cut by one function; only of the second XLA gathers what it cuts."""

    def step(x: Any, a: Any, b: Any) -> Any:
        return jax.lax.scan(lambda c, w: (c + jnp.tanh(c @ w[0]) @ w[1], None), x, (a, b))[0]

    a, b = abstract((4, 32, 32), None, None, "data"), abstract((4, 32, 32), "data", "model")
    parts = parts_of(collectives_of(jax.jit(step), abstract((16, 32), "model"), a, b))
    (origin,) = of_kind(parts, "all-gather")
    assert named(origin, "has") == {("b", "P('data', 'model', None)")}


def test_what_a_function_sums_is_sharded_as_its_call_gives_it() -> None:
    """Both calls sum what is sharded alike, each for an annotation of its own."""
    norm = jax.jit(lambda x: jnp.sqrt(jnp.sum(x * x, axis=0)))

    def step(a: Any, b: Any) -> Any:
        return norm(a), norm(b)

    arguments = abstract((32, 16), "data"), abstract((32, 16), "data")
    parts = parts_of(collectives_of(jax.jit(step), *arguments))
    sums = [origin for _, _, origin in parts if origin.op == "reduce_sum"]
    assert [named(origin, "has") for origin in sums] == [
        {("a", "P('data', None)")},
        {("b", "P('data', None)")},
    ]


def test_what_a_loop_passes_on_is_needed_as_its_carry() -> None:
    def step(x: Any, layers: Any) -> Any:
        return jax.lax.scan(lambda c, w: (constrained(jnp.tanh(c @ w), "data"), None), x, layers)[0]

    layers = abstract((4, 32, 32), "model", None, "data")
    collectives = collectives_of(jax.jit(step), abstract((16, 32), None, "data"), layers)
    (origin,) = (origin for _, _, origin in parts_of(collectives) if origin.op == "while")
    assert (origin.value, spec_text(origin.after)) == ("tanh in while/body", "P(None, 'data')")
    assert {kind for kind, *_ in (annotation.key for annotation in origin.annotations)} == {
        "constraint",
        "argument",
    }


def test_what_a_loop_carries_is_not_what_it_begins_with() -> None:
    """The carry is on the axis of `w` too, which the argument of its name is not on."""

    def step(x: Any, w: Any) -> Any:
        def body(_: Any, c: Any) -> Any:
            return jnp.sin(constrained(c, None, None)) + w

        return jax.lax.fori_loop(0, 3, body, x)

    arguments = abstract((16, 32), "data"), abstract((16, 32), None, "model")
    parts = parts_of(collectives_of(jax.jit(step), *arguments))
    gathers = of_kind(parts, "all-gather")
    assert gathers
    assert {(o.value, o.carried) for o in gathers} == {("x", True)}
    assert {origin_text(o).partition(" but ")[0] for o in gathers} == {
        "the carry x is P('data', 'model')"
    }


def swapped_carries(x: Any, w: Any) -> Any:
    """A loop whose body makes each of what it carries of the other."""

    def body(_: Any, carry: Any) -> Any:
        return constrained(carry[1] @ w, None, "model"), constrained(carry[0], "data")

    return jax.lax.fori_loop(0, 4, body, (x, x * 2))


def test_what_a_loop_carries_is_what_its_body_takes_of_it() -> None:
    """XLA (JAX 0.12) gives the gather no name: what makes its value is the loop itself."""
    arguments = abstract((16, 8), "data"), abstract((8, 8), None, "model")
    parts = parts_of(collectives_of(jax.jit(swapped_carries), *arguments))
    (origin,) = (o for each, part, o in parts if part.shape.dimensions == (16, 8))
    assert (origin.value, origin.carried, origin.op) == ("mul", True, "dot_general")
    assert not origin.uncertain
    assert {spec for _, spec in named(origin, "needed")} == {"P(None, 'model')"}


def test_a_loop_that_keeps_an_axis_needs_nothing_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it is not known that what is gathered is what the loop carries."""
    monkeypatch.setattr(boundaries.Boundaries, "carries", {})
    arguments = abstract((16, 8), "data"), abstract((8, 8), None, "model")
    parts = parts_of(collectives_of(jax.jit(swapped_carries), *arguments))
    assert "while" not in {origin.op for _, _, origin in parts}


def test_xla_may_split_a_sum_whose_carry_would_have_the_axis_that_its_other_side_keeps() -> None:
    """Without `x` the carry is on `model`, as `w` makes it, and so what the product sums is."""

    def step(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w) + c, x)

    arguments = abstract((16, 32), None, "data"), abstract((32, 32), None, "model")
    parts = parts_of(collectives_of(jax.jit(step), *arguments))
    (origin,) = of_kind(parts, "all-reduce")
    assert {name for name, _ in named(origin, "has")} == {"x"}
    assert origin.may_split


def test_a_loop_moves_its_carry_once_it_is_cut_as_the_weight_is() -> None:
    """XLA slices f32[16,16] of the carry to f32[16,8]; the weight's block is f32[8,16]."""

    def step(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w), x)

    arguments = abstract((16, 32), None, "model"), abstract((32, 32), "data")
    parts = parts_of(collectives_of(jax.jit(step), *arguments))
    (said,) = (origin_text(origin) for each, _, origin in parts if "permute" in each.kind)
    assert said.startswith("the carry x is P(None, 'model') but dot_general, given w ")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_lookup_of_a_function_is_sharded_as_its_own_call_gives_it(partitioner: Any) -> None:
    """Only the first call's table is on `a`; XLA moves the second there, as `at` is on `b`, too."""

    def step(x: Any, y: Any, at: Any) -> Any:
        return jnp.take(x, at, axis=1), jnp.take(y, at, axis=1)

    tables = cubed((16, 32), None, ("b", "a")), cubed((16, 32), None, "b")
    indices = cubed((32,), "b", dtype=jnp.int32)
    parts = parts_of(of_cube(jax.jit(step), *tables, indices, partitioner=partitioner))
    sums = [(each.axes, origin) for each, _, origin in parts if each.kind == "all-reduce"]
    blamed = {
        tuple(axis.name for axis in axes or ()): {name for name, _ in named(origin, "has")}
        for axes, origin in sums
    }
    assert blamed == {("a", "b"): {"x"}, ("a",): {"y"}}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_of_what_a_loop_carries_it_is_what_the_op_takes(partitioner: Any) -> None:
    """`q` is carried too, in blocks of the shape that is moved; the product takes `o`."""

    def loss(p: Any, x: Any) -> Any:
        return (constrained(jax.checkpoint(attention)(p, x), "model") ** 2).mean()

    def step(p: Any, x: Any) -> Any:
        def body(sums: Any, at: Any) -> Any:
            return jax.tree.map(jnp.add, sums, jax.grad(loss)(p, x * at)), None

        return jax.lax.scan(body, jax.tree.map(jnp.zeros_like, p), jnp.arange(2.0))[0]

    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    q, o = (abstract((16, 16), axis) for axis in ("data", "model"))
    p = {"g": jax.ShapeDtypeStruct((16,), jnp.float32), "q": q, "k": free, "o": o}
    arguments = p, abstract((16, 16), "model", "data")
    parts = parts_of(collectives_of(jax.jit(step), *arguments, partitioner=partitioner))
    moved = [origin for *_, origin in parts if origin.value in {f"p['{name}']" for name in "qko"}]
    assert moved
    for origin in moved:
        assert origin.value == "p['o']", origin_text(origin)


def test_what_gspmd_takes_into_a_branch_otherwise_is_uncertain() -> None:
    """It moves `c` before the branches, to what the constraint says of its transpose."""

    def step(flag: Any, c: Any, w: Any) -> Any:
        def turned(c: Any) -> Any:
            return jax.lax.with_sharding_constraint(c.T, in_cube("b", "c"))

        return jax.lax.cond(flag, turned, lambda c: c @ w, c)

    flag = jax.ShapeDtypeStruct((), jnp.bool_)
    arguments = flag, cubed((16, 16), "c", "a"), cubed((16, 16), None, "b")
    parts = parts_of(of_cube(jax.jit(step), *arguments, partitioner="gspmd"))
    assert {each.kind for each, _, _ in parts} >= {"all-reduce", "collective-permute"}
    assert all(origin.uncertain for _, _, origin in parts)


def test_what_looks_up_a_block_as_large_elsewhere_is_not_what_a_sum_is_for() -> None:
    """GSPMD sums what one device has of the last stage, others none; `x` is looked up before."""

    def step(layers: Any, x: Any) -> Any:
        def stage(state: Any, at: Any) -> Any:
            state = jnp.tanh(jnp.einsum("sbd,sde->sbe", state + x[at], layers))
            state = constrained(state, "data", "model")
            return state, state[-1]

        return jax.lax.scan(stage, jnp.zeros((4, 8, 16)), jnp.arange(6))[1]

    arguments = abstract((4, 16, 16), "data"), abstract((6, 8, 16), None, "model")
    parts = parts_of(collectives_of(jax.jit(step), *arguments, partitioner="gspmd"))
    sums = of_kind(parts, "all-reduce")
    assert {origin.value for origin in sums} == {"tanh in while/body"}
