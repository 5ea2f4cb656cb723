"""Results that are next values of arguments, gradients, or have their paths by chance."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.memory.donation import not_donated
from sdyscope.analysis.naming.next_values import continuing, next_values_of_rows, only_moves
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages.lowered.read import read_bytes

MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
ROWS = NamedSharding(MESH, P("data"))


def pairs_in(inspection):
    results, given = (inspection.tensors.of(kind, "shardy") for kind in ("result", "argument"))
    return next_values_of_rows(results, given, "shardy", inspection.graph())


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
    sources = continuing(Inspection(program, (partitioner,)).graph())
    assert {number for number, source in sources.items() if source.is_gradient} == results


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


def drawn_to(params, average, x):
    params = updated(params, x)
    return params, jax.tree.map(lambda a, leaf: a + 0.1 * (leaf - a), average, params)


def written(params, cache, x):
    return x.sum(), {"k": lax.dynamic_update_slice(cache["k"], forward(params, x), (0, 0))}


def both_clipped(params, x):
    """One function of JAX's, called of parameters and of their gradients."""
    params = jax.tree.map(lambda leaf: jnp.clip(leaf, -1, 1), params)
    grads = gradient(params, x)
    return jax.tree.map(lambda leaf: jnp.clip(leaf, -1, 1), grads)


def clipped_and_updated(params, x):
    return jax.tree.map(lambda leaf: jnp.clip(leaf, -1, 1), updated(params, x))


def decayed(params, x):
    return jax.tree.map(lambda leaf, grad: grad + 0.01 * leaf, params, gradient(params, x))


def flat(params, x):
    grads, unravel = ravel_pytree(gradient(params, x))
    return unravel(grads / jnp.maximum(1.0, jnp.linalg.norm(grads)))


def of_each_example(params, x):
    grads = jax.vmap(jax.grad(loss), (None, 0))(params, x[:, None])
    return jax.tree.map(lambda leaf: leaf.mean(0), grads)


def with_momentum(state, x):
    grads = gradient(state["params"], x)
    mu = jax.tree.map(lambda leaf, grad: 0.9 * leaf + grad, state["mu"], grads)
    return {"params": jax.tree.map(lambda p, m: p - m, state["params"], mu), "mu": mu}


def keeping_gradients(state, x):
    grads = gradient(state["params"], x)
    moved = jax.tree.map(lambda p, old, g: p - g + old, state["params"], state["old"], grads)
    return {"params": moved, "old": grads}


def normalized(batch):
    return jax.tree.map(lambda x: (x - x.mean(0)) / x.std(0), batch)


def line_search(params, x):
    grads = gradient(params, x)
    far = jax.tree.map(lambda leaf, grad: leaf - grad, params, grads)
    return far, jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad, params, grads)


def perturbed(params, key, x):
    """A sample of parameters, and what it is worth, as evolution strategies ask for."""
    sample = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(key, leaf.shape), params)
    return sample, loss(sample, x)


def perturbed_and_differentiated(params, key, x):
    sample, _ = perturbed(params, key, x)
    return sample, jax.value_and_grad(loss)(sample, x)


def merged(params, adapter):
    return {name: params[name] + pair["a"] @ pair["b"] for name, pair in adapter.items()}


def trained_and_merged(params, adapter, x):
    grads = jax.grad(lambda adapter: loss({**params, **merged(params, adapter)}, x))(adapter)
    adapter = jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad, adapter, grads)
    return merged(params, adapter), adapter


def residual(params, x):
    return {"y": x["y"] + forward(params, x["y"])}


def with_decay(params, x):
    shrunk = jax.tree.map(lambda leaf: leaf - 0.01 * leaf, params)
    grads = gradient(params, x)
    return jax.tree.map(
        lambda leaf, grad: leaf - 0.1 * (grad @ grad.T @ grad), *map(two, (shrunk, grads))
    )


def two(params):
    return {name: params[name] for name in ("down", "up")}


def counted(state):
    return {"steps": state["steps"] + 1}


STATE = {"params": PARAMS, "mu": PARAMS}
KEY = jax.eval_shape(lambda: jax.random.key(0))
ADAPTER = {
    name: {"a": array(leaf.shape[0], 2), "b": array(2, leaf.shape[1])}
    for name, leaf in two(PARAMS).items()
}


@pytest.mark.parametrize(
    ("step", "arguments", "known"),
    [
        (updated, (PARAMS, BATCH), {"next value"}),
        (steps, (PARAMS, BATCH), {"next value"}),
        (clipped_and_updated, (PARAMS, BATCH), {"next value"}),
        (with_momentum, (STATE, BATCH), {"next value"}),
        # Which of them is next only the caller knows.
        (line_search, (PARAMS, BATCH), {"path"}),
        (gradient, (PARAMS, BATCH), {"gradient"}),
        (both_clipped, (PARAMS, BATCH), {"path"}),
        (flat, (PARAMS, BATCH), {"gradient"}),
        (of_each_example, (PARAMS, BATCH), {"gradient"}),
        (decayed, (PARAMS, BATCH), {"path"}),
        (keeping_gradients, ({"params": PARAMS, "old": PARAMS}, BATCH), {"next value", "path"}),
        (averaged, (PARAMS, PARAMS), {"path"}),
        (both_averaged, (PARAMS, PARAMS, BATCH), {"next value"}),
        (drawn_to, (PARAMS, PARAMS, BATCH), {"next value"}),
        (restacked, ({"w": array(4, 8, 8)}, BATCH), {"next value", "type"}),
        (by_chance, (PARAMS, {"y": BATCH}), {"path"}),
        (normalized, ({"x": BATCH},), {"path"}),
        (written, (PARAMS, {"k": array(64, 8)}, BATCH), {"next value"}),
        # A step, and not whatever else may be added.
        (with_decay, (PARAMS, BATCH), {"next value"}),
        (counted, ({"steps": array(4)},), {"next value"}),
        (perturbed, (PARAMS, KEY, BATCH), {"path"}),
        (perturbed_and_differentiated, (PARAMS, KEY, BATCH), {"path"}),
        (merged, (PARAMS, ADAPTER), {"path"}),
        (residual, (PARAMS, {"y": BATCH}), {"path"}),
    ],
)
def test_what_results_are_to_the_arguments_whose_paths_they_have(step, arguments, known):
    inspection = Inspection(Program("step", jax.jit(step), arguments), ("shardy",))
    assert {value.relation for value in pairs_in(inspection).values()} == known


def test_weights_with_the_product_of_an_adapter_are_no_next_value():
    program = Program("step", jax.jit(trained_and_merged), (PARAMS, ADAPTER, BATCH))
    inspection = Inspection(program, ("shardy",))
    results = inspection.tensors.of("result", "shardy")
    known = {results[at].path: value.relation for at, value in pairs_in(inspection).items()}
    trained = (f"result[1]['{name}']['{side}']" for name in ADAPTER for side in "ab")
    assert known == {
        **dict.fromkeys(("result[0]['down']", "result[0]['up']"), "path"),
        **dict.fromkeys(trained, "next value"),
    }


def test_an_argument_is_not_donated_to_several_results():
    params = {name: array(*leaf.shape, sharding=ROWS) for name, leaf in PARAMS.items()}
    inspection = Inspection(Program("step", jax.jit(line_search), (params, BATCH)), ("shardy",))
    pairs = not_donated(inspection.tensors, "shardy", inspection.graph("shardy"))
    names = [pair.argument.path for pair in pairs]
    assert names == [f"params['{leaf}']" for leaf in PARAMS]
    assert not any(pair.certain for pair in pairs)


def distilled(teacher, student, x):
    def apart(student):
        return ((forward(student, x) - forward(teacher, x)) ** 2).mean()

    grads = jax.grad(apart)(student)
    return jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad, student, grads)


def averaged_teacher(teacher, student, x):
    student = distilled(teacher, student, x)
    return student, jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b, teacher, student)


@pytest.mark.parametrize(
    ("step", "arguments"),
    [(distilled, ("student",)), (averaged_teacher, ("student", "teacher"))],
)
def test_of_two_arguments_of_one_path_a_result_has_the_one_that_it_keeps(step, arguments):
    inspection = Inspection(Program("step", jax.jit(step), (PARAMS, PARAMS, BATCH)), ("shardy",))
    given, known = inspection.tensors.of("argument", "shardy"), pairs_in(inspection)
    assert [given[value.argument].path for _, value in sorted(known.items())] == [
        f"{name}['{leaf}']" for name in arguments for leaf in PARAMS
    ]
    student = {value.relation for at, value in known.items() if at < len(PARAMS)}
    assert student == {"next value"}


def test_a_program_that_only_moves():
    moved = Program("moved", jax.jit(lambda x: x, out_shardings=ROWS), (array(32, 8),))
    computed = Program("computed", jax.jit(jnp.sin, out_shardings=ROWS), (array(32, 8),))
    assert [only_moves(Inspection(each, ("shardy",)).graph()) for each in (moved, computed)] == [
        True,
        False,
    ]


def test_a_token_of_an_ordered_effect_is_no_result_of_the_program():
    def step(params, x):
        jax.debug.print("{}", x.sum(), ordered=True)
        return loss(params, x), updated(params, x), gradient(params, x)

    plain = {name: array(*each.shape) for name, each in PARAMS.items()}
    program = Program("step", jax.jit(step), (plain, array(32, 8)))
    inspection = Inspection(program, ("shardy",))
    assert {number: value.relation for number, value in pairs_in(inspection).items()} == {
        number: "next value" if number < 4 else "gradient" for number in range(1, 7)
    }


def test_each_result_of_a_collective_is_made_from_its_own_operand():
    text = """
module @m {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0:2 = "stablehlo.all_reduce"(%a, %b) <{replica_groups = dense<0> : tensor<1x1xi64>}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %1 = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    return %0#1, %0#0 : tensor<4xf32>, tensor<4xf32>
  }
}
"""
    graph = Inspection(read_bytes(text.encode())).graph()
    assert {at: source.arguments for at, source in continuing(graph).items()} == {0: {1}, 1: {0}}
