"""What edits are worth."""

import pytest

from sdyscope.analysis.fix.change import Change


@pytest.mark.parametrize(
    ("time", "memory", "verdict"),
    [
        (0.98, 1.0, "pays"),
        (1.0, 0.98, "pays"),
        (0.98, 1.005, "pays"),
        (1.009, 0.988, "loses"),  # One is worse by nearly what the other is better by.
        (0.988, 1.009, "loses"),
        (0.995, 0.998, "loses"),
        (1.2, 0.5, "trade"),
        (1.2, 0.9, "loses"),
        (1.0, 1.0, "loses"),
    ],
)
def test_a_gain_is_one_by_time_and_memory_together(time, memory, verdict):
    assert Change(time, memory).verdict == verdict


def test_what_makes_no_step_slower_comes_first():
    faster, smaller, slower = Change(0.9, 1.0), Change(1.0, 0.95), Change(1.2, 0.5)
    assert sorted([slower, smaller, faster], key=lambda change: change.order) == [
        faster,
        smaller,
        slower,
    ]
