"""`sdyscope profile`."""

import base64
import gzip
import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiles

#: A step that runs in a trace, on eight virtual CPU devices.
ASSETS = Path(__file__).parents[1] / "assets"

SCRIPT = """
import sys
import jax, jax.numpy as jnp
from sdyscope.targets import resolve

program = resolve("mlp", mesh={"data": 4, "model": 2}, devices=jax.devices())
given = jax.tree.map(
    lambda one: jax.device_put(jnp.zeros(one.shape, one.dtype), one.sharding), program.args
)
jax.block_until_ready(program.fun(*given))
for folder in sys.argv[1:]:
    with jax.profiler.trace(folder):
        for _ in range(3):
            jax.block_until_ready(program.fun(*given))
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Two traces of the mlp's step."""
    folder = tmp_path_factory.mktemp("traces")
    names = [str(folder / "one"), str(folder / "two")]
    environment = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}

    subprocess.run(
        [sys.executable, "-c", SCRIPT, *names], env={**os.environ, **environment}, check=True
    )
    return names


def test_a_trace_with_its_program(sdyscope, traces):
    done = sdyscope("profile", traces[0], "mlp", "--partitioner", "shardy", columns=100)
    assert (done.status, done.err) == (0, "")
    assert "jit_step: 3 steps on 8 devices; a step takes" in done.out
    # The gradients of both matrices are summed together over the batch's axis.
    assert "all-reduce data=4" in done.out
    assert "models/mlp.py:99" in done.out
    assert "constraint at models/mlp.py:98" in done.out
    assert max(map(len, done.out.splitlines())) <= 100


def test_its_document(sdyscope, traces):
    done = sdyscope("profile", traces[0], "--mesh", "data=4,model=2", "--json")
    measured = json.loads(done.out)["measured"]
    assert measured["unknown"] == []
    assert {tuple(collective["axes"]) for collective in measured["collectives"]} == {
        ("data",),
        ("model",),
    }
    for collective in measured["collectives"]:
        assert collective["waiting"] + collective["moving"] == pytest.approx(collective["seconds"])
        assert collective["bandwidth"] == pytest.approx(collective["sent"] / collective["moving"])
    assert len(measured["step_seconds"]) == 3
    assert sum(op["seconds"] for op in measured["ops"]) == pytest.approx(
        measured["compute"] + measured["collective"], rel=1e-6
    )


def test_measured_beside_rates_of_another_trace(sdyscope, traces):
    words = ("profile", traces[0], "--mesh", "data=4,model=2", "--calibrate", traces[1])
    done = sdyscope(*words, columns=80)
    assert done.status == 0
    out = " ".join(done.out.split())
    assert re.search(r"predicted [0-9.]+ [mu]s: a step took [0-9.]+ times that", out)
    assert "compute measured │" in done.out
    assert "Estimates of the trace itself are off by" in out
    assert max(map(len, done.out.splitlines())) <= 80
    document = json.loads(sdyscope(*words, "--json").out)
    assert document["calibration"]["traces"] == [traces[1]]
    for deviation in document["measured"]["deviations"]:
        if deviation["predicted"] is not None:
            ratio = deviation["seconds"] / deviation["predicted"]
            assert deviation["ratio"] == pytest.approx(ratio)


def test_without_a_mesh_axes_are_not_known(sdyscope, traces):
    done = sdyscope("profile", traces[0])
    assert done.status == 0
    assert "no mesh is known whose axes could be named" in done.out
    assert sdyscope("profile", traces[0], "--strict").status == 1


def test_another_program_has_other_causes(sdyscope, traces):
    done = sdyscope("profile", traces[0], "mlp", "--set", "layers=2", "--partitioner", "shardy")
    assert "causes are left out" in " ".join(done.out.split())
    assert "constraint at" not in done.out


def test_two_traces(sdyscope, traces):
    done = sdyscope("profile", *traces, columns=80)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("before: jit_step: 3 steps")
    assert "models/mlp.py:99" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--module", "train"), "No program of this trace is called train"),
        (("--set", "layers=2"), "--set changes a setting of TARGET"),
        (("TRACE", "--calibrate", "TRACE"), "Two traces are compared with each other"),
    ],
)
def test_what_can_not_be_asked(sdyscope, traces, words, said):
    given = (traces[1] if word == "TRACE" else word for word in words)
    done = sdyscope("profile", traces[0], *given)
    assert (done.status, done.out) == (2, "")
    assert said in done.err


def test_no_trace(sdyscope, tmp_path):
    done = sdyscope("profile", tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "no trace of JAX's profiler" in done.err


def test_the_page_has_what_was_measured_beside_its_lines(sdyscope, traces, tmp_path):
    page = tmp_path / "page.html"
    words = ("--partitioner", "shardy", "--profile", traces[0], "-o", page)
    done = sdyscope("report", "mlp", *words)
    assert done.status == 0
    packed = re.findall(r'data-encoding="deflate">([^<]+)<', page.read_text())
    text = "".join(zlib.decompress(base64.b64decode(part)).decode() for part in packed)
    assert "on average over 8 devices and 3 steps of jit_step, by a trace" in text
    # The line whose gradients are summed.
    assert re.search(
        r'"time":"[^"]+ [mun]?s","timeWords":"[^"]+s, [^"]+s of it in collectives"', text
    )
    # What a collective took stands with it, and one step is drawn.
    assert re.search(r'"measured":"[^"]+s of it waiting; what is predicted is not known"', text)
    assert '"title":"jit_step: 3 steps on 8 devices' in text
    two = sdyscope("report", "mlp", "mlp", "--profile", traces[0])
    two.said("Two targets make a page of their differences")


def test_a_trace_of_a_gpu_that_sends_nothing(sdyscope, tmp_path):
    """No column and no clause is about collectives; `tests/assets/README.md` says what ran."""
    trace = tmp_path / "h200.xplane.pb"
    trace.write_bytes(gzip.decompress((ASSETS / "h200.xplane.pb.gz").read_bytes()))
    done = sdyscope("profile", trace)
    assert (done.status, done.err) == (0, "")
    assert "jit_step: 3 steps on 1 device" in done.out
    assert "compute 30.3 us, no collectives" in done.out
    assert "of the trace, the median" in done.out
    for absent in ("in collectives", "waits least", "exposed"):
        assert absent not in done.out
