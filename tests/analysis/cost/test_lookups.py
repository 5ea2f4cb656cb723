"""Which arguments a step reads only in part."""

import jax
import jax.numpy as jnp

from sdyscope.analysis.cost.lookups import looked_up
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection

TABLE = jax.ShapeDtypeStruct((64, 8), jnp.float32)
IDS = jax.ShapeDtypeStruct((4,), jnp.int32)


def names(step, *args):
    return looked_up(Inspection(Program("step", jax.jit(step), args), ("shardy",)).graph("shardy"))


def test_a_table_is_looked_up_also_in_a_function_that_is_called():
    assert names(lambda table, ids: table[ids], TABLE, IDS) == ("table",)
    assert names(lambda table, ids: jnp.take(table, ids, axis=0), TABLE, IDS) == ("table",)
    cache = jax.ShapeDtypeStruct((1, 8), jnp.float32)
    update = jax.lax.dynamic_update_index_in_dim
    assert names(lambda c, x, n: update(c, x, n, 0), TABLE, cache, IDS.update(shape=())) == ("c",)


def test_what_is_also_read_whole_is_not():
    assert names(lambda table, ids: table[ids] @ table.T, TABLE, IDS) == ()
    # A scan reads each layer once.
    layers = jax.ShapeDtypeStruct((3, 8, 8), jnp.float32)
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    scanned = lambda w, x: jax.lax.scan(lambda h, w: (h @ w, None), x, w)[0]  # noqa: E731
    assert names(scanned, layers, x) == ()
