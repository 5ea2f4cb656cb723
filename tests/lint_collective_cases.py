"""Cases for the rules about collectives that a parallelism does not have; see ``lint_cases``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint as constrain
from jax.sharding import AbstractMesh, AxisType

from sdyscope.inspection import Inspection
from tests.lint_cases import finds, program, spares
from tests.programs import array, on


def perceptron(
    hidden: tuple[Any, ...], *weights: tuple[Any, ...], rows: int = 64, grad: bool = True
) -> Inspection:
    """A step of a perceptron; what is between its two weights is constrained to ``hidden``."""

    def loss(params: Any, batch: Any) -> Any:
        h = jnp.tanh(batch.astype(jnp.bfloat16) @ params["w1"].astype(jnp.bfloat16))
        h = constrain(h, on(*hidden))
        return ((h @ params["w2"].astype(jnp.bfloat16)).astype(jnp.float32) ** 2).mean()

    def step(params: Any, batch: Any) -> Any:
        gradients = jax.grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - g, params, gradients)

    params = {"w1": array((128, 512), *weights[0]), "w2": array((512, 128), *weights[1])}
    return program(step if grad else loss, params, array((rows, 128), "data"))


TP = (None, "model"), ("model",)


@finds("parameter-gathered", "params['w2']", compiled=True)
@spares("batch-sharding-lost", compiled=True)
def activations_off_the_axis_of_their_weights():
    return perceptron(("data",), *TP)


@spares("parameter-gathered", "batch-sharding-lost", compiled=True)
def tensor_parallel():
    return perceptron(("data", "model"), *TP)


@spares("parameter-gathered", "batch-sharding-lost", compiled=True)
def fully_sharded():
    return perceptron(("data", "model"), ("data", "model"), ("model", "data"))


@spares("parameter-gathered", compiled=True)
def activations_gathered():
    # They are as large as the weight, and made with it; it is not what is gathered.
    return perceptron(("data",), *TP, rows=512, grad=False)


@spares("parameter-gathered", compiled=True)
def a_carry_is_gathered_that_a_stack_shards():
    # A layer comes to the same shape, and its axis is where the carry's comes from.
    def loss(w: Any, batch: Any) -> Any:
        x, _ = jax.lax.scan(lambda x, layer: (jnp.tanh(x @ layer), None), batch, w)
        return (x**2).mean()

    return program(loss, array((4, 64, 64), None, "data", "model"), array((64, 64), "data"))


def stacked(hidden: tuple[Any, ...], embedding: tuple[Any, ...], batch: Any) -> Inspection:
    """Layers that a loop takes from stacks, after an embedding is looked up."""

    def loss(params: Any, batch: Any) -> Any:
        def layer(x: Any, p: Any) -> Any:
            h = jnp.tanh(x @ p["w1"])
            return x + (constrain(h, on(*hidden)) if hidden else h) @ p["w2"], None

        x = params["embedding"][batch] if batch.ndim == 2 else batch
        y, _ = jax.lax.scan(layer, x, params["layers"])
        return (y**2).mean()

    def step(params: Any, batch: Any) -> Any:
        gradients = jax.grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - g, params, gradients)

    axis = () if hidden else ("data",)
    layers = {
        "w1": array((4, 128, 512), None, *(axis or (None,)), "model"),
        "w2": array((4, 512, 128), None, "model", *axis),
    }
    return program(step, {"layers": layers, "embedding": array((256, 128), *embedding)}, batch)


@finds("parameter-gathered", "params['layers']['w2']", compiled=True)
def a_layer_of_a_stack_is_gathered():
    return stacked(("data",), (), array((16, 32, 128), "data"))


@spares("parameter-gathered", compiled=True)  # the embedding is looked up
@finds("batch-sharding-lost", "dot_general", compiled=True)
def features_on_the_axis_of_the_batch():
    return stacked((), ("model", "data"), array((64, 32), "data", dtype=jnp.int32))


@spares("batch-sharding-lost", compiled=True)
def a_product_that_sums_over_the_batch():
    def step(w: Any, batch: Any) -> Any:
        return (batch.T @ batch) @ w

    return program(step, array((128, 128), None, "model"), array((64, 128), "data"))


@spares("batch-sharding-lost", compiled=True)
def an_optimizer_that_sums_over_its_gradients():
    """Shampoo's statistics are of gradients, which have no examples."""

    def step(params: Any, statistics: Any, batch: Any) -> Any:
        gradients = jax.grad(lambda w: ((batch @ w) ** 2).mean())(params)
        return params - gradients, statistics + gradients.T @ gradients

    arguments = array((256, 512), "data"), array((512, 512)), array((64, 256), "data")
    return program(step, *arguments)


def sliced(mesh: AbstractMesh, hidden: tuple[Any, ...]) -> Inspection:
    """A loop over layers under tensor parallelism, and a gradient of each."""

    def put(*spec: Any) -> Any:
        return on(*spec, mesh=mesh)

    def loss(layers: Any, batch: Any) -> Any:
        def layer(x: Any, p: Any) -> Any:
            h = constrain(jnp.tanh(x @ p["w1"]), put(*hidden))
            return constrain(x + h @ p["w2"], put("data")), None

        y, _ = jax.lax.scan(layer, batch, layers)
        return (y**2).mean()

    def step(layers: Any, batch: Any) -> Any:
        return jax.tree.map(lambda p, g: p - g, layers, jax.grad(loss)(layers, batch))

    layers = {
        "w1": array((4, 128, 512), None, None, "model", mesh=mesh),
        "w2": array((4, 512, 128), None, "model", mesh=mesh),
    }
    return program(step, layers, array((512, 128), "data", mesh=mesh))


SLICES = "tpu:v5e:2x2x2slices"


@finds("slices-crossed-in-loop", "dot_general", compiled=True, hardware=SLICES)
def the_model_crosses_slices():
    mesh = AbstractMesh((2, 4), ("model", "data"), axis_types=(AxisType.Auto,) * 2)
    return sliced(mesh, ("data", "model"))


@spares("slices-crossed-in-loop", compiled=True, hardware=SLICES)
def the_batch_crosses_slices():
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    return sliced(mesh, ("data", "model"))
