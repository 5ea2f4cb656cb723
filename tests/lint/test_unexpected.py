"""What is found of collectives that nobody expects."""

from types import SimpleNamespace

import pytest

from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation
from sdyscope.lint.unexpected import _is_lost, _moved
from sdyscope.values.mesh import AxisRef


@pytest.mark.parametrize("uncertain", [False, True])
def test_a_cause_that_is_uncertain_is_no_finding(uncertain):
    weight = OriginAnnotation("argument", "w", None, (AxisRef("data"),), "has", None, False)
    reduction = CollectiveOrigin(
        "reduction", "w", None, None, "dot_general", "", None, (weight,), uncertain=uncertain
    )
    part = SimpleNamespace(origin=reduction)
    assert _is_lost(part, frozenset({"data"}), {"x"}) is not uncertain
    moved = SimpleNamespace(
        origin=CollectiveOrigin(
            "resharding", "w", None, None, "dot_general", "", None, (weight,), uncertain=uncertain
        )
    )
    argument = SimpleNamespace(name="w")
    assert _moved(None, moved, {0: argument}) is (None if uncertain else argument)
