"""Programs of kinds that are easily answered wrongly: kernels, two meshes, ragged exchanges."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(
        compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
    ),
]

DATA_MODEL = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))
EXPERT = compat.abstract_mesh(Mesh.of({"expert": 8}))


def array(mesh: Any, shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * 2 + y_ref[...]


def fused(x: Any, y: Any) -> Any:
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out_shape=out, interpret=True)(x, y)


def pallas() -> Program:
    """The gradient of a Pallas kernel in a ``shard_map``."""
    spec = P("data", "model")
    mapped = jax.shard_map(
        fused, mesh=DATA_MODEL, in_specs=(spec, spec), out_specs=spec, check_vma=False
    )
    call = jax.custom_vjp(mapped)
    call.defvjp(lambda a, b: (mapped(a, b), ()), lambda _, g: (2 * g, g))

    def step(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(call(x @ w, x @ w) ** 2))(w)

    args = (array(DATA_MODEL, (16, 16), "data", "model"), array(DATA_MODEL, (8, 16), "data"))
    return Program("pallas", jax.jit(step), args)


def grouped_matmul() -> Program:
    """Megablox's grouped matrix multiplication, experts on their own devices."""
    from jax.experimental.pallas.ops.tpu import megablox

    kinds = {"preferred_element_type": jnp.float32, "interpret": True, "tiling": (8, 8, 8)}
    spec = P("expert")

    def step(x: Any, w: Any, sizes: Any) -> Any:
        mapped = jax.shard_map(
            functools.partial(megablox.gmm, **kinds),
            mesh=EXPERT,
            in_specs=(spec, spec, spec),
            out_specs=spec,
            check_vma=False,
        )
        return mapped(x, w, sizes).sum()

    shapes = (((64, 8), jnp.float32), ((16, 8, 8), jnp.float32), ((16,), jnp.int32))
    args = tuple(array(EXPERT, shape, "expert", dtype=dtype) for shape, dtype in shapes)
    return Program("grouped_matmul", jax.jit(step), args)


def two_meshes() -> Program:
    """The same eight devices as one mesh and as another, in one program."""
    other = compat.abstract_mesh(Mesh.of({"dp": 2, "tp": 2, "ep": 2}))

    def constrain(value: Any, mesh: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))

    def step(w: Any, x: Any) -> Any:
        hidden = constrain(x @ w, DATA_MODEL, "data", "model")
        hidden = constrain(jnp.tanh(hidden), other, ("dp", "tp"), "ep")
        return constrain(hidden @ w.T, other, "dp", None).sum()

    args = (array(DATA_MODEL, (64, 64), None, "model"), array(DATA_MODEL, (32, 64), "data"))
    return Program("two_meshes", jax.jit(step), args)


def embedding() -> Program:
    """The gradient of a sharded embedding, whose updates JAX 0.12's XLA makes whole and cuts."""

    def step(table: Any, tokens: Any, targets: Any) -> Any:
        def loss(table: Any) -> Any:
            looked_up = constrain(table.astype(jnp.bfloat16)[tokens], "data", None, None)
            return (jnp.tanh(looked_up.astype(jnp.float32)) * targets).mean()

        return constrain(jax.grad(loss)(table), "model", "data")

    def constrain(value: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(value, NamedSharding(DATA_MODEL, P(*spec)))

    args = (
        array(DATA_MODEL, (256, 64), "model", "data"),
        array(DATA_MODEL, (16, 8), "data", dtype=jnp.int32),
        array(DATA_MODEL, (16, 8, 64), "data"),
    )
    return Program("embedding", jax.jit(step), args)


def constants_of_two_loops() -> Program:
    """A table that a loop and its backward pass use, of which Shardy gives each its own copy."""

    def constrain(value: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(value, NamedSharding(DATA_MODEL, P(*spec)))

    def layer(x: Any, w: Any) -> Any:
        table = jnp.cos(jnp.arange(16.0)[:, None] * jnp.arange(1.0, 33.0)[None])
        hidden = constrain(jnp.tanh(x * table), "model", None)
        return constrain(jnp.tanh(hidden @ w), "data", None), None

    def loss(w: Any, x: Any) -> Any:
        return (jax.lax.scan(layer, x, w)[0] ** 2).mean()

    args = (
        array(DATA_MODEL, (2, 32, 32), None, None, "model"),
        array(DATA_MODEL, (16, 32), "data", "model"),
    )
    return Program("constants_of_two_loops", jax.jit(jax.value_and_grad(loss)), args)


def circular_pipeline() -> Program:
    """What is made whole before a loop looks up in it, as MaxText's pipeline does."""

    def step(ids: Any) -> Any:
        rows = constrain(ids, None, None).reshape(4, 4, 64)

        def turn(total: Any, number: Any) -> Any:
            which = constrain((jnp.arange(2) + number) % 4, "model")
            own = jax.vmap(lambda at: jax.lax.dynamic_index_in_dim(rows, at, 0, keepdims=False))
            return total + constrain(own(which), "model", "data", None).sum(), None

        return jax.lax.scan(turn, jnp.int32(0), jnp.arange(4))[0]

    def constrain(value: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(value, NamedSharding(DATA_MODEL, P(*spec)))

    ids = array(DATA_MODEL, (16, 64), ("model", "data"), dtype=jnp.int32)
    return Program("circular_pipeline", jax.jit(step), (ids,))


def constrained_twice() -> Program:
    """Constraints that XLA moves a value for in two steps, the second over other axes.

    JAX 0.12's XLA names these after what makes the value or the constraint, and what takes that
    needs it no other way.
    """
    mesh = compat.abstract_mesh(Mesh.of({"data": 2, "model": 2, "x": 2}))

    def constrain(value: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any, x: Any) -> Any:
            hidden = constrain(jnp.tanh(x), "data", None)
            made = constrain(hidden @ constrain(w, None, "model"), "data", "model")
            return (constrain(made, ("data", "x"), None) ** 2).mean()

        return jax.grad(loss)(w, x)

    args = (array(mesh, (32, 16), "model", "x"), array(mesh, (8, 32), "data"))
    return Program("constrained_twice", jax.jit(step), args)


def branches() -> Program:
    """Branches that need what all of them take otherwise, and each in its own way."""

    def step(which: Any, x: Any, w: Any) -> Any:
        def sort(x: Any) -> Any:
            held = NamedSharding(DATA_MODEL, P(None, "data"))
            return jax.lax.with_sharding_constraint(jnp.sort(x, axis=0), held)

        chosen = jax.lax.switch(which, [lambda x: x @ w, sort, lambda x: jnp.cumsum(x, axis=1)], x)
        return chosen + 1, jax.lax.cond(which > 0, lambda y: y.T, lambda y: y, chosen)

    shape = (16, 16)
    which = array(DATA_MODEL, (), dtype=jnp.int32)
    x, w = array(DATA_MODEL, shape, "data", "model"), array(DATA_MODEL, shape, "model", "data")
    return Program("branches", jax.jit(step), (which, x, w))


def of_one_type() -> Program:
    """A ``shard_map`` and a loop whose results have one type, which XLA has in another order."""

    def step(a: Any, b: Any, c: Any) -> Any:
        def local(a: Any, b: Any) -> Any:
            return b * 2, jax.lax.all_gather(a, "data", axis=0, tiled=True)

        given, returned = (
            (P("data", "model"), P("model", "data")),
            (P("model", "data"), P(None, "model")),
        )
        mapped = jax.shard_map(
            local, mesh=DATA_MODEL, in_specs=given, out_specs=returned, check_vma=False
        )
        first, second = mapped(a, b)
        carry = (c, second @ first)
        return jax.lax.while_loop(
            lambda carry: carry[1][0, 0] < 3, lambda carry: (carry[0], carry[1] @ carry[0]), carry
        )

    shape = (16, 16)
    a, b = array(DATA_MODEL, shape, "data", "model"), array(DATA_MODEL, shape, "model", "data")
    return Program("of_one_type", jax.jit(step), (a, b, array(DATA_MODEL, shape, None, "model")))


def looked_up_in_pieces() -> Program:
    """A lookup whose result JAX 0.12's XLA makes with other axes, and exchanges in two steps."""

    def step(table: Any, w: Any, cache: Any, tokens: Any) -> Any:
        rows = table[tokens]
        scores = jnp.einsum("bd,btd->bt", rows, cache)
        return rows @ w, scores, scores @ table[:32]

    args = (
        array(DATA_MODEL, (64, 24), "model"),
        array(DATA_MODEL, (24, 24), None, "model"),
        array(DATA_MODEL, (8, 32, 24), "data", None, "model"),
        array(DATA_MODEL, (8,), "data", dtype=jnp.int32),
    )
    return Program("looked_up_in_pieces", jax.jit(step), args)


def scattered_twice() -> Program:
    """The gradient of two lookups, as of sorted experts: a scatter's result goes into the next."""

    def step(weights: Any, order: Any, chosen: Any) -> Any:
        picked = jnp.take_along_axis(weights, chosen, axis=1)
        return (picked.reshape(-1)[order] ** 2).sum()

    args = (
        array(DATA_MODEL, (32, 4), "data"),
        array(DATA_MODEL, (64,), "data", dtype=jnp.int32),
        array(DATA_MODEL, (32, 2), "data", dtype=jnp.int32),
    )
    return Program("scattered_twice", jax.jit(jax.grad(step)), args)


def flipped_product() -> Program:
    """What a reverse takes from other blocks of a product is no sum of that, handed round."""

    def step(x: Any, w: Any) -> Any:
        held = NamedSharding(DATA_MODEL, P("model", "data"))
        made = jnp.tanh(x) @ jnp.sin(w)
        return jnp.cos(jax.lax.with_sharding_constraint(jnp.flip(made, 0), held)) + 1

    args = (
        array(DATA_MODEL, (16, 16), "data", "model"),
        array(DATA_MODEL, (16, 16), "data", "model"),
    )
    return Program("flipped_product", jax.jit(step), args)


def rolled_pipeline() -> Program:
    """A stage's results, of which edges are rolled and others returned, both under its name."""

    def step(stages: Any, state: Any) -> Any:
        def turn(state: Any, _: Any) -> Any:
            state = jnp.tanh(jnp.einsum("sbd,sde->sbe", state, stages))
            held = NamedSharding(DATA_MODEL, P("data"))
            return jax.lax.with_sharding_constraint(jnp.roll(state, 1, axis=0), held), state[-1]

        return jax.lax.scan(turn, state, jnp.arange(9)), stages.sum(0)

    args = (
        array(DATA_MODEL, (4, 16, 16), "data"),
        array(DATA_MODEL, (4, 8, 16), "data"),
    )
    return Program("rolled_pipeline", jax.jit(step), args)


def called_back() -> Program:
    """A callback of each example, whose call in HLO results in no array."""

    def example(x: Any) -> Any:
        jax.experimental.io_callback(lambda _: None, None, x.sum())
        return x * 2

    batch = array(DATA_MODEL, (8, 4), "data")
    return Program("called_back", jax.jit(jax.vmap(example)), (batch,))


def cut_product() -> Program:
    """A product that JAX 0.12's XLA makes over other axes and permutes; what takes it only cuts."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 2, "model": 2, "x": 2}))

    def constrain(value: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))

    def step(cotangent: Any, w: Any, hidden: Any) -> Any:
        back = constrain(constrain(cotangent, "data", "model") @ w.T, "data", "model")
        return jnp.where(hidden > 0, back, 0.0)

    args = (
        array(mesh, (16, 32), "data", "model"),
        array(mesh, (32, 32), "x", "model"),
        array(mesh, (16, 32), ("data", "x"), "model"),
    )
    return Program("cut_product", jax.jit(step), args)


_MADE = [
    (pallas, 0),
    (grouped_matmul, 0),
    (two_meshes, 3),
    (embedding, 1),
    (circular_pipeline, 1),
    (constrained_twice, 1),
    (branches, 1),
    (of_one_type, 0),
    (looked_up_in_pieces, 1),
    (scattered_twice, 1),
    (flipped_product, 1),
    (rolled_pipeline, 1),
    (cut_product, 1),
    (called_back, 1),
    (constants_of_two_loops, 1),
]


@pytest.mark.parametrize(("make", "causes"), _MADE, ids=[make.__name__ for make, _ in _MADE])
@pytest.mark.usefixtures("own_compiles")  # with the flags of the audit's compile, for the memory
def test_all_agrees_with_the_compiler(make: Any, causes: int) -> None:
    verification = Inspection(make()).verify(causes)
    assert not verification.not_verified
    assert len(verification.programs) == 2
    for program in verification.programs:
        stages = {stage.stage: stage for stage in program.stages}
        assert [stage.disagreements for stage in program.stages] == [()] * (4 + 3 * bool(causes))
        assert stages["propagated"].compared > 8
        assert stages["collectives"].compared
        assert not causes or stages["causes"].compared >= causes
    assert verification.agrees


def test_a_cause_on_another_mesh_is_named() -> None:
    shown = Inspection(two_meshes()).collectives("shardy")
    [summed] = [collective for collective in shown.collectives if collective.largest.bytes == 4096]
    origin = summed.largest.origin
    named = [(one.kind, one.name) for one in (*origin.annotations, *origin.otherwise)]
    # `model` of the one mesh is `ep` of the other.
    assert ("argument", "w") in named
    assert [
        str(annotation.spec) for annotation in origin.annotations if annotation.name == "w"
    ] == ["P(None, 'model')"]
    assert sum(kind == "constraint" for kind, _ in named) == 2


def test_a_ragged_exchange_is_predicted_and_said_to_be_refused() -> None:
    def body(x: Any, sizes: Any) -> Any:
        out = jnp.zeros((x.shape[0] * 2, x.shape[1]), x.dtype)
        start = jnp.zeros_like(sizes)
        return jax.lax.ragged_all_to_all(x, out, start, sizes, start, sizes, axis_name="expert")

    def step(x: Any, sizes: Any) -> Any:
        spec = P("expert")
        return jax.shard_map(body, mesh=EXPERT, in_specs=(spec, spec), out_specs=spec)(x, sizes)

    x = array(EXPERT, (128, 32), "expert")
    sizes = array(EXPERT, (64,), "expert", dtype=jnp.int32)
    program = Inspection(Program("ragged", jax.jit(step), (x, sizes)), ["shardy"])
    verification = program.verify(0)
    assert not verification.agrees
    assert not verification.programs
    [refused] = verification.not_verified
    assert "ragged-all-to-all" in refused.reason
    [collective] = program.predicted_collectives("shardy").collectives.collectives
    assert (collective.kind, collective.at_most) == ("ragged-all-to-all", True)
