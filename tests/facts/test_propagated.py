"""Where a value is, at each call of its function and under either partitioner."""

from sdyscope.facts.propagated import PropagatedValue
from sdyscope.values.placement import Placement


def test_calls_that_place_a_value_alike_are_one_however_that_is_written():
    whole = Placement(8, ((),))
    alike = PropagatedValue((1, 0), "kept", node=1, calls=(whole, None))
    assert alike.placed_at_calls(1) == ()
    split = Placement(8, (((8, 0),),))
    differing = PropagatedValue((1, 0), "kept", node=1, calls=(whole, split))
    assert differing.placed_at_calls(1) == (whole, split)
