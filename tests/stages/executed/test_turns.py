"""Loops and branches, as the values decide, counted as they run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from sdyscope.facts.execution import Idle
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.executed.execute import Runner
from sdyscope.stages.executed.turns import idle_parts
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


def chosen_in_turn(x, n):
    return jax.lax.scan(lambda h, k: (jax.lax.cond(k > 0, jnp.sin, jnp.cos, h), None), x, n)[0]


def skipped(x, n):
    return jax.lax.cond(n[0] > 0, jnp.sin, lambda x: x, x)


@jax.checkpoint
def called(x, n):
    return jax.jit(repeated)(x, n[0])


def mapped(x, n):
    spec = P("data")
    return jax.shard_map(repeated, mesh=ABSTRACT, in_specs=(spec, P()), out_specs=spec)(x, n[0])


@pytest.mark.parametrize(
    ("function", "given", "idle"),
    [
        (lambda x, n: x + n[0], (0, 0), Idle()),
        (nested, (0, 1), Idle(2)),
        (nested, (1, 0), Idle(1)),
        (nested, (2, 1), Idle()),
        (scanned, (0, 1), Idle()),
        (scanned, (0, 0), Idle(1)),
        (chosen, (1, 1), Idle(1, 1)),
        (chosen, (0, 1), Idle(2, 1)),
        (chosen_in_turn, (0, 1), Idle()),
        (chosen_in_turn, (1, 1), Idle(0, 1)),
        (skipped, (0, 1), Idle(0, 1)),
        (skipped, (1, 1), Idle()),
        (called, (0, 0), Idle(1)),
        (called, (1, 0), Idle()),
        (mapped, (1, 0), Idle()),
        (mapped, (0, 0), Idle(1)),
    ],
)
def test_loops_and_branches_that_do_not_run_on_the_values_are_counted(function, given, idle):
    arguments = (jax.ShapeDtypeStruct((8,), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.int32))
    program = Program("step", jax.jit(function), arguments)
    inspected = Inspection(program, ("shardy",))
    values = [np.ones(8, np.float32), np.array(given, np.int32)]
    runner = Runner(program, inspected.traced, inspected.lowered, values=values)
    assert idle_parts(runner) == idle
