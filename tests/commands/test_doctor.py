"""`sdyscope doctor`."""

import json
import os
import platform
import subprocess
import sys

import jax
import jsonschema
import pytest

from sdyscope.views.document import document_type, schema


def doctor(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "sdyscope", "doctor", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def found():
    done = doctor("--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_document_follows_its_schema(found):
    jsonschema.validate(found, schema(document_type("doctor")))


def test_versions_and_devices_are_those_of_this_process(found):
    states = {(c["area"], c["name"]): (c["state"], c["found"]) for c in found["capabilities"]}
    assert states["versions", "Python"] == ("ok", platform.python_version())
    assert states["versions", "jax"] == ("ok", jax.__version__)
    assert states["devices", "cpu"] == ("ok", "8")
    assert states["partitioners", "Shardy"] == ("ok", "lowers")
    assert states["bindings", "MLIR"][0] == "ok"
    assert states["bindings", "HLO"][0] == "ok"
    assert found["well"]


def test_everything_missing_comes_with_advice(found):
    assert all(c["advice"] for c in found["capabilities"] if c["state"] == "missing")


def test_a_platform_that_is_not_there_is_a_finding_not_a_failure():
    done = doctor("--json", JAX_PLATFORMS="no_such_platform")
    devices = [c for c in json.loads(done.stdout)["capabilities"] if c["area"] == "devices"]
    assert devices[0]["state"] == "missing"
    assert "no_such_platform" in devices[0]["found"]
    # JAX lowers nothing while the variable is set so, and no command works.
    assert (done.returncode, done.stderr) == (1, "")


def test_when_xla_ends_the_process_it_is_one_sentence():
    done = doctor(XLA_FLAGS="--no_such_flag=1")
    assert (done.returncode, done.stdout) == (2, "")
    first, *_ = done.stderr.splitlines()
    assert first.startswith("error: sdyscope doctor was ended by the compiler")
    assert "Unknown flag in XLA_FLAGS: --no_such_flag=1" in first


def test_a_terminal_of_80_columns_is_enough():
    done = doctor(COLUMNS="80")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "Shardy" in done.stdout
