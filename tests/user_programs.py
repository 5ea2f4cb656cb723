"""Small programs of every kind that users write, each a function of a mesh that gives a Program.

``USER_PROGRAMS`` has them by name; they lower without devices, and run on a mesh that has some.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.facts.program import Program

USER_PROGRAMS: dict[str, Callable[[Any], Program]] = {}


def program(make: Callable[[Any], Program]) -> Callable[[Any], Program]:
    USER_PROGRAMS[make.__name__] = make
    return make


def abstract(mesh: Any, shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> Any:
    """An abstract array sharded by ``spec``; left to the compiler without one."""
    sharding = NamedSharding(mesh, P(*spec)) if spec else None
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def constrain(value: Any, mesh: Any, *spec: Any) -> Any:
    return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))


@program
def two_layers(mesh: Any) -> Program:
    @jax.jit
    def step(params, batch):
        with jax.named_scope("layer0"):
            hidden = constrain(jnp.tanh(batch["x"] @ params["w"][0]), mesh, "data", "model")
        with jax.named_scope("layer1"):
            return constrain(hidden @ params["w"][1], mesh, "data", P.UNCONSTRAINED)

    params = {"w": [abstract(mesh, (32, 64), None, "model"), abstract(mesh, (64, 32), "model")]}
    return Program("step", step, (params, {"x": abstract(mesh, (16, 32), "data", None)}))


@program
def gradients(mesh: Any) -> Program:
    def loss(params, x):
        hidden = constrain(jnp.tanh(x @ params["w1"]), mesh, "data", "model")
        return (constrain(hidden @ params["w2"], mesh, "data") ** 2).sum()

    @jax.jit
    def step(params, x):
        value, grads = jax.value_and_grad(jax.checkpoint(loss))(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    params = {
        "w1": abstract(mesh, (32, 64), None, "model"),
        "w2": abstract(mesh, (64, 32), "model", None),
    }
    return Program("step", step, (params, abstract(mesh, (16, 32), ("data",), None)))


@program
def every_kind_of_argument(mesh: Any) -> Program:
    """Dropped, donated, static, keyword, None and closed-over values in one signature."""
    table = jnp.asarray(np.arange(64, dtype=np.float32).reshape(8, 8))

    @partial(jax.jit, static_argnames=("power", "flag"), donate_argnames=("state",))
    def update(state, unused, power, nothing, batch, *, flag=True, scale=None, bias=None):
        out = state["m"] @ table if flag else state["m"]
        return {"m": out**power + bias + batch[1], "none": nothing}, scale

    state = {"m": abstract(mesh, (16, 8), "data", None), "n": None}
    return Program(
        "update",
        update,
        (state, abstract(mesh, (4,), "data"), 2, None, (None, abstract(mesh, (8,), "model"))),
        {"bias": abstract(mesh, (8,)), "scale": abstract(mesh, (3,)), "flag": True},
    )


@program
def jit_shardings(mesh: Any) -> Program:
    """in_shardings and out_shardings given to jit, one argument left free."""
    fun = jax.jit(
        lambda x, y: (x @ y, y),
        in_shardings=(NamedSharding(mesh, P("data")), None),
        out_shardings=(NamedSharding(mesh, P("data", "model")), None),
    )
    return Program("matmul", fun, (abstract(mesh, (16, 8)), abstract(mesh, (8, 16))))


@program
def nested_jit(mesh: Any) -> Program:
    inner = jax.jit(
        lambda x: constrain(jnp.sin(x), mesh, "model"),
        in_shardings=NamedSharding(mesh, P("data")),
        out_shardings=NamedSharding(mesh, P(None, "model")),
    )

    @jax.jit
    def outer(x):
        return inner(inner(x)) + inner(x * 2)

    return Program("outer", outer, (abstract(mesh, (16, 8), "data"),))


@program
def scanned(mesh: Any) -> Program:
    @jax.jit
    def fun(x, ws):
        def body(carry, w):
            return constrain(jnp.tanh(carry @ w), mesh, "data", "model"), carry.sum()

        out, sums = jax.lax.scan(body, x, ws)
        return constrain(out, mesh, "data"), sums

    args = (abstract(mesh, (16, 8), "data"), abstract(mesh, (3, 8, 8), None, None, "model"))
    return Program("fun", fun, args)


@program
def branches(mesh: Any) -> Program:
    @jax.jit
    def fun(x, which):
        x = jax.lax.cond(
            which > 0,
            lambda x: constrain(x * 2, mesh, "data"),
            lambda x: constrain(x + 1, mesh, None, "model"),
            x,
        )
        return jax.lax.while_loop(
            lambda x: x.sum() < 10, lambda x: constrain(x + 1, mesh, "model", "data"), x
        )

    args = (abstract(mesh, (16, 8), "data"), abstract(mesh, (), dtype=jnp.int32))
    return Program("fun", fun, args)


@program
def mapped(mesh: Any) -> Program:
    """A constraint under vmap: the batch dimension is left open."""

    @jax.jit
    def fun(x):
        return jax.vmap(lambda row: constrain(row * 2, mesh, "model"))(x)

    return Program("fun", fun, (abstract(mesh, (16, 8), "data"),))


@program
def shard_map_full(mesh: Any) -> Program:
    @jax.jit
    def fun(x, w):
        def body(x, w):
            return jax.lax.psum(x @ w, "model"), x.sum(keepdims=True)

        specs = (P("data", "model"), P("model", None))
        out, sums = jax.shard_map(
            body, mesh=mesh, in_specs=specs, out_specs=(P("data", None), P("data", "model"))
        )(constrain(x, mesh, "data", None), w)
        return constrain(out, mesh, None, "model"), sums

    return Program("fun", fun, (abstract(mesh, (16, 8), "data"), abstract(mesh, (8, 4))))


@program
def shard_map_partial(mesh: Any) -> Program:
    """Manual on data only: model stays the compiler's, and is constrained inside."""

    @jax.jit
    def fun(x, w):
        def body(x, w):
            # In here the mesh is the shard_map's, on which data is manual.
            inside = jax.sharding.get_abstract_mesh()
            return jax.lax.psum(constrain(x @ w, inside, None, "model"), "data")

        return jax.shard_map(
            body, mesh=mesh, in_specs=(P("data"), P()), out_specs=P(), axis_names={"data"}
        )(x, w)

    args = (abstract(mesh, (16, 8), "data"), abstract(mesh, (8, 4), None, "model"))
    return Program("fun", fun, args)


@program
def shard_map_gradient(mesh: Any) -> Program:
    def loss(w, x):
        def body(w, x):
            return jax.lax.pmean((x @ w) ** 2, "data")

        specs = (P(None, "model"), P("data"))
        mapped = jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=P(None, "model"))
        return mapped(w, x).sum()

    args = (abstract(mesh, (8, 4), None, "model"), abstract(mesh, (16, 8), "data"))
    return Program("loss", jax.jit(jax.grad(loss)), args)


@program
def random_keys(mesh: Any) -> Program:
    @jax.jit
    def fun(key, x):
        key, sub = jax.random.split(key)
        return key, constrain(x + jax.random.normal(sub, x.shape), mesh, "data", "model")

    key = jax.eval_shape(lambda: jax.random.key(0))
    return Program("fun", fun, (key, abstract(mesh, (16, 8), "data")))


@program
def not_divisible(mesh: Any) -> Program:
    @jax.jit
    def fun(x, scale):
        return constrain(x * scale, mesh, "data", "model")

    # By an argument on the mesh a JAX before 0.10 knows how many devices there are.
    scale = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, P()))
    return Program("fun", fun, (abstract(mesh, (10, 7)), scale))


@program
def all_axes_on_one_dimension(mesh: Any) -> Program:
    @jax.jit
    def fun(x):
        x = constrain(x, mesh, ("model", "data"), None)
        return constrain(x, mesh, None, ("data", "model"))

    return Program("fun", fun, (abstract(mesh, (16, 8), ("data", "model")),))


@program
def custom_rules(mesh: Any) -> Program:
    @jax.custom_vjp
    def relu(x):
        return constrain(jnp.maximum(x, 0), mesh, "data")

    def forward(x):
        return relu(x), x

    def backward(x, grad):
        return (constrain(grad * (x > 0), mesh, "data", "model"),)

    relu.defvjp(forward, backward)
    fun = jax.jit(jax.grad(lambda x: relu(x).sum()))
    return Program("fun", fun, (abstract(mesh, (16, 8), "data"),))


@program
def decomposed(mesh: Any) -> Program:
    """Custom calls that return several values."""

    @jax.jit
    def fun(x):
        vectors, factor = jnp.linalg.qr(x)
        values, basis = jnp.linalg.eigh(constrain(factor @ factor.T, mesh, "data"))
        return vectors @ factor, values @ basis

    return Program("fun", fun, (abstract(mesh, (16, 8), "data", "model"),))


@program
def largest(mesh: Any) -> Program:
    @jax.jit
    def fun(x):
        values, places = jax.lax.top_k(jnp.sin(x), 3)
        return values * 2, places + 1

    return Program("fun", fun, (abstract(mesh, (8, 4, 16), "data", None, "model"),))


@program
def printed(mesh: Any) -> Program:
    """Callbacks, which the loop's body calls in a function of its own."""

    @jax.jit
    def fun(x):
        def body(carry, _):
            jax.debug.print("{x}", x=carry.sum())
            return jnp.tanh(carry @ carry.T) @ carry, None

        return jax.lax.scan(body, x, None, length=3)[0]

    return Program("fun", fun, (abstract(mesh, (16, 8), "data", "model"),))


@program
def transformed(mesh: Any) -> Program:
    """With a complex constant, which MLIR's bindings can't read."""

    @jax.jit
    def fun(x):
        spectrum = jnp.fft.fft(x.astype(jnp.complex64)) * np.complex64(0.5 + 2j)
        return jnp.fft.ifft(constrain(spectrum, mesh, "data")).real

    return Program("fun", fun, (abstract(mesh, (8, 16), "data", None),))


@program
def shard_map_loop(mesh: Any) -> Program:
    """A loop inside that takes one argument from outside of it, as ring attention does."""
    size = mesh.shape["data"]

    @jax.jit
    def fun(x, y):
        def local(x, y):
            def body(y, _):
                y = jax.lax.ppermute(y, "data", [(i, (i + 1) % size) for i in range(size)])
                return jnp.tanh(x * y), None

            return jax.lax.scan(body, y, None, length=size)[0]

        spec = P("data", "model")
        return jax.shard_map(local, mesh=mesh, in_specs=(spec, spec), out_specs=spec)(x, y)

    x = abstract(mesh, (16, 8), "data", "model")
    return Program("fun", fun, (x, x))
