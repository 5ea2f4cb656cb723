"""The gotchas of the documentation in the form that they had until JAX 0.5."""

from pathlib import Path

import jax
import pytest

from sdyscope.inspection import Inspection
from sdyscope.targets import resolve

GOTCHAS = Path(__file__).parents[2] / "docs" / "gotchas.py"


@pytest.mark.parametrize(("name", "found"), [("make_matrix", True), ("make_rows", False)])
def test_random_numbers_as_they_were(name, found):
    """JAX's Threefry without counters of 64 bits; a key for each row is the remedy."""
    with jax.threefry_partitionable(False):
        program = resolve(f"{GOTCHAS}:{name}", mesh={"data": 8})
        findings = Inspection(program, ["shardy"]).lint(compiled=False)
    rules = {finding.rule for finding in findings}
    assert ("threefry-not-partitionable" in rules) == found
