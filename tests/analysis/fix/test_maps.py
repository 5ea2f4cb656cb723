"""Edits of what a `shard_map` says of its arguments and results."""

import pytest
from fix_cases import written

from sdyscope.analysis.fix.effort import Effort
from sdyscope.analysis.fix.fix import fixed
from sdyscope.inspection import Inspection
from sdyscope.values.sharding import PartitionSpec as P

MAPPED = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}


def program(mesh):
    def on(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def layer(w, x):
        return jnp.tanh(x @ w)

    def centered(x):
        return x - jnp.mean(x, axis=0)

    def step(w, x, z):
        y = jax.shard_map(centered, mesh=mesh, in_specs=P(), out_specs=P())(z)
        x = jax.shard_map(layer, mesh=mesh, in_specs=(P(), P()), out_specs=P())(w, x)
        return x.sum() + (y * y).sum()

    return Program("step", jax.jit(step), (on((64, 64)), *[on((512, 64), "data")] * 2))
"""


@pytest.mark.compiles
def test_a_map_takes_its_arguments_as_they_come_in_where_that_computes_the_same(tmp_path):
    build = written(tmp_path / "mapped.py", MAPPED)
    effort = Effort(expressions=0, arguments=0, edits=1, compiles=2, predictions=12)
    answer = fixed(Inspection(build(), ("shardy",)), build, effort=effort, root=str(tmp_path))
    (remedy,) = answer.proven
    (edit,) = remedy.edits
    assert (edit.kind, edit.name, edit.count) == ("shard_map", "layer", 2)
    assert (edit.before, edit.after) == (P(()), P(("data", None)))
    added = [line for line in remedy.patch.splitlines() if line.startswith("+ ")]
    assert [line.strip("+ ") for line in added] == [
        'x = jax.shard_map(layer, mesh=mesh, in_specs=(P(), P("data")), out_specs=P("data"))(w, x)'
    ]
    assert answer.before.sent > remedy.after.sent
    # A mean over what is mapped is a mean of each block.
    assert [(each.edits[0].name, each.why) for each in answer.not_taken] == [
        ("centered", "numbers differ")
    ]
