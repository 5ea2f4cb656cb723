"""What two modules compute, whatever is sharded how."""

import jax
import jax.numpy as jnp
import pytest
from jax.lax import with_sharding_constraint as constrain

from sdyscope.analysis.naming.structure import compute_alike
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from tests.programs import array, on

pytestmark = pytest.mark.compiles


def graph(*spec, given=("data",), scale=2.0, constraints=1, dead=None):
    def scaled(x):
        for _ in range(constraints):
            x = constrain(x, on(*spec))
        if dead is not None:
            jax.debug.callback(print, x * dead)
        return jnp.sin(x) * scale

    def step(x):
        return jax.lax.scan(lambda x, _: (scaled(x), None), x, length=3)[0]

    program = Program("step", jax.jit(step), (array((16, 16), *given),))
    return Inspection(program, ["shardy"]).graph("shardy")


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        ({}, True),
        ({"given": (None, ("model", "data"))}, True),
        ({"scale": 3.0}, False),
        ({"constraints": 2}, False),
        ({"dead": 1.0}, False),
    ],
)
def test_modules_compute_alike_however_they_are_sharded(other, alike):
    mine, theirs = graph("data", None), graph(("model", "data"), None, **other)
    assert compute_alike(mine, theirs) is alike


def test_what_returns_nothing_is_computed_too():
    assert not compute_alike(graph("data", dead=1.0), graph("data", dead=2.0))
