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


def test_an_input_of_a_shard_map_is_a_value_that_is_counted_already():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    mapped = jax.shard_map(lambda x: x, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    decided = propagate_document(inspect(jax.jit(mapped), x, partitioners=("shardy",)))
    (propagation,) = decided.propagations
    count = sum(propagation.counts.values())
    assert _propagated(decided, ()).words.startswith(f"{count} values")
