"""Accelerators that are present: what JAX finds, and what becomes of `--on devices`."""

import json
import subprocess
from types import SimpleNamespace

import jax
import pytest

from sdyscope.errors import TargetError
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import Hardware, parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.stages.compiled import compiler_child, present, topology
from sdyscope.stages.compiled.present import Accelerators
from sdyscope.stages.propagated import xla_dump
from sdyscope.targets import resolve
from sdyscope.words.remarks import remark_text

H200 = Accelerators("cuda", "NVIDIA H200", 4)


@pytest.fixture
def there(monkeypatch):
    """Makes these accelerators the ones that are found."""
    present.accelerators.cache_clear()
    return lambda *counts: monkeypatch.setattr(present, "accelerators", lambda: counts)


@pytest.mark.parametrize("word", ["devices", "gpu", "cuda", "gpu:4", "devices:4"])
def test_gpus_that_are_enough(there, word):
    there(H200)
    assert present.resolved(parse_hardware(word), 4) == (Hardware("cuda", 4), None)


def test_fewer_than_there_are_will_do(there):
    there(H200, Accelerators("tpu", "TPU v5 lite", 8))
    assert present.resolved(parse_hardware("devices"), 2)[0] == Hardware("cuda", 2)
    assert present.resolved(parse_hardware("tpu"), 2)[0] == Hardware("tpu", 2)
    # The first kind that has enough.
    assert present.resolved(parse_hardware("devices"), 8)[0] == Hardware("tpu", 8)


def test_without_enough_devices_it_is_cpus_and_a_sentence(there):
    there()
    found, remark = present.resolved(parse_hardware("devices"), 8)
    assert found == Hardware("cpu", 8)
    assert (
        remark_text(remark)
        == "JAX finds no accelerator: compiled for 8 virtual CPU devices instead."
    )
    there(H200)
    found, remark = present.resolved(parse_hardware("devices"), 8)
    assert found == Hardware("cpu", 8)
    assert remark_text(remark) == (
        "JAX finds 4 accelerators (NVIDIA H200), and the program is for 8 devices: compiled for 8 "
        "virtual CPU devices instead."
    )


def test_gpus_that_are_not_there_are_an_error(there):
    there()
    with pytest.raises(TargetError, match=r"JAX finds no GPU on this machine.\n.*doctor"):
        present.resolved(parse_hardware("gpu"), 8)
    there(H200)
    with pytest.raises(TargetError, match=r"4 GPUs \(NVIDIA H200\), and 8 devices are needed"):
        present.resolved(parse_hardware("gpu"), 8)
    with pytest.raises(TargetError, match="no TPU"):
        present.resolved(parse_hardware("tpu:2"), 2)


def test_only_accelerators_are_looked_at():
    client = SimpleNamespace(local_devices=lambda: [SimpleNamespace(device_kind="TPU v4")] * 3)
    none = SimpleNamespace(local_devices=list)
    clients = {"cpu": client, "tpu": client, "cuda": none}
    assert present.look(clients) == [Accelerators("tpu", "TPU v4", 3)]


def answering(monkeypatch, stdout, stderr="", status=0):
    environments = []

    def run(command, **options):
        environments.append(options["env"])
        return subprocess.CompletedProcess(command, status, stdout, stderr)

    monkeypatch.setattr(present.subprocess, "run", run)
    present.accelerators.cache_clear()
    return environments


def test_the_answer_is_found_behind_what_plugins_print(monkeypatch):
    answer = json.dumps([{"platform": "cuda", "kind": "NVIDIA H200", "count": 4}])
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    environments = answering(monkeypatch, f"hello\n{present._MARK}{answer}\n")
    assert present.accelerators() == (H200,) == present.accelerators()
    (environment,) = environments
    assert "JAX_PLATFORMS" not in environment
    assert environment["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    present.accelerators.cache_clear()


def test_a_jax_that_does_not_start_is_one_sentence(monkeypatch):
    answering(monkeypatch, "", "Traceback\nRuntimeError: CUDA_ERROR_NO_DEVICE\n\n", 1)
    with pytest.raises(TargetError, match="can't look for devices: RuntimeError: CUDA_ERROR"):
        present.accelerators()
    present.accelerators.cache_clear()


def test_this_machine_is_asked():
    present.accelerators.cache_clear()
    accelerators = present.accelerators()
    assert {one.platform for one in accelerators} <= {"cuda", "tpu"}
    assert accelerators or Inspection(resolve("mlp")).compiled(on="devices").notes == (
        Remark("CPU devices instead", "accelerator", count=8),
    )


def test_who_asks_for_no_accelerator_starts_none(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")
    assert topology.environment(parse_hardware("cpu:8"))["JAX_PLATFORMS"] == "cpu"
    assert topology.environment(parse_hardware("cuda:h100:1x1x8"))["JAX_PLATFORMS"] == "cpu"
    environment = topology.environment(Hardware("tpu", 8))
    assert environment["JAX_PLATFORMS"] == "tpu,cpu"
    assert "TPU_WORKER_HOSTNAMES" not in environment
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    assert topology.starting()["JAX_PLATFORMS"] == "cuda"


def test_devices_are_taken_from_jax(monkeypatch):
    devices = jax.devices("cpu")
    monkeypatch.setattr(jax, "devices", lambda platform: {"cuda": devices}[platform])
    found = topology.compile_devices(Hardware("cuda", 4), 4)
    assert found == tuple(devices[:4])


def test_devices_that_are_gone_again(monkeypatch):
    def devices(platform):
        raise RuntimeError("Unable to initialize backend 'cuda': no device.\nmore")

    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(TargetError, match="JAX can't start gpu:4: Unable to initialize backend"):
        topology.compile_devices(Hardware("cuda", 4), 4)


@pytest.mark.compiles
def test_a_compile_on_devices_that_run(monkeypatch, tmp_path):
    """With the clients that JAX has started; CPUs stand for GPUs."""
    inspection = Inspection(resolve("mlp"), ["shardy"])
    expected = inspection.compiled()
    monkeypatch.setattr(
        compiler_child, "compile_devices", lambda on, count: tuple(jax.devices("cpu")[:count])
    )
    module = inspection.lowered["shardy"]
    (tmp_path / compiler_child.MODULE).write_bytes(module.bytecode())
    free = xla_dump.free_boundaries(inspection.graph("shardy"))
    found = compiler_child._compiled(
        tmp_path, Hardware("cuda", 8), num_partitions=8, shardy=True, compiler_options=[], **free
    )
    assert expected.memory is not None
    assert found["memory"]["argument_size"] == expected.memory.arguments
    assert found["device_kind"] == "cpu"
    assert (tmp_path / compiler_child.HLO).read_text().count(" all-reduce(") == expected.hlo.count(
        " all-reduce("
    )
