"""`sdyscope doctor`."""

import json
import platform
from types import SimpleNamespace

import jax
import jsonschema
import pytest
from own_process import in_own_process

from sdyscope.commands import document_type
from sdyscope.terminal.document import schema


def doctor(*words, **environment):
    return in_own_process("doctor", *words, **environment)


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


def test_every_optional_package_is_named_with_the_command_that_installs_it(found):
    advice = {c["name"]: c for c in found["capabilities"] if c["area"] == "optional"}
    assert {"libtpu", "haliax"} <= advice.keys()
    # Of CUDA's two plugins the one that is there, or both that are missing.
    plugins = {name for name in advice if name.startswith("jax-cuda")}
    assert {advice[name]["state"] for name in plugins} == {"missing" if len(plugins) == 2 else "ok"}
    for name, capability in advice.items():
        assert capability["state"] == "ok" or "pip install" in capability["advice"]
        if name.startswith(("libtpu", "jax-cuda")) and capability["state"] == "missing":
            assert f"=={jax.__version__}" in capability["advice"]


def test_a_platform_that_is_not_there_is_a_finding_not_a_failure():
    done = doctor("--json", JAX_PLATFORMS="no_such_platform")
    devices = [c for c in json.loads(done.stdout)["capabilities"] if c["area"] == "devices"]
    assert devices[0]["state"] == "missing"
    assert "no_such_platform" in devices[0]["found"]
    # JAX lowers nothing while the variable is set so, and no command works.
    assert (done.returncode, done.stderr) == (1, "")


def test_a_gpu_is_counted_once_and_needs_one_plugin(monkeypatch):
    """JAX calls its platform `gpu` and its backend `cuda`."""
    from sdyscope.stages import doctor

    gpu = SimpleNamespace(platform="gpu", device_kind="NVIDIA H200", id=0)
    cpu = SimpleNamespace(platform="cpu", device_kind="cpu", id=0)
    clients = {"cuda": [gpu], "cpu": [cpu]}
    backends = {name: SimpleNamespace(devices=lambda d=own: d) for name, own in clients.items()}
    monkeypatch.setattr(jax, "devices", lambda: [gpu])
    monkeypatch.setattr(doctor, "_backends", lambda: backends)
    version = doctor.metadata.version

    def without_cuda12(name):
        if name == "jax-cuda12-plugin":
            raise doctor.metadata.PackageNotFoundError(name)
        return version(name)

    # Whatever this environment has: one plugin, and not the other.
    monkeypatch.setattr(doctor.metadata, "version", without_cuda12)
    monkeypatch.setattr(doctor, "_is_installed", lambda name: name == "jax-cuda13-plugin")
    said = {(c.area, c.name): c.found for c in (*doctor._devices(), *doctor._optional_packages())}
    assert said["devices", "gpu"] == "1 × NVIDIA H200"
    assert said["devices", "cpu"] == "1"
    assert ("optional", "jax-cuda12-plugin") not in said


def test_when_xla_ends_the_process_it_is_one_sentence():
    done = doctor(XLA_FLAGS="--no_such_flag=1")
    assert (done.returncode, done.stdout) == (2, "")
    first, *_ = done.stderr.splitlines()
    assert first.startswith(
        "error: The compiler exited (status 1) before sdyscope doctor had an answer"
    )
    assert "Unknown flag in XLA_FLAGS: --no_such_flag=1" in first


def test_a_terminal_of_80_columns_is_enough():
    done = doctor(COLUMNS="80")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "Shardy" in done.stdout


def test_without_a_gpu_nothing_is_described(tmp_path):
    path = tmp_path / "gpu.txtpb"
    done = doctor("--write-gpu-config", path)
    assert (done.returncode, done.stdout, path.exists()) == (2, "", False)
    assert done.stderr.startswith("error: JAX finds no GPU on this machine")
    assert len(done.stderr.splitlines()) == 2


@pytest.fixture
def described(monkeypatch):
    """As if there were a GPU."""
    from sdyscope.stages.compiled import gpu_config

    config = gpu_config.GpuConfig("NVIDIA H200 (8)", 8, 'platform_name: "CUDA"\n')
    monkeypatch.setattr(gpu_config, "gpu_config", lambda: config)


def test_a_gpu_is_described_in_a_file(sdyscope, described, tmp_path, monkeypatch):
    path = tmp_path / "gpu.txtpb"
    path.write_text("old")
    done = sdyscope("doctor", "--write-gpu-config", path, "--json")
    assert (done.status, done.err) == (0, "")
    assert path.read_text() == 'platform_name: "CUDA"\n'
    said = done.document("doctor")["gpu_config"]
    assert said == {"file": str(path), "kind": "NVIDIA H200 (8)", "count": 8}
    assert [entry.name for entry in tmp_path.iterdir()] == ["gpu.txtpb"]
    monkeypatch.chdir(tmp_path)
    done = sdyscope("doctor", "--write-gpu-config", columns=80)
    assert (tmp_path / "nvidia-h200-8.txtpb").exists()
    assert done.out.splitlines()[-1] == "--on cuda:nvidia-h200-8.txtpb:1x1x8"


def test_a_file_that_can_not_be_written(sdyscope, described, tmp_path):
    sdyscope("doctor", "--write-gpu-config", tmp_path / "no" / "gpu.txtpb").said("cannot write")
