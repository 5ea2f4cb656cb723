"""Rates of axes fitted to what collectives took."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.analysis.cost.calibrate import calibrated
from sdyscope.analysis.cost.cost import read_given
from sdyscope.analysis.cost.links import flat_level
from sdyscope.analysis.cost.time import collective_seconds
from sdyscope.errors import TargetError
from sdyscope.facts.measured import CollectiveTime, Measured
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.views import cost

MESH = Mesh.of({"data": 4, "model": 2})
#: What a device sends of so many bytes of a result (all-gather) or operand (all else).
SENT = {
    "all-gather": lambda size, n: size * (n - 1) // n,
    "reduce-scatter": lambda size, n: size * (n - 1) // n,
    "all-reduce": lambda size, n: 2 * size * (n - 1) // n,
    "all-to-all": lambda size, n: size * (n - 1) // n,
    "collective-permute": lambda size, n: size,
}


def timed(kind, axis, size, bandwidth, latency, *, count=3, waiting=0.0):
    """A collective that took just what the model says, and waited besides."""
    n = MESH.shape[axis]
    each = collective_seconds(kind, size, (flat_level(n, bandwidth, latency),))
    moving, sent = count * each, count * SENT[kind](size, n)
    return CollectiveTime(
        *(f"{kind}.{size}", kind, (AxisRef(axis),), count, sent, "", None, moving + waiting),
        *(waiting, moving, None, None, None, None),
    )


def measured(*collectives, mesh=MESH):
    return Measured(
        *("shardy", "jit_step", 8, 1, 3, mesh, (), 0.0, 0.0, 0.0, None),
        *((), tuple(collectives), (), (), (), ()),
    )


rates = st.floats(1e8, 1e11), st.floats(1e-7, 1e-3)


@given(*rates, st.sampled_from(("data", "model")))
def test_what_the_model_made_is_found_again(bandwidth, latency, axis):
    """Sizes at which neither bytes nor hops are lost in rounding."""
    middle = 12 * max(int(bandwidth * latency), 100)
    sizes = (middle // 6 // 12 * 12, middle, 6 * middle)
    trace = measured(
        *(
            timed(kind, axis, size, bandwidth, latency, waiting=0.5)
            for kind in SENT
            for size in sizes
        )
    )
    found = calibrated({"trace": trace})
    (rate,) = found.rates
    assert rate.bandwidth == pytest.approx(bandwidth, rel=0.02)
    assert rate.latency == pytest.approx(latency, rel=0.02)
    assert (rate.axis, rate.collectives) == (axis, len(SENT) * len(sizes))
    assert found.error < 0.01
    assert found.held_out is None


def test_the_error_of_other_traces_is_that_of_rates_without_them():
    slow, fast = (
        measured(*(timed("all-gather", "data", size, bandwidth, 0.0) for size in (4000, 8000)))
        for bandwidth in (1e8, 2e8)
    )
    found = calibrated({"slow": slow, "fast": fast})
    # By the other's rate one takes half as long, and one twice.
    assert found.held_out == pytest.approx(0.75)
    assert found.error < found.held_out


def test_what_runs_over_no_single_axis_is_left_out_and_counted():
    one = timed("all-reduce", "data", 4000, 1e9, 1e-6)
    both = replace(one, axes=(AxisRef("data"), AxisRef("model")))
    found = calibrated({"trace": measured(one, both, replace(one, axes=None))})
    assert (found.left_out, found.rates[0].collectives) == (2, 1)
    with pytest.raises(TargetError, match="nothing to calibrate with"):
        calibrated({"trace": measured(both)})
    with pytest.raises(TargetError, match="nothing to calibrate with"):
        calibrated({"trace": measured(one, mesh=None)})


def test_what_is_given_takes_the_place_of_what_was_fitted():
    found = calibrated(
        {
            "trace": measured(
                timed("all-gather", "data", 4000, 1e9, 0.0),
                timed("all-gather", "model", 4000, 2e9, 0.0),
            )
        }
    )
    given_rates = read_given({"data": "90GB/s"}, {}, found)
    assert given_rates.bandwidths == {"data": 90e9, "model": 2e9}
    assert given_rates.fitted == {"model"}


def test_the_error_is_printed_and_what_it_is_not_of():
    trace = measured(timed("all-gather", "data", 4000, 1e9, 1e-5))
    alone = " ".join(each.text for each in cost.calibrated(calibrated({"trace": trace})))
    assert "fitted to 1 collective of 1 trace: the median error is 0%" in alone
    assert "that it was not fitted to, the error is not known" in alone
    two = calibrated({"one": trace, "other": trace})
    assert "0% of a trace by rates that were fitted to the others" in " ".join(
        each.text for each in cost.calibrated(two)
    )
    assert next(cell.text for cell in cost.rates(two).cells[0]) == "data"
