"""A slice of benchmarks/snapshot_mutations.py: what moves is told, all else passes."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "snapshot_mutations.py"


@pytest.fixture(scope="module")
def mutations():
    spec = importlib.util.spec_from_file_location("snapshot_mutations", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize(("model", "most"), [("mlp", 40), ("fsdp-transformer", 8)])
def test_what_moves_is_told_and_nothing_else(mutations, model, most):
    _, module, settings = next(mutations.models([model]))
    tallies = mutations.run(module, settings, ("requested", "lowered"), 3, most).values()
    assert [sentence for tally in tallies for sentence in tally.wrong] == []
    moving, still = sum(tally.moving for tally in tallies), sum(tally.still for tally in tallies)
    # With both kinds among them the test could fail.
    assert moving > most // 4
    assert still > most // 8
    assert sum(tally.at_tensor for tally in tallies) == moving
    assert sum(tally.passed for tally in tallies) == still
