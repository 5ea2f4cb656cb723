"""Walks to what is reached from somewhere."""

from sdyscope.walk import reached

NEXT = {1: [2, 3], 2: [4], 3: [4, 1], 4: [5], 5: []}


def test_the_nearest_come_first_and_each_once():
    assert list(reached([1], NEXT.__getitem__)) == [1, 2, 3, 4, 5]
    assert list(reached([3, 2, 3], NEXT.__getitem__)) == [3, 2, 4, 1, 5]


def test_no_more_steps_are_made_once_enough_is_seen():
    assert list(reached([1], NEXT.__getitem__, most=3)) == [1, 2, 3]
    assert list(reached([1], NEXT.__getitem__, most=4)) == [1, 2, 3, 4]


def test_a_step_goes_by_what_was_done_with_the_node():
    further = {}
    seen = []
    for node in reached([1], further.__getitem__):
        further[node] = NEXT[node][:1]
        seen.append(node)
    assert seen == [1, 2, 4, 5]
