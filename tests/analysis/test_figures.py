"""Figures of two programs."""

import pytest

from sdyscope.analysis.figures import differ_notably


@pytest.mark.parametrize(
    ("count", "other", "notably"),
    [(111, 100, True), (109, 100, False), (5, 5, False), (0, 5, False)],
)
def test_a_tenth_more_is_notable_whichever_comes_first(count, other, notably):
    assert differ_notably(count, other) == differ_notably(other, count) == notably
