"""What tensors are called that could be sharded further together."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.memory.options import saved_together
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh


@pytest.mark.compiles
def test_an_index_that_all_have_is_in_their_name():
    """A quantized weight and its scales are each in a tuple of their own."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 2}))
    replicated = NamedSharding(mesh, P())

    def of(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=replicated)

    def step(params, x):
        for layer in params:
            weight, scale = layer["down"]
            x = jnp.tanh(x @ weight.astype(x.dtype) * scale)
        return x

    layer = {"down": (of((64, 64), jnp.int8), of((1, 64), jnp.float32))}
    program = Program("step", jax.jit(step), ([layer, layer], of((4, 64), jnp.float32)))
    held = Inspection(program, ("shardy",)).memory().under_sharded
    names = [saving.name for saving in saved_together(held) if len(saving.tensors) > 1]
    assert names == ["params[*]['down'][0]", "params[*]['down'][1]"]
