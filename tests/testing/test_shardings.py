"""`assert_sharding`: what passes, and what failures say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.inspection import Inspection, inspect
from sdyscope.targets import resolve
from sdyscope.testing import assert_sharding


@pytest.fixture(scope="module")
def mlp():
    return Inspection(resolve("mlp"), ("shardy",))


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))


@pytest.fixture(scope="module")
def array(mesh):
    return jax.device_put(jnp.ones((8, 16)), NamedSharding(mesh, P("data")))


@pytest.mark.parametrize("at", ["requested", "lowered", "propagated"])
@pytest.mark.parametrize(
    "spec",
    [P(None, "model"), P(None, ("model",)), "P(None, 'model')", P(None, P.UNCONSTRAINED)],
    ids=str,
)
def test_an_argument_is_as_expected_at_each_stage(mlp, at, spec):
    assert_sharding(mlp, "params['w1']", spec, at=at)
    if spec != P(None, P.UNCONSTRAINED):
        with pytest.raises(AssertionError, match=r"found    P\('model', None\)"):
            assert_sharding(mlp, "params['w2']", spec, at=at)


def test_a_failure_has_both_shardings_the_line_and_the_origin(mlp):
    with pytest.raises(AssertionError) as caught:
        assert_sharding(mlp, "jvp(block0)/bf,fh->bh/dot_general", P("data"))
    said = str(caught.value)
    assert "f32[16,256] after propagation under Shardy" in said
    assert "mlp.py:99" in said
    assert "expected P('data')" in said
    assert "found    P('data', 'model')" in said
    assert "model is from the annotation {model} on dim 1 of the constraint" in said


def test_a_name_may_stand_for_several_values(mlp):
    with pytest.raises(AssertionError, match="2 of the 5 values called block0/sharding_constr"):
        assert_sharding(mlp, "block0/sharding_constraint", P("data"), at="lowered")
    # Scalars in a scope are left out: the mean is one.
    assert_sharding(mlp, "jvp(loss)", P("data"))


def test_results_have_what_was_asked_for_them(mlp):
    assert_sharding(mlp, "result[0]['w1']", P(None, "model"))
    assert_sharding(mlp, "result[2]", P())


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("params['w3']", P(), "Did you mean params['w2']"),
        ("params['w1']", P("nope"), "the mesh has: data, model"),
        ("params['w1']", P(None, None, "data"), "is for a tensor of rank 3, not 2"),
        ("params['w1']", 3, "A sharding is needed, not an int"),
    ],
)
def test_what_can_not_be_compared_is_no_failure(mlp, name, spec, words):
    with pytest.raises(TargetError) as caught:
        assert_sharding(mlp, name, spec)
    assert words in str(caught.value)


@pytest.fixture(scope="module")
def mapped():
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))

    @jax.jit
    def step(x):
        with jax.named_scope("mix"):
            return jax.shard_map(
                jnp.sin, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", "model")
            )(x)

    sharding = NamedSharding(mesh, P("data"))
    return inspect(step, jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=sharding))


@pytest.mark.compiles  # GSPMD's propagation is XLA's
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_a_result_is_where_it_is_returned_not_where_it_is_made(mesh, partitioner):
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    doubled = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P()))
    program = inspect(doubled, x, partitioners=[partitioner])
    assert_sharding(program, "result", P())
    with pytest.raises(AssertionError, match="found    replicated"):
        assert_sharding(program, "result", P("data"))


@pytest.mark.compiles  # GSPMD's propagation is XLA's
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_shard_map(mapped, partitioner):
    assert_sharding(mapped, "mix/shard_map", P("data", "model"), at="lowered")
    assert_sharding(mapped, "result", P("data", "model"), partitioner=partitioner)
    with pytest.raises(AssertionError, match=r"mix #0 input of sin f32\[8,8\] as it is req"):
        assert_sharding(mapped, "mix/shard_map", P("data"), at="requested")
    # Inside it is nothing that a PartitionSpec says.
    for spec in (P(), P("data", "model")):
        with pytest.raises(AssertionError, match="found    manual"):
            assert_sharding(mapped, "sin", spec, partitioner=partitioner)


def test_arrays_are_compared_by_what_each_device_holds(array, mesh):
    for same in (P("data"), P("data", None), P(("data",)), P("data", P.UNCONSTRAINED), "P('data')"):
        assert_sharding(array, same)
    # Another mesh that has the same blocks on the same devices.
    other = Mesh(np.array(jax.devices()[:8]).reshape(2, 2, 2), ("a", "b", "c"))
    assert_sharding(array, P(("a", "b")), mesh=other)
    assert_sharding(array, NamedSharding(other, P(("a", "b"))))
    with pytest.raises(AssertionError, match="a different block is on 4 of 8 devices"):
        assert_sharding(array, P(("b", "a")), mesh=other)
    with pytest.raises(AssertionError, match=r"expected P\(None, 'data'\)\n  found    P\('data'"):
        assert_sharding(array, P(None, "data"))
    # What jit made has another kind of sharding, and is where it is.
    assert_sharding(jax.jit(lambda x: x.T)(array), P(None, "data"), mesh=mesh)


def test_arrays_on_one_device(array, mesh):
    alone = jax.device_put(np.ones((8, 16)), SingleDeviceSharding(jax.devices()[1]))
    assert_sharding(alone, P())
    with pytest.raises(AssertionError, match="whole on one device"):
        assert_sharding(alone, P(), mesh=mesh)
    with pytest.raises(TargetError, match="no mesh whose axes"):
        assert_sharding(alone, P("data"))
    with pytest.raises(TargetError, match="can't be sharded so"):
        assert_sharding(jnp.ones(3), P("data"), mesh=mesh)
    with pytest.raises(TargetError, match="not a ndarray"):
        assert_sharding(np.ones(3), P("data"))
