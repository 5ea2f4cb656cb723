"""Collectives of partitioned programs, against what the programs are known to send."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.collectives.read import collectives
from sdyscope.hlo import read_hlo, trip_count
from sdyscope.values.mesh import AxisRef, Mesh

MESH = Mesh.of({"a": 2, "b": 2, "c": 2})


def names(axes):
    return None if axes is None else tuple(map(str, axes))


def jax_mesh(order=None):
    devices = np.array(jax.devices()[:8])
    devices = devices if order is None else devices[list(order)]
    return jax.sharding.Mesh(
        devices.reshape(2, 2, 2), ("a", "b", "c"), axis_types=(AxisType.Auto,) * 3
    )


def compiled(fun, mesh, *arguments):
    return read_hlo(jax.jit(fun).lower(*arguments).compile().as_text())


def shard_mapped(body, mesh, in_spec, out_spec, shape=(64, 64)):
    mapped = jax.shard_map(body, mesh=mesh, in_specs=in_spec, out_specs=out_spec, check_vma=False)
    argument = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, in_spec))
    return compiled(mapped, mesh, argument)


def size_of(axes):
    return 2 ** len(axes)


BLOCK = 64 * 64 * 4  # every body below is given a block of 64 x 64 float32
AXES = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c")]


def gather(axes, x):
    return jax.lax.all_gather(x, axes, tiled=True)


def reduce(axes, x):
    return jax.lax.psum(x, axes)


def scatter(axes, x):
    return jax.lax.psum_scatter(x, axes, tiled=True)


def exchange(axes, x):
    return jax.lax.all_to_all(x, axes, 0, 1, tiled=True)


def shift(axes, x):
    count = size_of(axes)
    return jax.lax.ppermute(x, axes, [(i, (i + 1) % count) for i in range(count)])


KNOWN = {
    "all-gather": (gather, lambda n: (n - 1) * BLOCK),
    "all-reduce": (reduce, lambda n: 2 * (n - 1) * BLOCK // n),
    "reduce-scatter": (scatter, lambda n: (n - 1) * BLOCK // n),
    "all-to-all": (exchange, lambda n: (n - 1) * BLOCK // n),
    "collective-permute": (shift, lambda n: BLOCK),
}


@pytest.mark.compiles
@pytest.mark.parametrize("axes", AXES, ids="-".join)
@pytest.mark.parametrize("kind", KNOWN)
def test_shard_map_sends_what_its_collective_says(kind, axes):
    body, sent = KNOWN[kind]
    module = shard_mapped(partial(body, axes), jax_mesh(), P(), P())
    (collective,) = collectives(module, [MESH]).collectives
    assert (collective.kind, names(collective.axes)) == (kind, tuple(f'"{axis}"' for axis in axes))
    assert collective.group_size == size_of(axes)
    assert (collective.sent, collective.received) == (sent(size_of(axes)),) * 2
    assert collective.parts[0].source.file == __file__
    assert collective.parts[0].phase == "forward"


@pytest.mark.compiles
@pytest.mark.parametrize("order", [(7, 6, 5, 4, 3, 2, 1, 0), (3, 1, 4, 0, 5, 2, 7, 6)])
@pytest.mark.parametrize("axes", [("b",), ("a", "c")], ids="-".join)
@pytest.mark.parametrize("kind", KNOWN)
def test_the_order_of_the_devices_does_not_matter(kind, axes, order):
    body, sent = KNOWN[kind]
    module = shard_mapped(partial(body, axes), jax_mesh(order), P(), P())
    (collective,) = collectives(module, [MESH]).collectives
    assert names(collective.axes) == tuple(f'"{axis}"' for axis in axes)
    assert collective.sent == sent(size_of(axes))


@pytest.mark.compiles
def test_a_scan_counts_as_often_as_it_runs():
    def body(x):
        return jax.lax.scan(lambda x, _: (jnp.sin(jax.lax.psum(x, "a")), None), x, length=7)[0]

    module = shard_mapped(body, jax_mesh(), P(), P())
    program_collectives = collectives(module, [MESH])
    (collective,) = program_collectives.collectives
    assert (collective.count, collective.unknown_trips) == (7, False)
    assert program_collectives.total.sent == 7 * BLOCK


def test_the_loop_of_a_scan_is_counted_without_xla_s_help():
    def body(x):
        return jax.lax.scan(lambda x, _: (jnp.sin(x), None), x, length=7)[0]

    argument = jax.ShapeDtypeStruct((4,), jnp.float32)
    module = read_hlo(jax.jit(body).lower(argument).as_text(dialect="hlo"))
    (loop,) = [
        (computation, instruction)
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
        if instruction.opcode == "while"
    ]
    assert "known_trip_count" not in loop[1].rest
    assert trip_count(module, *loop) == 7


@pytest.mark.compiles
def test_a_while_of_unknown_length_says_so():
    def body(x):
        return jax.lax.while_loop(
            lambda x: x[0, 0] < 100, lambda x: jax.lax.psum(jnp.exp(x), "a"), x
        )

    (collective,) = collectives(shard_mapped(body, jax_mesh(), P(), P()), [MESH]).collectives
    assert (collective.count, collective.unknown_trips) == (1, True)


# --- textbook formulas ----------------------------------------------------------------------------


BATCH, WIDTH, HIDDEN, LAYERS = 16, 32, 64, 3


def train_step(mesh, first, second, batch):
    """A step of plain gradient descent on an MLP, its weights and batch sharded as given."""

    def on(spec):
        return NamedSharding(mesh, spec)

    def loss(params, x):
        for up, down in params:
            hidden = jnp.tanh(x @ up)
            x = jax.lax.with_sharding_constraint(hidden @ down, on(batch))
        return (x**2).sum()

    def step(params, x):
        gradients = jax.grad(loss)(params, x)
        return jax.tree.map(
            lambda p, g, s: jax.lax.with_sharding_constraint(p - 0.1 * g, s),
            params,
            gradients,
            [(on(first), on(second))] * LAYERS,
        )

    def array(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(spec))

    params = [(array((WIDTH, HIDDEN), first), array((HIDDEN, WIDTH), second))] * LAYERS
    module = compiled(step, mesh, params, array((BATCH, WIDTH), batch))
    sizes = Mesh.of(dict(zip(mesh.axis_names, mesh.devices.shape, strict=True)))
    return collectives(module, [sizes])


def line_mesh(name, size=8):
    return jax.make_mesh((size,), (name,), axis_types=(AxisType.Auto,))


@pytest.mark.compiles
def test_a_megatron_mlp_reduces_activations_once_a_pass_and_layer():
    program = train_step(line_mesh("model"), P(None, "model"), P("model", None), P())
    assert [axes_tally.axes for axes_tally in program.by_axes] == [(AxisRef("model"),)]
    assert set(program.by_kind) == {"all-reduce"}
    # One forward and one backward a layer, but nobody asks for the gradient of the batch.
    activations = BATCH * WIDTH * 4
    assert program.by_kind["all-reduce"].tensors == 2 * LAYERS - 1
    assert program.total.sent == (2 * LAYERS - 1) * 2 * 7 * activations // 8
    assert program.by_phase["forward"].tensors == LAYERS
    assert program.by_phase["backward"].tensors == LAYERS - 1


@pytest.mark.compiles
def test_data_parallelism_reduces_every_gradient_once():
    program = train_step(line_mesh("data"), P(), P(), P("data"))
    weights = 2 * LAYERS * WIDTH * HIDDEN * 4
    assert set(program.by_kind) == {"all-reduce"}
    assert program.total.tensors == 2 * LAYERS
    assert program.total.sent == 2 * 7 * weights // 8
    assert program.by_phase["backward"].sent == program.total.sent


@pytest.mark.compiles
def test_fsdp_gathers_weights_and_reduces_gradients():
    program = train_step(line_mesh("fsdp"), P("fsdp"), P(None, "fsdp"), P("fsdp"))
    weights = 2 * LAYERS * WIDTH * HIDDEN * 4
    assert [axes_tally.axes for axes_tally in program.by_axes] == [(AxisRef("fsdp"),)]
    # Each weight is gathered once: XLA keeps it for the backward pass. CPUs have no
    # reduce-scatter of the partitioner: the gradients take whole all-reduces.
    assert program.by_kind["all-gather"].sent == 7 * weights // 8
    scattered = program.by_kind.get("reduce-scatter")
    reduced = program.by_kind.get("all-reduce")
    total = (0 if scattered is None else 2 * scattered.sent) + (
        0 if reduced is None else reduced.sent
    )
    assert total == 2 * 7 * weights // 8
