"""The search takes as few judgements as a binary one; what can't be judged is passed over."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.upgrade.bisected import InOrder, SearchOutcome, Unjudged, bisect


class Judge:
    """Versions are numbers, bad from one on; some can't be judged."""

    def __init__(self, bad_from, unjudged=()):
        self.bad_from = bad_from
        self.unjudged = set(unjudged)
        self.judged = []

    def __call__(self, version):
        if version in self.unjudged:
            raise Unjudged("it does not import")
        self.judged.append(version)
        return version < self.bad_from


def found(count, judge):
    return bisect(InOrder(range(count + 1)), 0, count, judge)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 59, 64, 100])
def test_the_first_is_found_wherever_it_is(count):
    for first in range(1, count + 1):
        judge = Judge(first)
        outcome = found(count, judge)
        assert (outcome.first, outcome.before) == (first, first - 1)
        inside = [one for one in judge.judged if one != count]
        assert len(inside) <= math.ceil(math.log2(count)) if count > 1 else not inside


def test_sixty_commits_take_seven_with_the_good_one():
    # One more is for the good end, which is not judged here.
    assert max(_judgements(59, first) for first in range(1, 60)) + 1 == 7


def _judgements(count, first):
    judge = Judge(first)
    found(count, judge)
    return len(judge.judged)


def test_nothing_that_changed_is_told():
    judge = Judge(1000)
    assert found(59, judge) == SearchOutcome(None, 58, unchanged=True)


def test_what_can_not_be_judged_is_passed_over():
    outcome = found(20, Judge(8, unjudged={10, 5}))
    assert (outcome.first, outcome.before) == (8, 7)


def test_where_the_change_can_not_be_judged_several_may_be_it():
    outcome = found(10, Judge(6, unjudged={5, 6}))
    assert outcome.first is None
    assert (outcome.before, set(outcome.candidates)) == (4, {5, 6, 7})


@given(st.integers(1, 40), st.data())
def test_the_first_is_found_or_among_the_candidates(count, data):
    first = data.draw(st.integers(1, count))
    unjudged = data.draw(st.sets(st.integers(1, count - 1))) if count > 1 else set()
    judge = Judge(first, unjudged - {count})
    outcome = found(count, judge)
    if outcome.first is not None:
        assert outcome.first == first
    else:
        assert first in outcome.candidates
        assert set(outcome.candidates) - {max(outcome.candidates)} <= unjudged
    assert len(set(judge.judged)) == len(judge.judged)
