"""Virtual devices, and real programs, in runs of pytest of their own."""

import os
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

PROGRAM = """
import jax
import jax.numpy as jnp
import pytest
import sdyscope
from jax.sharding import NamedSharding, PartitionSpec as P

def program(data, model):
    mesh = jax.sharding.Mesh(
        __import__("numpy").array(jax.devices()[: data * model]).reshape(data, model),
        ("data", "model"),
    )
    def array(*spec):
        return jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
    step = jax.jit(lambda w, x: jnp.tanh(x @ w))
    return sdyscope.inspect(step, array(None, "model"), array("data"), name="step")
"""


@pytest.fixture
def alone(pytester, monkeypatch):
    """Runs of pytest in processes in whose environment nothing asks for devices."""
    for name in ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "CI"):
        monkeypatch.delenv(name, raising=False)
    return pytester


@pytest.mark.thorough
def test_devices_of_the_ini_file_and_of_markers(alone):
    alone.makeini("[pytest]\nsdyscope_devices = 4")
    alone.makepyfile(
        test_step=PROGRAM
        + """
import os, subprocess, sys

@pytest.mark.parametrize("data, model", [(4, 2), (2, 2)])
def test_step(data, model, sharding_snapshot):
    assert program(data, model) == sharding_snapshot

@pytest.mark.sdyscope_devices(8)
def test_marked():
    assert len(jax.devices()) == 8
    assert jax.devices()[0].platform == "cpu"

def test_traced(sharding_snapshot):
    assert program(4, 2).traced == sharding_snapshot("traced")

def test_both_partitioners_of_one_inspection(sharding_snapshot):
    inspection = program(4, 2)
    assert inspection == sharding_snapshot
    inspection.lowered
    assert inspection == sharding_snapshot
    both = sharding_snapshot("both", partitioners=["shardy", "gspmd"], stages=["lowered"])
    assert inspection == both
"""
    )
    done = alone.runpytest_subprocess("--sharding-update")
    done.assert_outcomes(passed=5)
    done.stdout.fnmatch_lines(["*5 written*"])
    text = (alone.path / "__shardings__/test_step/test_step[4-2].snap").read_text()
    assert "argument  w  f32[16,16]\n  requested P(None, 'model')\n" in text
    # The environment can ask for as many; then nothing has to be marked.
    done = alone.runpytest_subprocess("-n", "2")
    done.assert_outcomes(passed=5)
    done.stdout.fnmatch_lines(["*as before*"])


def test_too_late_is_told_by_the_test_that_is_marked(alone):
    alone.makeconftest("import jax\njax.devices()")
    alone.makepyfile(
        """
        import pytest

        @pytest.mark.sdyscope_devices(8)
        def test_marked():
            pass

        @pytest.mark.sdyscope_devices(1)
        def test_enough():
            pass

        @pytest.mark.sdyscope_devices("many")
        def test_mistyped():
            pass
        """
    )
    done = alone.runpytest_subprocess()
    done.assert_outcomes(passed=1, errors=2)
    done.stdout.fnmatch_lines(
        [
            "@pytest.mark.sdyscope_devices(8) asks for 8 CPU devices, and JAX has started with 1 *",
            "*set sdyscope_devices = 8 in pytest's ini file*JAX_NUM_CPU_DEVICES=8 in the env*",
            "@pytest.mark.sdyscope_devices(...) is many, which is not a number of devices.",
        ]
    )


def test_too_late_is_told_before_any_test_is_collected(alone):
    alone.makeini("[pytest]\nsdyscope_devices = 8")
    alone.makepyfile(early="import jax\njax.devices()")
    done = alone.runpytest_subprocess("-p", "early")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: sdyscope_devices asks for 8 CPU devices, and JAX has star*"])
    alone.makeini("[pytest]\nsdyscope_devices = none")
    done = alone.runpytest_subprocess()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(
        ["ERROR: sdyscope_devices is none, which is not a number of devices."]
    )


def test_tests_of_others_wait_for_nothing(tmp_path):
    (tmp_path / "test_other.py").write_text("def test_it():\n    assert True\n")
    code = (
        "import pytest, sys\n"
        "options = ['-q', '-p', 'no:cacheprovider', '-p', 'sdyscope.pytest_plugin']\n"
        "assert pytest.main([*options, sys.argv[1]]) == 0\n"
        "print('LOADED', *sorted(m for m in sys.modules if m.startswith('sdyscope') or m in "
        "('jax', 'jaxlib', 'numpy', 'lark', 'networkx', 'msgspec', 'rich')))"
    )
    # Alone: what other plugins load is theirs.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=tmp_path,
    )
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    assert "sdyscope.pytest_plugin" in loaded
    assert loaded <= {
        "sdyscope",
        "sdyscope.errors",
        "sdyscope.formatters",
        "sdyscope.pytest_plugin",
        "sdyscope.pytest_plugin.unused_snapshots",
        "sdyscope.pytest_plugin.session",
    }
