"""What was measured, in words."""

from sdyscope.facts.measured import Difference
from sdyscope.values.mesh import AxisRef
from sdyscope.words.profile import difference_name


def test_what_is_compared_in_two_traces():
    both = AxisRef("fsdp"), AxisRef("model")
    assert difference_name(Difference("step", 1.0, 2.0)) == "step"
    assert difference_name(Difference("all-reduce", 1.0, None, both)) == (
        "all-reduce over (fsdp, model)"
    )
    assert difference_name(Difference("all-reduce", 1.0, None, both[:1], "sum")) == (
        "all-reduce over fsdp: sum"
    )
