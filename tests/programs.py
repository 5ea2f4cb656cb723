"""Small jitted functions that put constraints and shard_maps everywhere JAX lets one put them."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint as constrain
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

AUTO = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
EXPLICIT = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
SKINNY = AbstractMesh((8, 1), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

#: name -> (jitted function, its abstract arguments)
PROGRAMS = {}


def on(*spec, mesh=AUTO):
    return NamedSharding(mesh, P(*spec))


def inside(mesh, *spec):
    """A sharding to constrain a value to inside of a ``shard_map``, as each JAX takes it."""
    return P(*spec) if jax.__version_info__ >= (0, 8) else on(*spec, mesh=mesh)


def array(shape, *spec, mesh=AUTO, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=on(*spec, mesh=mesh))


X = array((16, 32), "data")
W = array((32, 32), None, "model")


def program(*args, **options):
    def register(function):
        PROGRAMS[function.__name__] = (jax.jit(function, **options), args or (X, W))
        return function

    return register


@program()
def straight(x, w):
    y = constrain(x @ w, on("data", "model"))
    return constrain(y, on("data", P.UNCONSTRAINED))


@program()
def dead_code(x, w):
    constrain(x @ w, on("data", "model"))
    return x


@program(keep_unused=True)
def kept_dead_code(x, w):
    constrain(x @ w, on("data", "model"))
    return x


@program()
def repeated(x, w):
    for _ in range(3):
        x = constrain(x, on("data"))
    return x @ w


@program()
def pytree(x, w):
    a, b = constrain((x, w), (on("data"), on("model")))
    return a @ b


@jax.jit
def block(x, w):
    return constrain(jnp.tanh(x @ w), on("data", "model"))


@program()
def jit_twice(x, w):
    with jax.named_scope("outer"):
        return block(block(x, w), w)


@program()
def jit_twice_grad(x, w):
    return jax.grad(lambda x, w: block(block(x, w), w).sum(), argnums=(0, 1))(x, w)


@partial(jax.jit, in_shardings=(on("data"), None), out_shardings=on(None, "model"))
def sharded_block(x, w):
    return x @ w


@program()
def jit_with_shardings(x, w):
    return sharded_block(sharded_block(x, w), w)


def loop_body(w):
    def body(c, _):
        return constrain(jnp.sin(c @ w), on("data", None)), constrain(c.sum(0), on("model"))

    return body


@program()
def scan(x, w):
    return jax.lax.scan(loop_body(w), x, None, length=4)


@program()
def scan_by_two(x, w):
    return jax.lax.scan(loop_body(w), x, None, length=7, unroll=2)


@program()
def scan_backwards(x, w):
    return jax.lax.scan(loop_body(w), x, None, length=7, unroll=3, reverse=True)


@program()
def scan_without_loop(x, w):
    return jax.lax.scan(loop_body(w), x, None, length=4, unroll=True)


@program()
def scan_grad(x, w):
    def loss(x, w):
        return jax.lax.scan(loop_body(w), x, None, length=4)[0].sum()

    return jax.value_and_grad(loss, argnums=1)(x, w)


@program()
def scan_remat_grad(x, w):
    def loss(x, w):
        body = jax.checkpoint(loop_body(w), policy=jax.checkpoint_policies.nothing_saveable)
        return jax.lax.scan(body, x, None, length=4)[0].sum()

    return jax.value_and_grad(loss, argnums=1)(x, w)


@program()
def remat_grad(x, w):
    def layer(c, w):
        with jax.named_scope("layer"):
            return constrain(jnp.sin(c @ w), on("data", None))

    def loss(x, w):
        for _ in range(3):
            x = jax.checkpoint(layer)(x, w)
        return x.sum()

    return jax.value_and_grad(loss, argnums=1)(x, w)


@program()
def while_loop(x, w):
    def condition(c):
        return constrain(c[0], on("data", None)).sum() < 10

    def body(c):
        return constrain(c[0] @ w, on("data", "model")), c[1] + 1

    return jax.lax.while_loop(condition, body, (x, 0))


@program()
def while_loop_batched(x, w):
    def one(row):
        return jax.lax.while_loop(
            lambda c: constrain(c, on("model")).sum() < 10,
            lambda c: constrain(c * 2, on()),
            row,
        )

    return jax.vmap(one)(x) @ w


@program()
def fori_loop(x, w):
    return jax.lax.fori_loop(0, 3, lambda _, c: constrain(c @ w, on("data", "model")), x)


@program()
def cond(x, w):
    return jax.lax.cond(
        x.sum() > 0,
        lambda x: constrain(x @ w, on("data")),
        lambda x: constrain(x, on(None, "model")),
        x,
    )


@program()
def switch(x, w):
    branches = [
        lambda x: constrain(x @ w, on("data")),
        lambda x: constrain(x, on(None, "model")),
        lambda x: block(x, w),
    ]
    return jax.lax.switch(x.sum().astype(int), branches, x)


@program()
def vmap(x, w):
    return jax.vmap(lambda row: constrain(row @ w, on("model")))(x)


@program()
def vmap_over_axis(x, w):
    return jax.vmap(lambda row: constrain(row @ w, on("model")), spmd_axis_name="data")(x)


@program(X)
def lax_map(x):
    return jax.lax.map(lambda row: constrain(row * 2, on("model")), x)


@program(X)
def associative_scan(x):
    return jax.lax.associative_scan(lambda a, b: constrain(a + b, on("data")), x)


@jax.custom_vjp
def with_vjp(x):
    return constrain(jnp.sin(x), on("data"))


with_vjp.defvjp(
    lambda x: (with_vjp(x), x), lambda x, g: (constrain(g * jnp.cos(x), on("data", "model")),)
)


@program()
def custom_vjp(x, w):
    return with_vjp(x) @ w, jax.grad(lambda x: with_vjp(x).sum())(x)


@jax.custom_jvp
def with_jvp(x):
    return constrain(jnp.sin(x), on("data"))


with_jvp.defjvp(lambda x, t: (with_jvp(x[0]), t[0] * constrain(jnp.cos(x[0]), on("model"))))


@program()
def custom_jvp(x, w):
    return with_jvp(x) @ w, jax.grad(lambda x: with_jvp(x).sum())(x)


@program()
def linear_solve(x, w):
    def matvec(v):
        return constrain(w @ v, on("model"))

    return jax.lax.custom_linear_solve(matvec, x[0], lambda _, b: constrain(b * 2.0, on("data")))


@program(X, array((2,), dtype=jnp.uint32))
def random(x, data):
    key = jax.random.wrap_key_data(data)
    return jax.random.normal(key, (8,)) + constrain(x.sum(), on())


@program()
def shard_map(x, w):
    summed = jax.shard_map(
        lambda x, w: jax.lax.psum(x @ w, "data"),
        mesh=AUTO,
        in_specs=(P("data"), P(None, "model")),
        out_specs=P(None, "model"),
    )
    return constrain(summed(x, w), on("data"))


@program()
def shard_map_over_one_axis(x, w):
    def body(x, w):
        return constrain(x @ w, NamedSharding(jax.sharding.get_abstract_mesh(), P(None, "model")))

    mapped = jax.shard_map(
        body, mesh=AUTO, in_specs=(P("data"), P()), out_specs=P("data"), axis_names={"data"}
    )
    return constrain(mapped(mapped(x, w), w), on("data"))


@program()
def shard_map_nested(x, w):
    def body(x, w):
        inner = jax.shard_map(
            lambda y: jax.lax.psum(y, "model"),
            in_specs=P(None, "model"),
            out_specs=P(),
            axis_names={"model"},
        )
        return inner(x @ w)

    mapped = jax.shard_map(
        body, mesh=AUTO, in_specs=(P("data"), P()), out_specs=P("data"), axis_names={"data"}
    )
    return constrain(mapped(x, w), on("data"))


@program()
def shard_map_grad(x, w):
    mapped = jax.shard_map(
        lambda x, w: jax.lax.psum(jnp.sin(x @ w), "data"),
        mesh=AUTO,
        in_specs=(P("data"), P(None, "model")),
        out_specs=P(None, "model"),
    )
    return jax.grad(lambda x, w: mapped(mapped(x, w), w).sum(), argnums=(0, 1))(x, w)


@program(array((16, 32), "data", mesh=SKINNY), array((32, 32), mesh=SKINNY))
def shard_map_over_nothing(x, w):
    mapped = jax.shard_map(
        lambda x, w: x @ w,
        mesh=SKINNY,
        in_specs=(P(), P(None, "model")),
        out_specs=P(None, "model"),
        axis_names={"model"},
    )
    return constrain(mapped(x, w), on("data", mesh=SKINNY))


@program(array((16, 32), "data", mesh=EXPLICIT), array((32, 32), None, "model", mesh=EXPLICIT))
def explicit(x, w):
    return jax.sharding.reshard(jnp.tanh(x @ w), on(None, "model", mesh=EXPLICIT))
