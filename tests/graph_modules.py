"""Modules that JAX lowers, with every kind of region, call and sharding that it writes."""

import functools

import jax
import jax.numpy as jnp
import numpy
from jax import lax
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax.sharding import PartitionSpec as P

from tests.programs import AUTO, array, on

PARTITIONERS = ("shardy", "gspmd")
#: More than MLIR prints one by one.
NUMBERS = numpy.linspace(-3, 5, 150, dtype=numpy.float32).reshape(3, 50)


def regions():
    """Scan, remat, shard_map, switch, sort, while, reductions, random numbers, scatter."""

    def step(params, x, which):
        @jax.checkpoint
        def body(carry, w):
            return jnp.tanh(carry @ w), carry.sum()

        def loss(params):
            y, sums = lax.scan(body, x, params["w"])
            z = jax.shard_map(
                lambda a, b: lax.psum(a @ b, "model"),
                mesh=AUTO,
                in_specs=(P("data", "model"), P("model", None)),
                out_specs=P("data", None),
            )(y, params["k"])
            z = lax.with_sharding_constraint(z, on("data", None))
            branches = [lambda z: z * 2, jnp.sin, lambda z: z.at[0].add(1.0)]
            u = jnp.sort(lax.switch(which, branches, z), axis=-1)
            return jnp.where(u > 0, u, 0).sum() + sums.sum() + jnp.max(jax.nn.relu(u))

        value, gradients = jax.value_and_grad(loss)(params)
        noise = jax.random.normal(jax.random.key(0), x.shape)
        last = lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] * x), (0, noise))
        return value, gradients, last, jnp.argmax(x, axis=1)

    params = {"w": array((3, 8, 8), None, "data", "model"), "k": array((8, 8), "model", None)}
    which = jax.ShapeDtypeStruct((), jnp.int32)
    return jax.jit(step, donate_argnums=0), (params, array((16, 8), "data", None), which)


def layers():
    """Two layers with named scopes and gradients, a closed-over constant and an unused argument."""
    table = jnp.arange(8.0)

    def step(params, x, unused):
        def loss(params):
            y = x
            for number, w in enumerate(params):
                with jax.named_scope(f"layer{number}"):
                    y = lax.with_sharding_constraint(jnp.tanh(y @ w) + table, on("data"))
            return (y**2).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    weights = [array((8, 8), "data", "model"), array((8, 8), "model", "data")]
    return jax.jit(step), (weights, array((16, 8), "data"), array((4,), "data"))


def operations():
    """Operations with many attributes of their own: windows, dimension numbers, groups, numbers."""

    def collectives(x):
        x = lax.ppermute(x, "data", [(i, (i + 1) % 4) for i in range(4)])
        y = lax.all_gather(x, "data", tiled=True)
        y = lax.psum_scatter(y, "data", tiled=True)
        return lax.all_to_all(y, "model", 1, 0, tiled=True) + lax.pmax(y, "model").sum()

    def step(x, image, kernel, indices):
        window = lax.reduce_window(image, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
        convolved = lax.conv_general_dilated(
            image, kernel, (1, 2), ((1, 1), (0, 2)), rhs_dilation=(1, 2), precision="highest",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip
        sent = jax.shard_map(
            collectives, mesh=AUTO, in_specs=P("data", None), out_specs=P(("data", "model"), None),
            check_vma=False,
        )(x)  # fmt: skip
        square = x @ x.T
        return (
            window,
            convolved,
            sent,
            x[indices],
            jnp.zeros((8, 8)).at[indices, :].add(x[:8, :8], mode="drop", unique_indices=True),
            lax.pad(x, 0.5, ((1, 2, 0), (0, 0, 3))),
            lax.slice(x, (0, 1), (16, 7), (2, 1)),
            lax.rev(x, (1,)),
            jnp.fft.rfft(x),
            lax.linalg.cholesky(square + 17 * jnp.eye(16)),
            jax.scipy.linalg.solve_triangular(square, x, lower=True),
            lax.reduce_precision(x, 5, 10),
            lax.dot_general(x, x, (((0,), (0,)), ((1,), (1,))), precision="high"),
            jnp.array([1 + 2j, 3 - 1j], jnp.complex64) * 2j,
            jnp.array([0.1, jnp.inf, jnp.nan, -0.0], jnp.bfloat16),
            jnp.arange(200).at[3].set(7)[jnp.array([True, False] * 100)[:10].argmax()],
            jnp.array(NUMBERS),
            jnp.array(NUMBERS > 0),
            lax.full((3,), 0.1, jnp.float16),
            lax.sort((x, x + 1), dimension=0, num_keys=2, is_stable=False),
            lax.approx_max_k(x, 3),
            lax.cond(indices[0] > 2, jnp.exp, lambda x: jnp.clip(x, 0, 1), x),
        )

    arguments = (
        array((16, 8), "data", None),
        array((4, 8, 8, 3), "data"),
        array((3, 3, 3, 5)),
        jax.ShapeDtypeStruct((8,), jnp.int32),
    )
    return jax.jit(step), arguments


PROGRAMS = {"regions": regions, "layers": layers, "operations": operations}
CASES = [(name, partitioner) for name in PROGRAMS for partitioner in PARTITIONERS]


@functools.cache
def lowered(name, partitioner):
    """The module that JAX makes of a program."""
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", partitioner == "shardy")
    try:
        function, arguments = PROGRAMS[name]()
        return function.trace(*arguments).lower(lowering_platforms=("cpu",)).compiler_ir()
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


def text_of(module, *, generic=False, locations=True):
    """The module's text with locations, pretty-printed or in the generic form."""
    return module.operation.get_asm(enable_debug_info=locations, print_generic_op_form=generic)


def parse(text, *, unregistered=False):
    """A module from its text."""
    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = unregistered
    return ir.Module.parse(text, context=context)


def bodies(operation):
    """Every operation inside, outer ones first, each after what is printed before it."""
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from bodies(inner.operation)


def walked(module):
    """The operations of a module by MLIR's own walk, outer ones first."""
    found = []

    def visit(operation):
        found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found
