"""One word for what came of a tensor."""

from dataclasses import replace

import jax
import pytest

from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.analysis.show import shown
from sdyscope.analysis.verdicts import verdict_on
from sdyscope.facts.decided import DecidedValue
from sdyscope.facts.program import Program
from sdyscope.staged import Staged
from tests.programs import W, X


@pytest.fixture(scope="module")
def rows():
    """An argument, as `show` and as `propagate` have it."""
    program = Staged(Program("step", jax.jit(lambda x, w: x @ w), (X, W)), ("shardy",))
    return shown(program).tensors[0], propagate_document(program).values[0]


@pytest.mark.parametrize(
    ("of_tensor", "of_value", "verdict"),
    [
        ({}, {}, "agrees"),
        ({"dropped": True}, {"as_requested": {"shardy": False}}, "dropped"),
        ({"agrees": {"shardy": False}}, {"as_requested": {"shardy": False}}, "differs"),
        ({"lowered": {}}, {}, "missing"),
        ({}, {"as_requested": {"shardy": False}}, "moved"),
        ({}, {"same": False}, "partitioners"),
        ({"requested": None}, {}, "decided"),
        ({"requested": None}, {"propagated": {}}, "none"),
    ],
)
def test_the_first_that_holds_is_said(rows, of_tensor, of_value, verdict):
    tensor, value = rows
    assert verdict_on(replace(tensor, **of_tensor), replace(value, **of_value)) == verdict


def test_what_was_not_propagated_is_as_lowered(rows):
    tensor, value = rows
    assert verdict_on(tensor, None) == "agrees"
    assert verdict_on(replace(tensor, requested=None), None) == "decided"
    assert verdict_on(None, value) == "decided"
    assert verdict_on(None, None) == "none"


def test_what_was_folded_is_gone(rows):
    _, value = rows
    folded = {"shardy": DecidedValue("folded", value.requested)}
    assert verdict_on(None, replace(value, propagated=folded)) == "gone"
