"""Times and numbers of operations to three digits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.words.rates import metric_text, time_text


@given(st.floats(min_value=1e-10, max_value=900))
def test_times_have_three_digits(seconds):
    number, unit = time_text(seconds).split()
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    assert math.isclose(float(number) * scale, seconds, rel_tol=6e-3, abs_tol=5e-12)
    assert seconds < 0.1e-9 or len(number.replace(".", "")) <= 4


def test_times_that_are_not_there():
    assert (time_text(None), time_text(0)) == ("-", "0 s")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (12, "12"), (999.6, "1 k"), (1.26e9, "1.26 G"), (1e18, "1000 P")],
)
def test_numbers(value, text):
    assert metric_text(value) == text


def test_numbers_with_a_unit():
    assert metric_text(648e6, "FLOP") == "648 MFLOP"
