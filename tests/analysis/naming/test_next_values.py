"""Results that are next values of arguments, gradients, or have their paths by chance."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.naming.next_values import certain, continuing, gradients, only_moves
from sdyscope.analysis.naming.paths import Leaf
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection

MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
ROWS = NamedSharding(MESH, P("data"))


def array(*shape, sharding=None):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


PARAMS = {"down": array(16, 8), "scale": array(8), "up": array(8, 16)}
BATCH = array(32, 8, sharding=ROWS)


def forward(params, x):
    x = x * params["scale"]
    return jnp.tanh(jnp.tanh(x @ params["up"]) @ params["down"])


def loss(params, x):
    return (forward(params, x) ** 2).mean()


def gradient(params, x):
    return jax.grad(loss)(params, x)


def with_loss(params, x):
    return jax.value_and_grad(loss)(params, x)


def checkpointed(params, x):
    return jax.grad(jax.checkpoint(loss))(params, x)


def clipped(params, x):
    grads = gradient(params, x)
    norm = jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(grads)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, 1.0 / norm), grads)


def cast_and_constrained(params, x):
    cast = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) / 2, gradient(params, x))
    return jax.tree.map(lambda leaf: lax.with_sharding_constraint(leaf, ROWS), cast)


def accumulated(params, x):
    def add(total, part):
        return jax.tree.map(jnp.add, total, gradient(params, part)), None

    return lax.scan(add, jax.tree.map(jnp.zeros_like, params), x.reshape(4, 8, 8))[0]


def summed_over_devices(params, x):
    def mapped(params, x):
        return jax.tree.map(lambda leaf: lax.pmean(leaf, "data"), gradient(params, x))

    specs = {"mesh": MESH, "in_specs": (P(), P("data")), "out_specs": P()}
    return jax.shard_map(mapped, **specs, check_vma=False)(params, x)


def in_a_function(params, x):
    return jax.jit(gradient)(params, x)


def updated(params, x):
    return jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad, params, gradient(params, x))


def steps(params, x):
    """A whole loop of training, whose carry is what each step updates."""
    return lax.scan(lambda params, x: (updated(params, x), None), params, x.reshape(4, 8, 8))[0]


def momentum(params, x):
    return jax.tree.map(lambda leaf, grad: 0.9 * leaf + grad, params, gradient(params, x))


def only_forward(params, x):
    return {**params, "scale": params["scale"] * forward(params, x).sum()}


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
@pytest.mark.parametrize(
    ("step", "results"),
    [
        (gradient, {0, 1, 2}),
        (with_loss, {1, 2, 3}),
        (checkpointed, {0, 1, 2}),
        (clipped, {0, 1, 2}),
        (cast_and_constrained, {0, 1, 2}),
        (accumulated, {0, 1, 2}),
        (summed_over_devices, {0, 1, 2}),
        (in_a_function, {0, 1, 2}),
        (lambda params, x: (updated(params, x), gradient(params, x)), {3, 4, 5}),
        (updated, set()),
        (steps, set()),
        (momentum, set()),
        (only_forward, set()),
        (forward, set()),
    ],
)
def test_results_that_are_gradients(step, results, partitioner):
    program = Program("step", jax.jit(step), (PARAMS, BATCH))
    assert gradients(Inspection(program, (partitioner,)).graph()) == results


def averaged(params, average):
    return jax.tree.map(lambda leaf, other: 0.9 * other + 0.1 * leaf, params, average)


def both_averaged(params, average, x):
    params = updated(params, x)
    return params, averaged(params, average)


def restacked(params, x):
    """As Flax's ``nnx.scan`` returns the state of each layer, in a stack of its own."""
    return lax.scan(lambda x, layer: (jnp.tanh(x @ layer["w"]), layer), x, params)[::-1]


def by_chance(params, batch):
    return {"y": jnp.tanh(batch["y"] @ params["up"]) @ params["down"]}


def written(params, cache, x):
    return x.sum(), {"k": lax.dynamic_update_slice(cache["k"], forward(params, x), (0, 0))}


@pytest.mark.parametrize(
    ("step", "arguments", "results"),
    [
        (updated, (PARAMS, BATCH), {0, 1, 2}),
        (steps, (PARAMS, BATCH), {0, 1, 2}),
        (gradient, (PARAMS, BATCH), set()),
        (averaged, (PARAMS, PARAMS), set()),
        (both_averaged, (PARAMS, PARAMS, BATCH), {*range(6)}),
        (restacked, ({"w": array(4, 8, 8)}, BATCH), {0}),
        (by_chance, (PARAMS, {"y": BATCH}), set()),
        (written, (PARAMS, {"k": array(64, 8)}, BATCH), {1}),
    ],
)
def test_results_that_are_next_values_for_certain(step, arguments, results):
    inspection = Inspection(Program("step", jax.jit(step), arguments), ("shardy",))
    rows = inspection.tensors.of("argument", "shardy")
    leaves = [[Leaf.of(row) for row in inspection.tensors.of("result", "shardy")]]
    leaves.append([Leaf.of(row) for row in rows])
    numbers = [row.lowered["shardy"].index for row in rows]
    assert certain(*leaves, numbers, continuing(inspection.graph())) == results


def test_a_program_that_only_moves():
    moved = Program("moved", jax.jit(lambda x: x, out_shardings=ROWS), (array(32, 8),))
    computed = Program("computed", jax.jit(jnp.sin, out_shardings=ROWS), (array(32, 8),))
    assert [only_moves(Inspection(each, ("shardy",)).graph()) for each in (moved, computed)] == [
        True,
        False,
    ]
