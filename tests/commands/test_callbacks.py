"""Callbacks to Python: tokens of ordered effects that nobody wrote, results on one device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.inspection import inspect

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def inspection():
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def body(x):
        given = io_callback(lambda block: block, jax.typeof(x), x, ordered=True)
        return jnp.sin(given)

    @jax.jit
    def step(x, y):
        specs = {"in_specs": P("data", "model"), "out_specs": P("data", "model")}
        return jax.shard_map(body, mesh=mesh, **specs)(x) + y

    array = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    return inspect(step, array, array, name="step")


def test_what_is_requested_of_a_shard_map_is_found_behind_the_token(inspection):
    result = inspection.check()
    assert not result.findings
    assert not inspection.tensors.unaligned
    assert all(row.dtype == "f32" for row in inspection.tensors.tensors)


def test_a_token_takes_no_memory_and_is_no_tensor(inspection):
    memory = inspection.memory("shardy")
    assert [tensor.name for tensor in memory.tensors] == ["x", "y", "result"]
    assert memory.equal


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_what_a_callback_gives_is_sent_from_its_device_for_no_annotation(partitioner):
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    @jax.jit
    def step(x):
        return jax.pure_callback(np.sin, jax.typeof(x), x) + 1

    array = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    collectives = inspect(step, array, name="step", partitioners=(partitioner,)).collectives()
    (sent,) = [each for each in collectives.collectives if each.kind == "all-reduce"]
    origin = sent.largest.origin
    assert origin.annotations == ()
    assert origin.not_found == "one device"
