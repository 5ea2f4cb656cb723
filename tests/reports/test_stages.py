"""What the page says of each stage, in words."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import inspect
from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.page.stages import _propagated


def test_one_step_of_a_propagation_is_one():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    decided = propagate_document(inspect(jax.jit(lambda x: x), x, partitioners=("shardy",)))
    assert _propagated(decided, ()).words == "2 values, 1 step of Shardy."
