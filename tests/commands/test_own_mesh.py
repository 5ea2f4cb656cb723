"""Programs that make their own mesh of the devices there are, as most scripts do."""

import pytest
from own_process import DEVICES_UNSAID, in_own_process

pytestmark = pytest.mark.compiles

PROGRAM = """
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from sdyscope import Program

def on(mesh):
    x = jax.ShapeDtypeStruct((16, 16), "float32", sharding=NamedSharding(mesh, P("data", "model")))
    return Program("step", jax.jit(lambda x: x * 2), (x,))

def eight():
    return on(jax.make_mesh((2, 4), ("data", "model")))

def sixteen():
    return on(Mesh(np.array(jax.devices()).reshape(4, 4), ("data", "model")))

def no_mesh_of_it():
    return on(Mesh(np.arange(6).reshape(2, 2), ("data", "model")))
"""

CONFIG = """
[tool.sdyscope.targets.step]
target = "train.py:sixteen"
devices = 16
compile = false
strict = false
"""


@pytest.fixture
def command(tmp_path):
    """Runs a command line where nothing says how many devices there are."""
    (tmp_path / "train.py").write_text(PROGRAM)

    def run(*words, **environment):
        return in_own_process(*words, cwd=tmp_path, **DEVICES_UNSAID | environment)

    return run


def test_eight_devices_are_there_unless_more_are_asked_for(command):
    done = command("show", "train.py:eight")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("step; data=2 x model=4, 8 devices")

    done = command("show", "train.py:sixteen")
    assert done.returncode == 2
    assert "cannot reshape array of size 8 into shape (4,4)" in done.stderr
    assert "Say how many devices there are: --devices 16." in done.stderr

    done = command("show", "train.py:sixteen", "--devices", "16")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("step; data=4 x model=4, 16 devices")


def test_what_the_user_has_set_counts(command):
    flag = "--xla_force_host_platform_device_count=4"
    done = command("show", "train.py:eight", XLA_FLAGS=flag)
    assert done.returncode == 2
    assert "Say how many devices there are: --devices 8." in done.stderr


def test_a_target_of_ci_says_how_many(command, tmp_path):
    (tmp_path / "pyproject.toml").write_text(CONFIG)
    done = command("ci")
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_array_that_has_another_size_is_no_matter_of_devices(sdyscope, tmp_path):
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    done = sdyscope("show", f"{file}:no_mesh_of_it")
    assert done.status == 2
    assert "cannot reshape array of size 6" in done.err
    assert "--devices" not in done.err


def test_devices_change_nothing_where_the_mesh_is_given_or_there_is_none(sdyscope):
    done = sdyscope("show", "mlp", "--devices", "16")
    assert done.status == 2
    assert "there is no mesh" in done.err
