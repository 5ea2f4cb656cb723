"""What is advised on functions that were compiled again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sdyscope.facts.recompiles import ArgumentChange, OpChange, Recompile
from sdyscope.words.recompiles import advice, cause

MOVED = ArgumentChange("argument", "x", "f32[8]", "f32[8]", moved=True)
RETYPED = ArgumentChange("argument", "x", "f32[8]", "f32[4]")
VALUE = OpChange("stablehlo.constant", "stablehlo.constant", "value", "1.0", "2.0", None)
AGAIN = Recompile("f", None, "f.2", "f.1", 1, 0.1, 0.1, (), (MOVED,), False, VALUE)


def test_a_sharding_and_a_static_argument_are_both_told() -> None:
    text = advice(AGAIN)
    assert "Place x on the mesh before the first call" in text
    assert "what the function closes over is part of the program" in text


@pytest.mark.parametrize("other", [replace(AGAIN, arguments=(RETYPED,)), replace(AGAIN, op=None)])
def test_what_changes_ops_itself_is_told_alone(other: Recompile) -> None:
    assert "A static argument" not in advice(other)


def test_what_no_module_says_is_not_said_for_certain() -> None:
    text = advice(replace(AGAIN, arguments=(), op=None))
    assert text.startswith("No module says why.")
    assert "static argument" in text


def test_an_argument_that_is_donated_once_alone_is_the_cause() -> None:
    donated = replace(AGAIN, arguments=(), op=None, donated=("x",))
    assert cause([donated]) == "x is donated in one of the two alone"
    assert "donate_argnums" in advice(donated)


def test_a_setting_of_jax_is_not_to_be_passed_as_an_array() -> None:
    precision = replace(VALUE, attribute="precision_config", was_text="DEFAULT")
    text = advice(replace(AGAIN, arguments=(), op=precision))
    assert "jax_default_matmul_precision" in text
    assert "array" not in text


@pytest.mark.parametrize("is_certain", [True, False])
def test_a_result_is_a_next_value_only_where_that_is_known(is_certain: bool) -> None:
    returned = replace(MOVED, returned_as="result", is_next_value=is_certain)
    text = cause([replace(AGAIN, arguments=(returned,))])
    assert ("as f.1 returns result" in text, "next value" in text) == (True, is_certain)


def test_arguments_that_change_alike_are_told_together_and_layers_by_one_name() -> None:
    """Of a tree of 48 arrays of 4 shapes, each of which has another type than before."""
    changes = tuple(
        replace(
            RETYPED,
            name=f"params['blocks'][{at}]['{name}']",
            was_type=f"f32[{size}]",
            type=f"bf16[{size}]",
        )
        for at in range(12)
        for size, name in ((8, "bias"), (16, "down"), (32, "norm"), (64, "up"))
    )
    text = cause([replace(AGAIN, arguments=changes, op=None)])
    assert text.count("params['blocks']") == 3
    assert text.count("and 11 more likewise") == 3
    assert text.endswith("and 12 more")
    moved = tuple(replace(MOVED, name=change.name) for change in changes)
    said = advice(replace(AGAIN, arguments=moved, op=None))
    assert "Place params['blocks'][*]['bias'], params['blocks'][*]['down']" in said
    assert "params['blocks'][*]['norm'] and 12 more on the mesh" in said
