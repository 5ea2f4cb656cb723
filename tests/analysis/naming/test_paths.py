"""Pytree paths of arguments and results."""

from hypothesis import given
from hypothesis import strategies as st

from sdyscope.analysis.naming.paths import Leaf, _same_value, alike

PARTS = st.sampled_from(["[0]", "[1]", "['w']", "['b']", ".mu"])
PATHS = st.lists(PARTS, max_size=4).map("".join)


@given(st.lists(PATHS, max_size=6), st.lists(PATHS, max_size=6))
def test_arguments_that_a_result_may_continue_are_all_that_end_alike(results, arguments):
    """They are looked up, as there are thousands of each, and compared only then."""
    ours = [Leaf(f"result{path}", (2,), "f32") for path in results]
    theirs = [Leaf(f"state{path}", (2,), "f32") for path in arguments]
    assert alike(ours, theirs) == {
        number: [
            other
            for other, argument in enumerate(theirs)
            if result.keys[-1] == argument.keys[-1]
            and _same_value(result.keys[1:], argument.keys[1:])
        ]
        for number, result in enumerate(ours)
    }
