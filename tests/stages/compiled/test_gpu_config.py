"""XLA's description of a GPU: written from one that is present, read back where there is none."""

import importlib.util
from types import SimpleNamespace

import jax
import pytest
from jaxlib import _jax

from sdyscope.errors import CompilerError, TargetError
from sdyscope.hardware.gpus import gpus
from sdyscope.hardware.names import parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.stages.compiled import gpu_config, topology
from sdyscope.targets import resolve

needs_cuda = pytest.mark.skipif(
    not any(map(importlib.util.find_spec, ("jax_cuda12_plugin", "jax_cuda13_plugin"))),
    reason="no CUDA plugin is installed",
)

DEVICE = SimpleNamespace(device_kind="NVIDIA Abacus")


def test_the_topology_has_it_as_an_attribute(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda platform: {"gpu": [DEVICE] * 2}[platform])
    there = SimpleNamespace(target_config='platform_name: "CUDA"')
    monkeypatch.setattr(_jax, "get_topology_for_devices", lambda devices: there)
    config = gpu_config.gpu_config()
    assert (config.kind, config.count) == ("NVIDIA Abacus", 2)
    assert config.text == 'platform_name: "CUDA"\n'


def test_a_dump_is_looked_at_where_the_topology_does_not_say():
    # CPUs have neither: the program is compiled, and no description is dumped.
    with pytest.raises(CompilerError, match="does not say how cpu is described"):
        gpu_config.target_config_of(jax.devices("cpu")[:1])


def test_no_gpu_is_one_sentence():
    with pytest.raises(TargetError, match="no GPU on this machine"):
        gpu_config.gpu_config()


@pytest.mark.parametrize(
    ("written", "words"), [(None, "No such file"), (b"\xff\xfe", "it is not UTF-8 text")]
)
def test_a_description_that_can_not_be_read(tmp_path, written, words):
    path = tmp_path / "gpu.txtpb"
    if written is not None:
        path.write_bytes(written)
    with pytest.raises(TargetError, match=words) as caught:
        topology.compile_devices(parse_hardware(f"cuda:{path}:1x1x8"), 8)
    assert "h100" in str(caught.value)


@needs_cuda
@pytest.mark.parametrize("name", gpus())
def test_xla_reads_the_gpus_that_have_names(name):
    devices = topology.compile_devices(parse_hardware(f"cuda:{name}:1x2x8"), 16)
    assert len(devices) == 16
    assert devices[0].device_kind == gpus()[name].kinds[0]


@needs_cuda
@pytest.mark.compiles
def test_what_is_written_is_read_back(tmp_path):
    devices = topology.compile_devices(parse_hardware("cuda:h100:1x1x8"), 8)
    text = gpu_config.target_config_of(devices)
    dumped = gpu_config._dumped(devices[0])
    for said in (text, dumped):
        assert "core_count: 132" in said
        path = tmp_path / "gpu.txtpb"
        path.write_text(said)
        again = topology.compile_devices(parse_hardware(f"cuda:{path}:1x1x8"), 8)
        assert gpu_config.target_config_of(again).split() == said.split()


@needs_cuda
@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_gpus_that_are_not_there(partitioner):
    inspection = Inspection(resolve("mlp"), [partitioner])
    memory = inspection.memory(on="cuda:h100:1x1x8")
    # It has a remark about its cost analysis, and is a value like any other.
    assert hash(memory.compiled.notes)
    assert inspection.memory(on="cuda:h100:1x1x8") is memory
    assert memory.equal is True
    assert memory.compiled.device_kind == "NVIDIA H100 80GB HBM3"
    assert memory.compiled.cost is not None
    assert "all-reduce" in memory.compiled.hlo
