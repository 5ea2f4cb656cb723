"""What JAX refuses while it traces is followed by what to write, in commands and in `record`."""

import pytest
from own_process import in_own_process

pytestmark = pytest.mark.compiles

STEP = """
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

from sdyscope import Program

mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
auto = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def s(shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


@jax.jit
def forward(params, x):
    h = jax.nn.relu(x @ params["up"])
    return h @ params["down"]


def explicit():
    params = {"up": s((64, 256), None, "model"), "down": s((256, 64), "model", None)}
    return Program("forward", forward, (params, s((128, 64), "data", None)))


def mapped():
    f = jax.shard_map(lambda x: x.sum(), mesh=auto, in_specs=P("data"), out_specs=P())
    return Program("mapped", jax.jit(f), (jax.ShapeDtypeStruct((8,), jnp.float32),))


def shapes():
    f = jax.jit(lambda x, y: x + y)
    return Program("shapes", f, tuple(jax.ShapeDtypeStruct((n,), jnp.float32) for n in (3, 4)))


if __name__ == "__main__":
    explicit().fun.trace(*explicit().args)
"""


@pytest.fixture
def step(tmp_path):
    file = tmp_path / "step.py"
    file.write_text(STEP)
    return file


def test_operands_and_choices(sdyscope, step):
    done = sdyscope("show", f"{step}:explicit")
    assert (done.status, done.out) == (2, "")
    first, *lines = done.err.splitlines()
    assert first.startswith(f"error: {step}:19: forward can't be traced: ShardingTypeError: ")
    assert lines[:3] == [
        'The operands of h @ params["down"] (line 19):',
        "  h               f32[128@data,256@model]",
        '  params["down"]  f32[256@model,64]',
    ]
    at = lines.index(
        '  h @ jax.sharding.reshard(params["down"], NamedSharding(mesh, P(None, None)))'
    )
    assert lines[at + 1] == "      f32[128@data,64]: sends 8.0 KiB (all-reduce over model)"
    assert lines[-1] == "--verbose shows the traceback."
    assert lines[-3].endswith(" more (--verbose)")


def test_the_value_that_varies(sdyscope, step):
    done = sdyscope("check", f"{step}:mapped")
    assert (done.status, done.out) == (2, "")
    assert "varies over data. To add up the devices' values, return jax.lax.psum" in done.err


def test_another_error_is_as_it_was(sdyscope, step):
    lines = sdyscope("show", f"{step}:shapes").err.splitlines()
    assert "TypeError: add got incompatible shapes" in lines[0]
    assert lines[1:] == ["--verbose shows the traceback."]


def test_behind_the_traceback_of_a_recorded_script(step, tmp_path):
    done = in_own_process("record", "-o", tmp_path / "run", "--", step)
    assert done.returncode == 1
    traceback, _, text = done.stderr.partition("sdyscope record: ")
    assert "ShardingTypeError: Contracting dimensions are sharded" in traceback
    assert text.startswith('The operands of h @ params["down"] (line 19):\n')
    assert "sends 8.0 KiB (all-reduce over model)" in text
    assert "more (--verbose)" not in text
