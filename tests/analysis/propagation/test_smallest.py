"""The smallest sets of edits: against what every set does."""

from itertools import chain, combinations

import pytest

from sdyscope.analysis.propagation.smallest import smallest_sets


def searched(count, does, most):
    """What is searched with some number of trials, and which sets were tried."""
    tried = []

    def asked(numbers):
        if numbers not in tried:
            tried.append(numbers)
        return does(set(numbers))

    return smallest_sets(count, asked, lambda sets: len(tried) + len(sets) <= most), tried


@pytest.mark.parametrize("count", range(6))
def test_every_smallest_set_is_there_where_all_can_be_tried(count):
    every = list(chain.from_iterable(combinations(range(count), size) for size in range(count + 1)))
    for needed in every[1:]:
        (sets, exhaustive), tried = searched(count, set(needed).issubset, 100)
        assert (sets, exhaustive) == ([needed], True)
        assert all(len(numbers) <= len(needed) for numbers in tried)
    assert searched(count, lambda some: False, 100)[0] == ([], True)
    if count > 1:
        (sets, _), _ = searched(count, bool, 100)
        assert sets == [(number,) for number in range(count)]


def test_of_a_set_that_is_not_the_smallest_nothing_can_be_left_out():
    def does(some):
        return {0, 1, 2} <= some or {4, 5} <= some

    (sets, exhaustive), tried = searched(6, does, 6)
    assert (sets, exhaustive) == ([(0, 1, 2)], False)
    assert len(tried) < 2**6
    assert not any(does(set(sets[0]) - {number}) for number in sets[0])
    assert searched(6, lambda some: False, 6)[0] == ([], False)
