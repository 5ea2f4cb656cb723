"""What the partitioners make of the reference transformer: alike where activations are pinned."""

import importlib.util
import os
from pathlib import Path

import pytest

from sdyscope.stages import compat

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "partitioners.py"
MESH = {"fsdp": 4, "model": 2}

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def compared():
    spec = importlib.util.spec_from_file_location("partitioners", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    before = dict(os.environ)
    spec.loader.exec_module(module)
    # What it set would be there for every later test.
    assert dict(os.environ) == before
    return module


def test_constraints_make_them_alike_and_gspmd_needs_none(compared):
    def counted(partitioner, constrained):
        module = compared.after_partitioning(MESH, partitioner, constrained=constrained)
        return compared.counted(module)

    pinned = counted("gspmd", True)
    kinds = dict(zip(compared.KINDS, pinned[0], strict=True))
    assert (kinds["all-reduce"], kinds["all-to-all"], kinds["collective-permute"]) == (36, 2, 1)
    assert 16 <= kinds["all-gather"] <= 20
    assert counted("gspmd", False) == pinned
    gathers, reduces, exchanges, permutes = counted("shardy", True)[0]
    assert (reduces, permutes) == (36, 1)
    assert gathers + exchanges == kinds["all-gather"] + kinds["all-to-all"]
    # From JAX 0.11 on one resharding is by full rematerialization.
    assert exchanges == (2 if compat.version_tuple() < (0, 11) else 1)
    free, size = counted("shardy", False)
    assert free != pinned[0]
    assert size > 1.5 * pinned[1]
