"""Errors of results, and what each dtype excuses."""

import math

import ml_dtypes
import numpy as np
import pytest

from sdyscope.analysis.run.numerics import (
    ROUNDOFF,
    coarsest,
    difference,
    numeric,
    other_on_one_device,
    tolerance,
    worst_error,
)
from sdyscope.facts.execution import HostBlock


def compared(actual, expected, dtype="f32", computed_in=("f32",), before=None):
    whole = HostBlock.whole(np.asarray(actual))
    apart = difference(whole, np.asarray(expected), before)
    return numeric("result", 0, dtype, computed_in, [apart])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("f64", np.float64),
        ("f32", np.float32),
        ("f16", np.float16),
        ("bf16", ml_dtypes.bfloat16),
        ("f8E4M3FN", ml_dtypes.float8_e4m3fn),
        ("f8E5M2", ml_dtypes.float8_e5m2),
        ("f8E8M0FNU", ml_dtypes.float8_e8m0fnu),
        ("f6E2M3FN", ml_dtypes.float6_e2m3fn),
        ("f6E3M2FN", ml_dtypes.float6_e3m2fn),
        ("f4E2M1FN", ml_dtypes.float4_e2m1fn),
    ],
)
def test_roundoff_is_half_of_the_distance_from_one_to_the_next_number(name, dtype):
    assert ROUNDOFF[name] == float(ml_dtypes.finfo(dtype).eps) / 2


def test_tolerances_widen_with_the_roundoff_and_never_excuse_everything():
    ordered = sorted(ROUNDOFF, key=ROUNDOFF.__getitem__)
    allowed = [tolerance(dtype) for dtype in ordered]
    assert allowed == sorted(allowed)
    assert allowed[0] > 0
    assert allowed[-1] < 1
    assert tolerance("") == 0
    # A result in 8 bits that is 1.4 times too large is no rounding.
    assert all(tolerance(dtype) < 0.4 for dtype in ROUNDOFF if dtype.startswith("f8E4M3"))
    assert tolerance("f8E5M2") < 0.4


def test_the_coarsest_dtype_that_takes_part_decides():
    assert coarsest("f32", ["f32"]) == "f32"
    assert coarsest("f32", ["bf16", "f32"]) == "bf16"
    assert coarsest("complex<f32>", ["f32"]) == "f32"
    assert coarsest("f32", ["complex<f64>", "tf32"]) == "tf32"
    assert coarsest("i32", ["bf16"]) == ""


def test_the_error_is_of_the_whole_and_the_worst_element_is_named():
    found = compared([[3.0, 0.0], [0.0, 4.5]], [[3.0, 0.0], [0.0, 4.0]])
    assert found.error == pytest.approx(0.5 / 5)
    assert (found.max_abs, found.where) == (0.5, (1, 1))
    assert not found.within


def test_a_few_elements_that_are_noise_are_no_error():
    expected = np.full(1_000_000, 0.1, np.float32)
    actual = expected.copy()
    actual[17] = -0.1
    found = compared(actual, expected, computed_in=("bf16",))
    assert found.within
    assert (found.max_abs, found.where) == (pytest.approx(0.2), (17,))


def test_integers_and_booleans_must_be_the_same():
    assert compared([1, 2], [1, 2], "i32").within
    assert not compared([1, 3], [1, 2], "i32").within
    assert not compared([True, True], [True, False], "i1").within
    large = 2**62
    assert not compared([large + 1], [large], "i64").within


def test_what_is_not_finite_must_be_so_in_both():
    nan, inf = math.nan, math.inf
    assert compared([1.0, nan, inf, -inf], [1.0, nan, inf, -inf]).within
    for actual, expected in (([nan], [1.0]), ([1.0], [nan]), ([inf], [-inf]), ([inf], [1.0])):
        found = compared(actual, expected)
        assert not found.within
        assert found.max_abs == math.inf


def test_numbers_whose_squares_are_none():
    assert compared([1e200, 1e-200], [1e200, 1e-200], "f64", ("f64",)).error == 0
    found = compared([2e200], [1e200], "f64", ("f64",))
    assert found.error == pytest.approx(1)
    assert compared([2e-200], [1e-200], "f64", ("f64",)).error == pytest.approx(1)


def test_nothing_and_zeros():
    assert compared(np.zeros((0, 3)), np.zeros((0, 3))).within
    assert compared([0.0], [0.0]).within
    assert compared([1e-9], [0.0]).error == math.inf
    assert compared([1.0, 2.0], [1.0]).error == math.inf


def test_large_arrays_are_compared_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal((2, 7, 11))
    whole = compared(one, two)
    monkeypatch.setattr("sdyscope.analysis.run.numerics._BLOCK", 5)
    parts = compared(one, two)
    assert parts.error == pytest.approx(whole.error)
    assert (parts.max_abs, parts.where) == (whole.max_abs, whole.where)


def test_blocks_of_several_processes_have_the_error_of_the_whole():
    expected = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    actual = expected + np.float32(1e-3)
    actual[4, 1] += 1
    copy = actual[:3] + np.float32(2)  # another process holds it, and the worse copy counts
    blocks = [
        HostBlock(((0, 3), (0, 4)), actual[:3]),
        HostBlock(((3, 6), (0, 4)), actual[3:]),
    ]
    found = numeric("result", 0, "f32", (), [difference(block, expected) for block in blocks])
    whole = compared(actual, expected)
    assert found.error == pytest.approx(whole.error)
    assert (found.max_abs, found.where) == (whole.max_abs, whole.where)
    assert found.where == (4, 1)
    blocks.append(HostBlock(((0, 3), (0, 4)), copy))
    worse = numeric("result", 0, "f32", (), [difference(block, expected) for block in blocks])
    assert worse.error > found.error


def stepped(dtype, rate, times=1.0):
    """Parameters before a step, after it, and after one with a gradient that is off by a factor."""
    params, grads = np.random.default_rng(0).normal(size=(2, 4096)).astype(np.float32)
    after, other = params - rate * grads, params - rate * times * grads
    return tuple(each.astype(dtype) for each in (params, after, other))


def test_a_small_step_of_a_wrong_gradient_is_told_by_what_it_changes():
    before, expected, actual = stepped(np.float32, 1e-6, times=8)
    assert compared(actual, expected).within
    wrong = compared(actual, expected, before=before)
    assert (wrong.within, wrong.by_change) == (False, True)
    assert wrong.error == pytest.approx(7, rel=0.2)
    # Also where the step computes in a narrower dtype than that in which parameters are kept.
    before, expected, actual = stepped(np.float32, 1e-3, times=8)
    assert not compared(actual, expected, "f32", ["bf16"], before=before).within
    assert compared(actual, expected, "f32", ["bf16"]).within


def test_a_change_may_be_off_by_rounding_and_by_signs():
    before, expected, actual = stepped(np.float32, 1e-3, times=1.3)
    assert compared(expected, expected, before=before).within
    # Adam's first step has the sign of each gradient, and that of noise is any.
    assert compared(actual, expected, "f32", ["bf16"], before=before).within


def test_a_change_that_rounding_hides_is_not_compared_and_said():
    before, expected, actual = stepped(ml_dtypes.bfloat16, 1e-3, times=8)
    hidden = compared(actual, expected, "bf16", ["bf16"], before=before)
    assert (hidden.within, hidden.hides_change) == (True, True)
    before, expected, _ = stepped(ml_dtypes.bfloat16, 1e-1)
    assert not compared(expected, expected, "bf16", ["bf16"], before=before).hides_change
    assert not compared(expected, expected, "bf16", ["bf16"]).hides_change


@pytest.mark.parametrize("rate", [1e-6, 1e-4])
def test_of_a_change_that_is_a_multiple_of_what_one_device_makes_it_is_said_which(rate):
    before, expected, actual = stepped(np.float32, rate, times=8)
    other = other_on_one_device(3, actual, expected, "f32", ["f32"], before)
    assert (other.index, other.ratio, other.by_change) == (3, 8.0, True)


def test_what_rounding_the_arguments_moves_as_far_is_noise():
    expected = np.float32([1e-9, -2e-9, 3e-9])
    blocks = [difference(HostBlock.whole(-expected), expected)]
    distance = blocks[0].distance
    noise = numeric("result", 0, "f32", ["f32"], blocks, moved=distance / 3)
    assert (noise.within, noise.is_noise) == (True, True)
    assert worst_error([noise]) is None
    assert not noise.tells
    wrong = numeric("result", 0, "f32", ["f32"], blocks, moved=distance / 5)
    assert (wrong.within, wrong.is_noise) == (False, False)
    # What agrees is no noise, however far rounding moves it.
    same = [difference(HostBlock.whole(expected), expected)]
    assert not numeric("result", 0, "f32", ["f32"], same, moved=distance).is_noise


def test_what_is_wrong_by_more_than_rounding_makes_noise_of_is_an_error():
    """In bf16 rounding moves gradients by a part of themselves, but makes no multiple of them."""
    start = np.random.default_rng(0).standard_normal(256)
    change = 1e-3 * np.random.default_rng(1).standard_normal(256)
    alone, size = start + change, float(np.linalg.norm(change))

    def of(step, moved):
        blocks = [difference(HostBlock.whole(start + step), alone, start)]
        return numeric("result", 0, "f32", ["bf16"], blocks, moved=moved)

    assert not of(1.9 * change, 0.24 * size).is_noise
    assert of(1.9 * change, 0.26 * size).is_noise
    assert not of(1.9 * change, 0.24 * size).within

    def beside(step, moved):
        return other_on_one_device(0, start + step, alone, "f32", ["bf16"], start, moved)

    noise = beside(1.9 * change, 0.26 * size)
    assert noise is not None
    assert noise.is_noise
    # Noise is no multiple.
    multiple = beside(2 * change, 0.3 * size)
    assert multiple is not None
    assert (multiple.ratio, multiple.by_change, multiple.is_noise) == (2, True, False)


def test_few_elements_that_rounding_makes_jump_are_noise():
    """As where Lion goes by the sign of a gradient that is nearly zero: others jump in each run."""
    there = np.linspace(0.5, 1, 64)
    jumps = np.where(np.arange(64) % 16 == 3, 1.0, 0.0)

    def of(wrong, jumps=jumps):
        here = there.copy()
        here[wrong] -= 1.0
        apart = [difference(HostBlock.whole(here), there, None, jumps)]
        return numeric("result", 0, "bf16", ["bf16"], apart, moved=0.02)

    noise = of([3, 19])
    assert (noise.within, noise.is_noise, noise.error) == (True, True, of([3, 19], None).error)
    assert not of([3, 19], None).within
    # What is steady is wrong, and so is what is wrong in many elements, however they jump.
    assert not of([3, 20]).within
    assert not of(slice(0, 16), np.ones(64)).within
    assert not of([3, 19], 0.4 * jumps).within


def test_noise_where_one_device_has_zeros_is_not_wrong():
    blocks = [difference(HostBlock.whole(np.float32([1e-9])), np.float32([0]))]
    assert numeric("result", 0, "f32", ["f32"], blocks, moved=1e-9).within
    assert not numeric("result", 0, "f32", ["f32"], blocks).within
