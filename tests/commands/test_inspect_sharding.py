"""Programs with `jax.debug.inspect_array_sharding`, which carries the address of a callback."""

import jax
import pytest

from sdyscope.stages import compat

PROGRAM = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}

def program(mesh):
    def looked_at(x):
        y = x * 2
        jax.debug.inspect_array_sharding(y, callback=print)
        return (y @ y.T).sum(0)
    x = jax.ShapeDtypeStruct((64, 8), jnp.float32, sharding=NamedSharding(mesh, P("data", "model")))
    return Program("looked_at", jax.jit(looked_at), (x,))
"""


@pytest.fixture
def program(tmp_path):
    if compat.version_tuple() < (0, 8):
        pytest.skip(f"JAX {jax.__version__} lowers no callbacks without devices")
    path = tmp_path / "looked_at.py"
    path.write_text(PROGRAM)
    return f"{path}:program"


@pytest.mark.parametrize("command", ["show", "check", "lower", "graph", "propagate", "diff"])
def test_it_is_looked_at(sdyscope, program, command):
    done = sdyscope(command, program)
    assert done.status == 0, done.err
    assert "looked_at" in done.out


@pytest.mark.compiles
@pytest.mark.parametrize("command", ["comms", "memory"])
def test_it_is_compiled(sdyscope, program, command):
    done = sdyscope(command, program, "--json")
    assert done.status == 0, done.err
    if command == "comms":
        for one in done.document("comms")["programs"]:
            assert one["total"]["count"] > 0
