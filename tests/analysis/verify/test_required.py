"""What is compared of the values that causes name."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(
        compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
    ),
]

MESH = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))


def array(shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def required(step, *arguments):
    """What `verify` compares of a program's causes under Shardy."""
    (program,) = Inspection(Program("it", jax.jit(step), arguments), ["shardy"]).verify(1).programs
    (stage,) = [stage for stage in program.stages if stage.stage == "required"]
    return stage


def test_values_that_xla_makes_one_of_are_not_told_apart():
    """Indices are wrapped for each lookup, and XLA has that once, under the first's name."""

    def step(first, second, ids):
        return jax.named_scope("a")(lambda: first[ids])(), second[ids] * 2

    stage = required(
        step,
        array((64, 32), "model"),
        array((64, 32), "model", "data"),
        array((16, 8), "data", dtype=jnp.int32),
    )
    assert stage.compared
    assert stage.disagreements == ()


def test_of_what_is_rearranged_no_value_is_said():
    """The sentence says that a dimension is in pieces; XLA has its blocks as its halves need."""
    stage = required(
        lambda ids: jnp.roll(ids, -1, 1), array((8, 32), "data", "model", dtype="int32")
    )
    assert stage.disagreements == ()
    assert stage.left_out["not followed"]
