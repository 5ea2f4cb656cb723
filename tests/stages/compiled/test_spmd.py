"""What XLA's partitioner makes of a module, before anything special to CPUs."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType
from programs import array

from sdyscope.errors import CompilerError
from sdyscope.inspection import inspect
from sdyscope.stages.compiled.spmd import spmd


@pytest.mark.compiles
def test_types_and_blocks_are_the_programs_own():
    weights = array((64, 32), "data", dtype=jnp.bfloat16)
    program = inspect(
        jax.jit(jnp.matmul),
        array((16, 64), None, "data", dtype=jnp.bfloat16),
        weights,
        partitioners=("shardy",),
    )
    text = spmd(program.lowered["shardy"], program.graph("shardy")).hlo
    # A CPU would reduce f32, and a fusion would hide the matmul.
    assert "bf16[16,32]{1,0} all-reduce(" in text
    assert "bf16[16,16]{1,0} parameter(0)" in text
    assert "fusion(" not in text


def test_there_can_be_too_many_devices():
    mesh = AbstractMesh((4096,), ("data",), axis_types=(AxisType.Auto,))
    program = inspect(jax.jit(jnp.sin), array((4096,), "data", mesh=mesh), partitioners=("shardy",))
    with pytest.raises(CompilerError, match="at most 2,048 CPU devices"):
        spmd(program.lowered["shardy"], program.graph("shardy"))
