"""What was measured, in words."""

from types import SimpleNamespace

from sdyscope.facts.measured import Difference
from sdyscope.values.mesh import AxisRef
from sdyscope.words.profile import difference_name, steps_text


def test_what_is_compared_in_two_traces():
    both = AxisRef("fsdp"), AxisRef("model")
    assert difference_name(Difference("step", 1.0, 2.0)) == "step"
    assert difference_name(Difference("all-reduce", 1.0, None, both)) == (
        "all-reduce over (fsdp, model)"
    )
    assert difference_name(Difference("all-reduce", 1.0, None, both[:1], "sum")) == (
        "all-reduce over fsdp: sum"
    )


def test_the_average_is_told_where_one_step_moves_it_from_the_median():
    def text(*seconds):
        return steps_text(
            SimpleNamespace(
                step_seconds=seconds, hosts=1, program="step", steps=len(seconds), devices=8
            )
        )

    assert text(0.004, 0.005, 0.006).endswith("a step takes 5.00 ms (4.00 ms to 6.00 ms)")
    assert text(0.004, 0.005, 0.090).endswith("(4.00 ms to 90.0 ms, on average 33.0 ms)")
    assert text(0.004).endswith("a step takes 4.00 ms")
