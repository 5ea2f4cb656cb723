"""A short run of benchmarks/fuzz.py: no mutated input is an internal error or a hang."""

import importlib.util
import signal
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    before = signal.getsignal(signal.SIGPROF)
    yield module
    signal.signal(signal.SIGPROF, before)
    del sys.modules[spec.name]


def test_every_kind_is_read_as_it_is(fuzz):
    for kind in fuzz.kinds():
        for text in kind.seeds:
            kind.read(text)


@pytest.mark.thorough
def test_no_input_is_an_internal_error_or_a_hang(fuzz):
    """The same inputs each time: how fast the machine is makes no difference."""
    found = fuzz.run(0, seed=0, inputs=100)
    assert [f"{kind.name}: {line}" for kind in found for line in kind.wrong] == []
    assert {kind.inputs for kind in found} == {100}
