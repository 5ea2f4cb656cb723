"""What is advised on functions that were compiled again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sdyscope.facts.recompiles import ArgumentChange, OpChange, Recompile
from sdyscope.words.recompiles import advice

MOVED = ArgumentChange("argument", "x", "f32[8]", "f32[8]", moved=True)
RETYPED = ArgumentChange("argument", "x", "f32[8]", "f32[4]")
VALUE = OpChange("stablehlo.constant", "stablehlo.constant", "value", "1.0", "2.0", None)
AGAIN = Recompile("f", None, "f.2", "f.1", 1, 0.1, 0.1, (), (MOVED,), False, VALUE)


def test_a_sharding_and_a_static_argument_are_both_told() -> None:
    text = advice(AGAIN)
    assert "Place x on the mesh before the first call" in text
    assert "A static argument or a Python number is part of the program" in text


@pytest.mark.parametrize("other", [replace(AGAIN, arguments=(RETYPED,)), replace(AGAIN, op=None)])
def test_what_changes_ops_itself_is_told_alone(other: Recompile) -> None:
    assert "A static argument" not in advice(other)
