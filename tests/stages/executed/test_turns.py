"""Loops whose length the values decide, counted as they run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.executed.execute import Runner
from sdyscope.stages.executed.turns import idle_loops
from sdyscope.values.mesh import Mesh

pytestmark = pytest.mark.compiles

ABSTRACT = compat.abstract_mesh(Mesh.of({"data": 8}))


def repeated(x, count):
    return jax.lax.fori_loop(0, count, lambda _, h: jnp.sin(h), x)


def nested(x, n):
    return jax.lax.fori_loop(0, n[0], lambda _, h: repeated(h, n[1]), x)


def scanned(x, n):
    return jax.lax.scan(lambda h, count: (repeated(h, count), None), x, n)[0]


def chosen(x, n):
    return jax.lax.cond(n[0] > 0, lambda x: repeated(x, n[1]), lambda x: repeated(x, n[0]), x)


@jax.checkpoint
def called(x, n):
    return jax.jit(repeated)(x, n[0])


def mapped(x, n):
    spec = P("data")
    return jax.shard_map(repeated, mesh=ABSTRACT, in_specs=(spec, P()), out_specs=spec)(x, n[0])


@pytest.mark.parametrize(
    ("function", "given", "idle"),
    [
        (lambda x, n: x + n[0], (0, 0), 0),
        (nested, (0, 1), 2),
        (nested, (1, 0), 1),
        (nested, (2, 1), 0),
        (scanned, (0, 1), 0),
        (scanned, (0, 0), 1),
        (chosen, (1, 1), 1),
        (chosen, (0, 1), 2),
        (called, (0, 0), 1),
        (called, (1, 0), 0),
        (mapped, (1, 0), 0),
        (mapped, (0, 0), 1),
    ],
)
def test_loops_that_do_not_run_on_the_values_are_counted(function, given, idle):
    arguments = (jax.ShapeDtypeStruct((8,), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.int32))
    program = Program("step", jax.jit(function), arguments)
    inspected = Inspection(program, ("shardy",))
    values = [np.ones(8, np.float32), np.array(given, np.int32)]
    runner = Runner(program, inspected.traced, inspected.lowered, values=values)
    assert idle_loops(runner) == idle
