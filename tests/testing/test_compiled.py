"""`assert_no_collectives` and `assert_max_bytes`, of a program that is compiled once."""

import jax
import jax.numpy as jnp
import pytest

from sdyscope.errors import TargetError
from sdyscope.inspection import Inspection, inspect
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.testing import assert_max_bytes, assert_no_collectives

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def mlp():
    return Inspection(resolve("mlp"), ("shardy",))


def test_collectives_that_are_not_there(mlp):
    assert_no_collectives(mlp, kind="all-gather")
    assert_no_collectives(mlp, kind=["all-to-all", "reduce-scatter"], axis=["data", "model"])


@pytest.mark.skipif(
    compat.version_tuple() >= (0, 11), reason="JAX 0.11 and later name these collectives otherwise"
)
def test_a_collective_is_told_with_its_line_and_why(mlp):
    with pytest.raises(AssertionError) as caught:
        assert_no_collectives(mlp, kind="all-reduce", axis="model")
    said = str(caught.value)
    assert "expected no all-reduce over model in mlp, found 1" in said
    assert "a device sends 160 B per step" in said  # f32[4,10], twice half of it
    assert "all-reduce over model=2 of f32[4,10] 1 ×, 160 B" in said
    assert "mlp.py:101" in said
    assert "because it sums a dimension sharded over model" in said


def test_a_mistyped_kind_or_axis_is_no_success(mlp):
    with pytest.raises(TargetError, match="no mesh axis 'modle'"):
        assert_no_collectives(mlp, axis="modle")
    with pytest.raises(TargetError, match="no collective 'gather'"):
        assert_no_collectives(mlp, kind="gather")


def test_bytes(mlp):
    memory = mlp.memory("shardy")
    # The compiler's own counts are the oracle.
    arguments = memory.compiled.memory.arguments
    temporaries = memory.compiled.memory.temporaries
    assert_max_bytes(mlp, arguments=arguments, temporaries=temporaries, sent="1GiB")
    with pytest.raises(AssertionError) as caught:
        assert_max_bytes(mlp, arguments=arguments - 1, temporaries=temporaries - 1)
    said = str(caught.value)
    assert said.startswith("mlp exceeds its limits:\narguments: ")
    assert f"({arguments:,} > {arguments - 1:,} B)" in said
    assert "params['w1'] f32[128,256] P(None, 'model'), 4 replicas: 64.0 KiB" in said
    assert "could be P('data', 'model'), which saves 48.0 KiB" in said
    assert f"({temporaries:,} > {temporaries - 1:,} B)" in said


def test_replicas_and_what_is_sent(mlp):
    with pytest.raises(AssertionError, match="replicated: 15"):
        # Three of the four replicas of each weight and of its moments, all of the rest.
        assert_max_bytes(mlp, replicated="100kB")
    with pytest.raises(AssertionError, match="sent: "):
        assert_max_bytes(mlp, sent=0)
    with pytest.raises(TargetError, match="Nothing is limited"):
        assert_max_bytes(mlp)
    with pytest.raises(TargetError, match="not a size in bytes"):
        assert_max_bytes(mlp, sent="much")


def test_what_a_loop_of_unknown_length_sends_is_held_to_no_limit():
    mesh = jax.sharding.AbstractMesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    on = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))

    @jax.jit
    def step(x):
        def halved(x):
            return x / (1 + jnp.abs(x).sum())

        return jax.lax.while_loop(lambda x: x.max() > 0.1, halved, x)

    x = jax.ShapeDtypeStruct((64,), jnp.float32, sharding=on)
    program = inspect(step, x, partitioners=("shardy",))
    with pytest.raises(AssertionError) as caught:
        assert_max_bytes(program, sent="1GiB")
    said = str(caught.value)
    assert "it can't be said that a device sends no more" in said
    assert "are in loops that run an unknown number of times: counted once." in said
