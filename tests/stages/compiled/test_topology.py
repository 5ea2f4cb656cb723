"""Whether a compiler is the one that the installed JAX asks for."""

import importlib.util
from importlib import metadata

import pytest

from sdyscope.errors import CompilerError
from sdyscope.hardware.names import parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.stages import doctor
from sdyscope.stages.compiled import compiler
from sdyscope.stages.compiled.topology import mismatched_plugin, missing_plugin
from sdyscope.targets import resolve
from sdyscope.words.remarks import remark_texts

PINS = [
    "jaxlib<=0.10.2,>=0.10.2",
    'libtpu==0.0.42.*; extra == "tpu"',
    'requests; extra == "tpu"',
    'jax-cuda12-plugin[with-cuda]<=0.10.2,>=0.10.2; extra == "cuda12"',
    'jax-cuda12-plugin<=0.10.2,>=0.10.2; extra == "cuda12-local"',
]


@pytest.fixture
def installed(monkeypatch):
    """Versions of distributions, beside JAX 0.10.2 with its pins."""
    there = {"jax": "0.10.2"}

    def version(name):
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda name: PINS if name == "jax" else [])
    return there


def test_what_jax_asks_for(installed):
    assert mismatched_plugin("tpu") is None  # nothing is installed
    installed["libtpu"] = "0.0.42.1"
    installed["jax-cuda12-plugin"] = "0.10.2"
    assert [mismatched_plugin(one) for one in ("cpu", "tpu", "cuda")] == [None, None, None]
    installed["libtpu"] = "0.0.51"
    mismatch = mismatched_plugin("tpu")
    assert str(mismatch) == "libtpu 0.0.51 is installed, and JAX 0.10.2 asks for libtpu==0.0.42.*"
    assert mismatch.advice == "pip install 'jax[tpu]==0.10.2'"
    installed["jax-cuda12-plugin"] = "0.9.0"
    assert mismatched_plugin("cuda").advice == "pip install 'jax[cuda12-local]==0.10.2'"


def test_the_pins_of_the_jax_that_is_there():
    found = [text for text in metadata.requires("jax") if text.startswith("libtpu")]
    assert found
    assert all("extra" in text and "==" in text for text in found)


def test_a_program_is_not_blamed_for_the_pair(installed):
    on = parse_hardware("tpu:v5p:4x4x4")
    refused = {"refused": "INTERNAL: async-update instruction should have 1 operands"}
    with pytest.raises(CompilerError, match=r"^The compiler refuses the program") as caught:
        compiler._raise_if_wrong(refused, on)
    installed["libtpu"] = "0.0.51"
    with pytest.raises(CompilerError) as caught:
        compiler._raise_if_wrong(refused, on)
    assert caught.value.message == (
        "The compile for tpu:v5p:4x4x4 failed: async-update instruction should have 1 operands. "
        "libtpu 0.0.51 is installed, and JAX 0.10.2 asks for libtpu==0.0.42.*."
    )
    assert caught.value.hint.endswith("pip install 'jax[tpu]==0.10.2'")
    assert "libtpu==0.0.42.*: pip install" in compiler._ended(on, -6, "").hint


def test_the_pair_is_told_before_the_compile(installed, monkeypatch, capsys):
    installed["libtpu"] = "0.0.51"
    compiler._warn_of.cache_clear()
    started = []

    def start(folder, on):
        started.append(capsys.readouterr().err)
        raise InterruptedError

    monkeypatch.setattr(compiler, "_start", start)
    monkeypatch.setattr(compiler, "check_hardware", lambda lowered, graph, on: on)
    (lowered,) = Inspection(resolve("mlp"), ["shardy"]).lowered.values()
    for hardware in ("tpu:v5p:2x2x2", "tpu:v5e:2x4", "cpu:8"):
        with pytest.raises(InterruptedError), compiler.compiling(lowered, parse_hardware(hardware)):
            pass
    assert started == [
        "warning: libtpu 0.0.51 is installed, and JAX 0.10.2 asks for libtpu==0.0.42.*. Correct "
        "programs can fail to compile: pip install 'jax[tpu]==0.10.2'\n",
        "",
        "",
    ]
    (remark,) = compiler._mismatches(parse_hardware("tpu:v5e:2x2"))
    assert list(remark_texts([remark])) == [
        "libtpu 0.0.51 is installed, and JAX 0.10.2 asks for libtpu==0.0.42.*: "
        "pip install 'jax[tpu]==0.10.2'"
    ]


@pytest.mark.parametrize(
    ("hardware", "command"),
    [
        ("tpu:v5e:2x4", "pip install 'jax[tpu]==0.10.2'"),
        ("cuda:h100:1x1x8", "pip install 'jax[cuda12-local]==0.10.2'"),
    ],
)
def test_a_missing_compiler_is_installed_as_doctor_says(installed, monkeypatch, hardware, command):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "_is_installed", lambda name: False)
    error = missing_plugin(parse_hardware(hardware))
    assert error.hint == command
    missing = [each.advice for each in doctor._optional_packages() if each.state == "missing"]
    assert sum(command in advice for advice in missing) == 1
