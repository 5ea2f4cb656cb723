"""Origins of what XLA moves, cuts or gathers on the way: which value that is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from origin_programs import (
    CUBE,
    PARTITIONERS,
    abstract,
    attention,
    collectives_of,
    constrained,
    counted,
    cubed,
    in_cube,
    named,
    of_cube,
    of_kind,
    on,
    parts_of,
)

from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh
from sdyscope.words.origins import origin_text, spec_text

pytestmark = pytest.mark.compiles


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_fsdp_gathers_weights(partitioner: Any) -> None:
    @jax.jit
    def step(w: Any, x: Any) -> Any:
        return constrained(x @ w, "data", None)

    collectives = collectives_of(
        step, abstract((64, 32), "data", None), abstract((16, 64), "data"), partitioner=partitioner
    )
    ((collective, _, origin),) = parts_of(collectives)
    assert collective.kind == "all-gather"
    assert (origin.kind, origin.value, origin.op) == ("resharding", "w", "dot_general")
    assert (spec_text(origin.before), spec_text(origin.after)) == (
        "P('data', None)",
        "P(None, None)",
    )
    assert named(origin, "has") == {("w", "P('data', None)")}
    assert ("P('data', None)") in {spec for _, spec in named(origin, "needed")}
    (tally,) = [one.tally for one in collectives.by_annotation if one.annotation.name == "w"]
    assert (tally.count, tally.bytes) == (1, 64 * 32 * 4)


def test_what_xla_moves_first_is_not_another_operand_with_some_of_its_axes() -> None:
    """The keys have `b`, and are gathered over `a` and `c`; the gradient beside them has `a`."""

    def loss(params: Any, x: Any) -> Any:
        keys = (x @ params["k"]).reshape(16, 4, 4)
        scores = jax.nn.softmax(jnp.einsum("shd,thd->hst", keys, keys))
        y = jnp.einsum("hst,thd->shd", scores, keys).reshape(16, 16) @ params["o"]
        return (jax.lax.with_sharding_constraint(y, in_cube("b", "a")) ** 2).mean()

    params = {"k": cubed((16, 16), "a", "b"), "o": cubed((16, 16), "a")}
    outs = {name: value.sharding for name, value in params.items()}
    fun = jax.jit(jax.grad(loss), out_shardings=outs)
    parts = parts_of(of_cube(fun, params, cubed((16, 16), None, "b")))
    (origin,) = (
        origin
        for each, part, origin in parts
        if each.kind == "all-gather" and part.shape.leaves[0].dimensions == (16, 4, 4)
    )
    assert named(origin, "has") == {("params['k']", "P('a', 'b')")}


def test_what_xla_moves_to_another_axis_and_gathers_is_one_value() -> None:
    """Of `w` it makes pieces over `data`, which only the other operand has, and gathers them."""
    numbers = ("NHWC", "HWIO", "NHWC")

    def step(x: Any, kernel: Any, w: Any) -> Any:
        def loss(kernel: Any) -> Any:
            conv = jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=numbers
            )
            return (conv**2).sum()

        return jnp.tanh(jax.grad(loss)(kernel)) @ w

    x = abstract((8, 16, 16, 8), None, None, None, "model")
    kernel = abstract((3, 3, 8, 16), None, None, None, "data")
    w = abstract((16, 16), None, "model")
    parts = parts_of(collectives_of(jax.jit(step), x, kernel, w, partitioner="gspmd"))
    gathers = [(part, origin) for each, part, origin in parts if each.kind == "all-gather"]
    values = {part.shape.leaves[0].dimensions: origin.value for part, origin in gathers}
    assert values == {(16, 16): "w", (3, 3, 4, 16): "tanh"}


def test_what_is_gathered_over_two_axes_is_what_is_in_pieces_along_both() -> None:
    """The scatter's result is on `data` alone, for `w`: XLA makes it as `x` is, and moves that."""

    def step(x: Any, updates: Any, w: Any) -> Any:
        write = jax.vmap(lambda row, new: jax.lax.dynamic_update_slice(row, new, (3,)))
        rows = write(x, updates)
        return jnp.tanh(jnp.concatenate([rows[:, ::-1], rows], 0)) @ w

    x, updates = abstract((16, 32), ("model", "data")), abstract((16, 8), "data")
    parts = parts_of(collectives_of(jax.jit(step), x, updates, abstract((32, 16), "data")))
    gathers = [
        origin
        for each, _, origin in parts
        if each.kind == "all-gather" and len(each.axes or ()) == 2
    ]
    assert gathers
    for origin in gathers:
        annotations = named(origin, "has") | named(origin, "needed")
        assert ("x", "P(('model', 'data'), None)") in annotations


def test_of_an_argument_that_xla_moves_and_gathers_nothing_else_is_the_cause() -> None:
    """The other side of the product has as many elements, and is on `data`, to which `w` is moved.

    A device has all of what XLA gathers: which value it is the compiled program says.
    """
    step = jax.jit(
        lambda x, layers, w: (
            jnp.tanh(
                jax.lax.scan(lambda c, layer: (jnp.sin(c @ layer), None), x, layers, reverse=True)[
                    0
                ]
            )
            @ w
        )
    )
    arguments = (
        abstract((16, 32), "model"),
        abstract((4, 32, 32), None, "data", "model"),
        abstract((32, 16), None, "model"),
    )
    parts = parts_of(collectives_of(step, *arguments, partitioner="gspmd"))
    (origin,) = (
        origin
        for each, part, origin in parts
        if each.kind == "all-gather" and part.shape.leaves[0].dimensions == (32, 16)
    )
    assert origin.value == "w"


def test_what_is_moved_is_the_tensor_that_is_like_it() -> None:
    """Shardy splits a convolution's channels, XLA its rows: a kernel is moved, and halos are."""
    x, w = (
        abstract((8, 32, 32, 16), "data", "model"),
        abstract((3, 3, 16, 32), *[None] * 3, "model"),
    )

    def step(x: Any, w: Any) -> Any:
        dimensions = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dimensions)

    moved = {
        (each.kind, origin.value)
        for each, _, origin in parts_of(collectives_of(jax.jit(step), x, w))
        if origin.kind in ("resharding", "exchange")
    }
    assert moved == {("all-to-all", "w"), ("collective-permute", "x")}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_cuts_and_then_moves_is_not_the_other_side_turned(partitioner: Any) -> None:
    """Of `g`, 16 x 8, it moves 16 x 4; the block of `h` is 4 x 16."""

    @jax.jit
    def step(g: Any, h: Any) -> Any:
        g = constrained(jnp.tanh(g), None, "model")
        return constrained(jnp.einsum("bi,bj->ij", g, h), "data", None)

    arguments = abstract((16, 16), None, "model"), abstract((16, 16), "data", None)
    (moved,) = of_kind(
        parts_of(collectives_of(step, *arguments, partitioner=partitioner)), "collective-permute"
    )
    assert spec_text(moved.before) == "P(None, 'model')"
    assert {spec for _, spec in named(moved, "has")} == {"P(None, 'model')"}


def test_what_an_annotation_gives_another_tensor_of_the_op_is_told_apart() -> None:
    """Both sides of the product are on `data` by `x`."""
    argument = abstract((16, 32), "data")
    ((_, _, origin),) = parts_of(collectives_of(jax.jit(lambda x: x @ x.T), argument))
    assert "given x P('data', None) on its other tensors too" in origin_text(origin)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("is_constrained", [False, True], ids=["as it comes", "constrained"])
def test_what_xla_rematerializes_is_needed_as_its_log_says(
    is_constrained: bool, partitioner: Any
) -> None:
    """It knows no way from P(('model', 'data'), None) to P(None, 'model') but to gather all."""

    @jax.jit
    def step(x: Any, w: Any) -> Any:
        x = jnp.tanh(x)
        if is_constrained:
            x = constrained(x, ("model", "data"), None)
        return constrained(x @ w, None, "data")

    arguments = abstract((16, 16), ("model", "data")), abstract((16, 32), "model", "data")
    collectives = collectives_of(step, *arguments, partitioner=partitioner)
    assert len(collectives.rematerializations) == 1
    (origin,) = of_kind(parts_of(collectives), "all-gather")
    assert spec_text(origin.before) == "P(('model', 'data'), None)"
    assert spec_text(origin.after) == "P(None, 'model')"


def test_what_is_gathered_whole_without_a_word_of_xla_is_needed_whole() -> None:
    @jax.jit
    def step(x: Any, w: Any) -> Any:
        return constrained(jnp.tanh(x) @ w, None, "model")

    collectives = collectives_of(
        step, abstract((16, 32), "data"), abstract((32, 16), None, "model")
    )
    ((_, _, origin),) = parts_of(collectives)
    assert spec_text(origin.after) == "P(None, None)"


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_gathered_one_axis_after_the_other_is_needed_without_all_of_them(
    partitioner: Any,
) -> None:
    """No op requires what the first of them makes, nor the value with the other axis alone."""
    collectives = collectives_of(
        jax.jit(lambda logits: jax.lax.top_k(logits, 8)),
        abstract((16, 128), "data", "model"),
        partitioner=partitioner,
    )
    gathers = [
        (one.axes, origin) for one, _, origin in parts_of(collectives) if one.kind == "all-gather"
    ]
    axes = {axis.name for axes, _ in gathers for axis in axes or ()}
    assert (len(gathers), axes) == (2, {"data", "model"})
    for _, origin in gathers:
        said = origin_text(origin)
        assert "logits is P('data', 'model')" in said
        assert "top_k requires P(None, None)" in said


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_line_keeps_away_and_says_again_comes_without_it(partitioner: Any) -> None:
    """Both constraints are of one line: without it the argument's axis gets to the product."""
    x = abstract((16, 32), "data", "model")

    def product(x: Any) -> Any:
        x = constrained(constrained(x, None, None), "data", None)
        return x.T @ x

    parts = parts_of(collectives_of(jax.jit(product), x, partitioner=partitioner))
    (origin,) = of_kind(parts, "all-reduce")
    assert {each.kind for each in origin.annotations} == {"constraint"}
    assert [each.name for each in origin.otherwise] == ["x"]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_an_argument_is_moved_for_the_constraint_on_it(partitioner: Any) -> None:
    """XLA may name that after the argument, and the next op has another tensor on the same axis."""
    step = jax.jit(lambda x, w: x @ constrained(w, "model", None))
    x, w = abstract((16, 32), "data", "model"), abstract((32, 32), ("data", "model"), None)
    parts = parts_of(collectives_of(step, x, w, partitioner=partitioner))
    moved = {(o.value, o.op) for c, _, o in parts if c.kind != "all-reduce"}
    assert moved == {("w", "sharding_constraint")}


def test_under_gspmd_axes_that_go_over_to_another_dimension_go_where_they_are_wanted() -> None:
    """What the sort takes and makes has one shape: only its result is wanted on its columns."""

    def step(x: Any, key: Any) -> Any:
        return constrained(jax.lax.sort((key, x), num_keys=1)[1], None, ("data", "model"))

    x, key = abstract((16, 32), "data", "model"), abstract((16, 32), ("model", "data"))
    parts = parts_of(collectives_of(jax.jit(step), x, key, partitioner="gspmd"))
    (origin,) = (o for c, _, o in parts if c.kind == "all-to-all" and len(c.axes or ()) == 2)
    assert (origin.value, origin.op) == ("sort", "sharding_constraint")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_xla_moves_to_an_axis_and_gathers_there_is_not_another_dimension_on_it(
    partitioner: Any,
) -> None:
    """The last dimension is moved from `b` to `a` and gathered; the first stays on `a`, by `x`."""

    def step(x: Any, y: Any, w: Any) -> Any:
        return jnp.einsum("hds,hst->hdt", jnp.sin(x) + y, w)

    arguments = cubed((4, 4, 16), "a"), cubed((4, 4, 16), None, None, "b"), cubed((4, 16, 16), "b")
    outs = in_cube("b")
    jitted = jax.jit(step, out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner=partitioner))
    (origin,) = of_kind(parts, "all-gather")
    assert {name for name, _ in named(origin, "has")} == {"y"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_rows_that_xla_moves_to_the_columns_axis_and_gathers_are_not_the_columns(
    partitioner: Any,
) -> None:
    """It moves `g` from P('b', 'a') to P('a', 'b') and gathers its rows over `a`: f32[16,8]."""

    def step(g: Any, at: Any) -> Any:
        return jnp.zeros((32, 16)).at[at].add(jnp.tanh(g))

    at = cubed((16,), "b", dtype=jnp.int32)
    jitted = jax.jit(step, out_shardings=in_cube(("a", "c"), "b"))
    parts = parts_of(of_cube(jitted, cubed((16, 16), "b", "a"), at, partitioner=partitioner))
    (origin,) = (
        origin
        for each, part, origin in parts
        if each.kind == "all-gather" and part.shape.leaves[0].dimensions == (16, 8)
    )
    assert {
        axis.name for each in origin.annotations if each.role == "has" for axis in each.axes
    } == {"b"}
    assert spec_text(origin.before) == "P('b', 'a')"
    assert origin.after is None  # What the columns are on then is not known.


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_exchanged_for_an_op_is_not_what_made_its_operand(partitioner: Any) -> None:
    """XLA moves the sum over `b`, which the sum itself does not have, and `u` does."""

    def step(u: Any, v: Any, h: Any) -> Any:
        on = in_cube(("c", "a"))
        total = jax.lax.with_sharding_constraint(jnp.tanh(u) + v, on)
        return jnp.einsum("bi,bj->ij", total, jnp.tanh(h))

    arguments = (
        cubed((16, 16), ("c", "a"), "b"),
        cubed((16, 16), ("c", "a")),
        cubed((16, 16), ("b", "c"), "a"),
    )
    outs = in_cube("a", "c")
    jitted = jax.jit(step, out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner=partitioner))
    (origin,) = of_kind(parts, "all-to-all")
    assert (spec_text(origin.before), origin.op) == ("P(('c', 'a'), None)", "dot_general")
    assert not origin.uncertain


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_moved_for_a_product_goes_where_its_result_has_it(partitioner: Any) -> None:
    """XLA cuts `g` to f32[16,4], which is the block of `h`, too."""

    def step(q: Any, k: Any, h: Any) -> Any:
        g = jnp.einsum("hts,shd->thd", q, k).reshape(16, 16)
        return jnp.einsum("bi,bj->ij", g, jnp.tanh(h)).T

    arguments = (
        cubed((4, 16, 16), "c"),
        cubed((16, 4, 4), None, "c"),
        cubed((16, 16), None, ("c", "b")),
    )
    outs = in_cube(None, ("a", "c"))
    jitted = jax.jit(step, out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner=partitioner))
    (origin,) = of_kind(parts, "collective-permute")
    assert spec_text(origin.before) == "P(None, 'c')"


@pytest.mark.parametrize(
    ("combined", "partitioner"),
    [(jnp.multiply, "shardy"), (lambda x, y: jnp.concatenate([x, y]), "gspmd")],
    ids=["elementwise", "concatenation"],
)
def test_what_xla_cuts_and_moves_is_not_another_operand_with_such_a_block_turned(
    combined: Any, partitioner: Any
) -> None:
    """It cuts the sine to f32[16,4]; the block of the cosine is f32[4,16]."""
    arguments = cubed((16, 16), None, "c"), cubed((16, 16), ("c", "b"))
    outs = in_cube(None, ("a", "c"))
    jitted = jax.jit(lambda x, y: combined(jnp.sin(x), jnp.cos(y)), out_shardings=outs)
    parts = parts_of(of_cube(jitted, *arguments, partitioner=partitioner))
    moved = {
        tuple(axis.name for axis in each.axes or ()): (origin.value, spec_text(origin.before))
        for each, _, origin in parts
        if each.kind == "collective-permute"
    }
    assert moved == {
        ("a", "c"): ("sin", "P(None, 'c')"),
        ("a", "b", "c"): ("cos", "P(('c', 'b'), None)"),
    }


def test_under_gspmd_dimensions_that_are_only_as_large_are_not_one() -> None:
    """`w` is gathered along what the lookup's indices have, not its table's last dimension."""

    def step(x: Any, at: Any, w: Any) -> Any:
        return x[at] @ w

    indices = counted((16,), "model")
    arguments = abstract((16, 16), None, "model"), indices, abstract((16, 16), "model", "data")
    parts = parts_of(collectives_of(jax.jit(step), *arguments, partitioner="gspmd"))
    gathers = of_kind(parts, "all-gather")
    assert gathers
    assert not any(list(origin.otherwise) for origin in gathers)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_who_else_gives_another_tensor_of_an_op_its_axes_is_said(partitioner: Any) -> None:
    """`w` and `m` each say that the product's other side is on `a`."""
    x, w = cubed((16, 16), "a"), cubed((16, 32), None, "a")
    step = jax.jit(lambda x, w, m: x @ (w + m))
    parts = parts_of(of_cube(step, x, w, w, partitioner=partitioner))
    gathers = of_kind(parts, "all-gather")
    assert gathers
    for origin in gathers:
        (needed,) = (name for name, _ in named(origin, "needed"))
        (other,) = (annotation.name for annotation in origin.needed_otherwise)
        assert {needed, other} == {"w", "m"}
        assert f"(otherwise by {other})" in origin_text(origin)
        assert set(origin.every) == {*origin.annotations, *origin.needed_otherwise}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_who_else_keeps_axes_away_is_said(partitioner: Any) -> None:
    """Without the constraint the value is gathered to be returned, under GSPMD at the very end."""

    def step(x: Any) -> Any:
        return jnp.cos(jax.lax.with_sharding_constraint(jnp.sin(x), in_cube(None, None)))

    jitted = jax.jit(step, out_shardings=in_cube(None, None))
    ((*_, origin),) = parts_of(of_cube(jitted, cubed((16, 16), "a"), partitioner=partitioner))
    assert [each.kind for each in origin.annotations] == ["argument", "constraint"]
    assert [each.kind for each in origin.needed_otherwise] == ["result"]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_product_that_is_transposed_takes_is_gathered_for_the_product(
    partitioner: Any,
) -> None:
    """XLA makes the product transposed at once, and names it after the transpose."""

    def loss(p: Any, x: Any) -> Any:
        y = jax.lax.with_sharding_constraint(attention(p, x), in_cube(None, ("c", "b")))
        return (y**2).mean()

    def step(p: Any, x: Any) -> Any:
        return jax.tree.map(jnp.subtract, p, jax.grad(loss)(p, x))

    free = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    q, o = cubed((16, 16), "b"), cubed((16, 16), ("a", "b"))
    p = {"g": jax.ShapeDtypeStruct((16,), jnp.float32), "q": q, "k": free, "o": o}
    outs = {name: getattr(value, "sharding", None) for name, value in p.items()}
    arguments = p, cubed((16, 16), "b", ("a", "c"))
    mesh = compat.abstract_mesh(CUBE)
    program = Program("step", jax.jit(step, out_shardings=outs), arguments, mesh=mesh)
    inspection = Inspection(program, [partitioner])
    ops = inspection.graph(partitioner).ops
    taken_by = [
        ops[path[-1]].mnemonic
        for _, part, origin in parts_of(inspection.collectives(partitioner))
        if origin.value == "mul in jvp()" and spec_text(origin.before) == "P('b', ('a', 'c'))"
        for path in part.tags
    ]
    # Until JAX 0.10 XLA names what is moved after the product, and then after what it moves.
    assert "dot_general" in taken_by
    assert "multiply" not in taken_by or "transpose" in taken_by


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_broadcast_that_keeps_a_sharding_needs_no_other(partitioner: Any) -> None:
    """The convolution moves `x`, not what makes its first dimension."""

    def step(x: Any, w: Any) -> Any:
        kernel = jnp.stack([w] * 3)
        numbers = ("NWC", "WIO", "NWC")
        y = jax.lax.conv_general_dilated(x[None], kernel, (1,), "SAME", dimension_numbers=numbers)
        return jax.lax.with_sharding_constraint(y[0], in_cube(None, ("a", "b")))

    arguments = cubed((16, 16), ("a", "b")), cubed((16, 16), ("a", "c"))
    parts = parts_of(of_cube(jax.jit(step), *arguments, partitioner=partitioner))
    assert "broadcast_in_dim" not in {origin.op for *_, origin in parts}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_sum_over_one_element_is_the_same_value(partitioner: Any) -> None:
    """As JAX sums what it broadcast: it is moved to be added, and not to be returned."""

    def step(state: Any, x: Any) -> Any:
        total = x.sum(0).reshape(1, 16).sum(0)
        return state * 0.9 + constrained(total, "data")

    jitted = jax.jit(step, out_shardings=abstract((16,), "model").sharding)
    arguments = abstract((16,), ("model", "data")), abstract((16, 16), "model", "data")
    parts = parts_of(collectives_of(jitted, *arguments, partitioner=partitioner))
    moved = of_kind(parts, "collective-permute")
    assert moved
    for origin in moved:
        assert (origin.value, origin.op) == ("reduce_sum", "add"), origin_text(origin)


def own_results(parts: Any) -> list[CollectiveOrigin]:
    """Origins of what the op that is named makes itself; as of JAX 0.11 only a sum tells."""
    known = [origin for _, part, origin in parts if part.makers == part.tags]
    if not known and compat.version_tuple() >= (0, 11):
        pytest.skip("this XLA names what it moves after what makes it")
    assert known
    return known


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("w", [(None, "model"), ("data", "model")])
def test_a_product_that_is_made_with_other_axes_than_it_has_is_what_is_moved(
    partitioner: Any, w: Any
) -> None:
    """It sums `model`, and is to have it: XLA makes it in pieces along `data` first."""
    jitted = jax.jit(
        lambda g, w: jnp.tanh(g) @ w.T, out_shardings=abstract((16, 32), None, "model").sharding
    )
    arguments = abstract((16, 16), None, "model"), abstract((32, 16), *w)
    parts = parts_of(collectives_of(jitted, *arguments, partitioner=partitioner))
    for origin in own_results(parts):
        assert (origin.value, origin.before, origin.uncertain) == ("dot_general", None, False)
        assert spec_text(origin.after) == "P(None, 'model')"
        assert {name for name, _ in named(origin, "needed")} == {"result", "g", "w"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_sum_that_is_made_in_pieces_is_what_is_moved(partitioner: Any) -> None:
    """It is permuted, then gathered, and not what it sums."""

    def picked(x: Any, at: Any) -> Any:
        return constrained(jnp.take_along_axis(x, at[:, :, None], 1).sum(1), "model", None)

    at = jax.ShapeDtypeStruct((8, 4), jnp.int32)
    arguments = abstract((8, 16, 16), ("data", "model")), at
    parts = parts_of(collectives_of(jax.jit(picked), *arguments, partitioner=partitioner))
    assert {each.kind for each, *_ in parts} == {"collective-permute", "all-gather"}
    for origin in own_results(parts):
        assert (origin.value, origin.uncertain) == ("reduce_sum", False), origin_text(origin)
        assert {each.kind for each in origin.annotations} == {"argument", "constraint"}


def transposed_product(a: Any, b: Any, dim: int) -> Any:
    return jax.lax.dot_general(a, b, (((dim,), (dim,)), ((), ())))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_moved_on_from_where_another_op_needs_it_has_its_own_axes(partitioner: Any) -> None:
    """The first product needs `tanh` on `a` and `b`, and the second on `b` and `a`."""

    def step(x: Any, v: Any, w: Any) -> Any:
        h = jnp.tanh(x)
        return transposed_product(h, v, 1), transposed_product(h, w, 0)

    jitted = jax.jit(step, out_shardings=(in_cube(None, "c"), in_cube(("b", "a"), "c")))
    arguments = cubed((16, 16), None, "c"), cubed((16, 16), "c", ("b", "a"))
    parts = parts_of(
        of_cube(jitted, *arguments, cubed((16, 16), "c", "b"), partitioner=partitioner)
    )
    (origin,) = (
        origin
        for each, part, origin in parts
        if each.kind == "collective-permute" and part.shape.leaves[0].dimensions == (16, 4)
        if [axis.name for axis in each.axes or ()] == ["a", "b"]
    )
    assert (origin.value, named(origin, "has")) == ("tanh", {("x", "P(None, 'c')")})
    assert {name for name, _ in named(origin, "needed")} == {"w", "result[1]"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_summed_and_moved_under_one_name_is_what_the_op_makes(partitioner: Any) -> None:
    """As of JAX 0.11 XLA names both moves of a result and of what makes it after the op."""

    def step(x: Any, w: Any, m: Any) -> Any:
        return jnp.where(m > 0, constrained(transposed_product(jnp.tanh(x), w, 1), "model"), 0)

    arguments = abstract((16, 16), "data", "model"), abstract((16, 16), None, "model")
    parts = parts_of(
        collectives_of(
            jax.jit(step), *arguments, abstract((16, 16), "model"), partitioner=partitioner
        )
    )
    (origin,) = of_kind(parts, "collective-permute")
    assert (origin.value, origin.before) == ("dot_general", None), origin_text(origin)
    assert {each.name for each in origin.annotations} == {"x", "w", "jit(step)"}


def test_what_a_constraint_moves_is_not_for_what_takes_that() -> None:
    """XLA names what moves an argument after that, and leaves nothing of the constraint."""
    step = jax.jit(lambda x: jax.lax.with_sharding_constraint(x, on(CUBE, "b", "a")) * 2)
    x = jax.ShapeDtypeStruct((8, 2), jnp.float32, sharding=on(CUBE, "a", "b"))
    ((_, _, origin),) = parts_of(collectives_of(step, x, mesh=CUBE))
    assert (origin.op, origin.uncertain) == ("sharding_constraint", False)
    assert (spec_text(origin.before), spec_text(origin.after)) == ("P('a', 'b')", "P('b', 'a')")


def test_what_was_followed_to_an_op_is_what_that_takes_be_it_moved_before() -> None:
    """What is exchanged has neither axes nor shape of any block of the first product's weights."""

    def step(x: Any, w: Any, u: Any) -> Any:
        product = jnp.einsum("bd,eb->ed", jnp.tanh(x) @ w, u)
        return constrained(product, None, ("data", "model"))

    x, w = abstract((16, 8), "model"), abstract((8, 24), "model")
    parts = parts_of(collectives_of(jax.jit(step), x, w, abstract((40, 16), "data", "model")))
    (origin,) = of_kind(parts, "all-to-all")
    assert (origin.value, origin.op, origin.uncertain) == ("w", "dot_general", False)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_is_gathered_over_axes_that_it_was_permuted_to_is_needed_as_the_last_gather_leaves_it(
    partitioner: Any,
) -> None:
    """As AlphaFold's pair bias: one of two gathers behind a permutation leaves half of the axes."""
    rows = Mesh.of({"a": 4, "b": 2})

    def step(bias: Any, logits: Any) -> Any:
        bias = jax.lax.with_sharding_constraint(jnp.sin(bias), on(rows, "a", "b"))
        place = on(rows, "a", None, "b", None)
        logits = jax.lax.with_sharding_constraint(jnp.cos(logits), place)
        return jax.lax.with_sharding_constraint(logits + bias[None, None], place)

    arguments = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(rows, *spec))
        for shape, spec in (((16, 16), ("a", "b")), ((8, 4, 16, 16), ("a", None, "b", None)))
    ]
    parts = parts_of(collectives_of(jax.jit(step), *arguments, mesh=rows, partitioner=partitioner))
    needed = [spec_text(origin.after) for origin in of_kind(parts, "all-gather")]
    assert needed == ["P(None, None, 'b', None)"] * 2


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_was_followed_to_a_product_that_xla_splits_is_not_its_other_operand(
    partitioner: Any,
) -> None:
    """Both operands have axes elsewhere than the result, and are gathered over idle ones (0.12)."""

    def step(g: Any, x: Any, w: Any, back: Any) -> Any:
        v = jnp.einsum("bsd,dhk->bshk", x, w)
        v = jnp.tanh(jax.lax.with_sharding_constraint(v, in_cube("a", None, "b")))
        o = jnp.einsum("bsd,hkd->bshk", g, back)
        y = jnp.einsum("bshk,bthk->bhst", o, v)
        return jax.lax.with_sharding_constraint(y, in_cube("a", None, "b"))

    arguments = (
        cubed((8, 16, 32), "a", "b"),
        cubed((8, 16, 32), "a"),
        cubed((32, 8, 8), None, "b"),
        cubed((8, 8, 32), "b"),
    )
    parts = parts_of(of_cube(jax.jit(step), *arguments, partitioner=partitioner))
    whole = [
        origin.value
        for each, part, origin in parts
        if each.kind == "all-gather" and part.shape.leaves[0].dimensions == (4, 16, 8, 8)
    ]
    assert whole == ["tanh"]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_product_takes_whose_result_is_returned_is_for_that(partitioner: Any) -> None:
    """XLA leaves batched products without a name; JAX 0.12's names the move after its maker."""

    def step(x: Any, w: Any, scale: Any) -> Any:
        y = jnp.einsum("etf,efd->etd", x, w)
        y = jax.lax.with_sharding_constraint(y, in_cube("a"))
        return jax.lax.with_sharding_constraint(jnp.einsum("etd,te->td", y, scale), in_cube("a"))

    arguments = cubed((8, 64, 32), "a"), cubed((8, 32, 32), "a", "b"), cubed((64, 8), "a")
    parts = parts_of(of_cube(jax.jit(step), *arguments, partitioner=partitioner))
    assert {origin.scope for origin in of_kind(parts, "collective-permute")} == {"etd,te->td"}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_an_argument_that_is_permuted_is_no_sum_that_is_handed_round(partitioner: Any) -> None:
    """A block of it is as large as one of the product."""
    arguments = cubed((16, 32), "a", "b"), cubed((32, 8), "a")
    product = jax.jit(lambda x, w: x @ w)
    parts = parts_of(of_cube(product, *arguments, partitioner=partitioner))
    moved = of_kind(parts, "collective-permute")
    assert [(origin.value, origin.in_turns) for origin in moved] == [("w", False)]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_an_argument_that_a_product_takes_turned_too_is_moved_as_it_is(partitioner: Any) -> None:
    """XLA leaves the transpose to the product."""

    def step(g: Any, x: Any) -> Any:
        return (x + g @ g.T) @ g @ (g.T @ g)

    arguments = cubed((32, 32), "a", "b"), cubed((32, 32), "b", "a")
    parts = parts_of(of_cube(jax.jit(step), *arguments, partitioner=partitioner))
    moved = [o for each, p, o in parts if each.kind != "all-reduce" and p.argument == 0]
    assert {(origin.value, spec_text(origin.before)) for origin in moved} == {("g", "P('a', 'b')")}


def test_what_becomes_a_result_is_moved_for_what_makes_that() -> None:
    """As of JAX 0.11 nothing is left of the flip; another product takes the argument, too."""

    def step(x: Any, w: Any) -> Any:
        return jnp.flip(x, 0), (x @ w).T

    axes = ("a", "b", "c")
    outs = in_cube(axes), in_cube("b", "a")
    arguments = cubed((8, 16), axes), cubed((16, 16), "c", "b")
    parts = parts_of(of_cube(jax.jit(step, out_shardings=outs), *arguments))
    moved = [o for each, p, o in parts if each.kind == "collective-permute" and p.argument == 0]
    assert [origin.kind for origin in moved] == ["rearrangement"]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_what_a_loop_moves_for_itself_without_a_name_is_uncertain(partitioner: Any) -> None:
    """A roll by one block, of which JAX 0.12's XLA leaves only the moves."""

    def step(q: Any, k: Any) -> Any:
        def turn(_: Any, carry: Any) -> Any:
            k, total = carry
            return jnp.roll(k, 1, 0), total + jnp.einsum("nbd,ncd->nbc", q, k)

        return jax.lax.fori_loop(0, 8, turn, (k, jnp.zeros((8, 8, 8))))[1]

    arguments = (cubed((8, 8, 16), ("a", "b", "c")),) * 2
    parts = parts_of(of_cube(jax.jit(step), *arguments, partitioner=partitioner))
    moved = [origin for each, _, origin in parts if each.kind == "collective-permute"]
    assert moved
    assert all(origin.uncertain or origin.kind == "rearrangement" for origin in moved)
