"""Rates of axes fitted to what collectives took."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.analysis.cost.beside import work_beside
from sdyscope.analysis.cost.calibrate import calibrated
from sdyscope.analysis.cost.cost import CostDocument, read_given
from sdyscope.analysis.cost.cost import cost as cost_of_compiled
from sdyscope.analysis.cost.links import flat_level
from sdyscope.analysis.cost.remarks import error_of_estimates
from sdyscope.analysis.cost.schedule import with_step
from sdyscope.analysis.cost.time import collective_seconds
from sdyscope.analysis.profile.measured import measured as measure
from sdyscope.errors import TargetError
from sdyscope.facts.account import Account
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.measured import CollectiveTime, Measured, OpTime, TracedProgram
from sdyscope.facts.work import Work
from sdyscope.hardware.names import Hardware
from sdyscope.hlo import read_hlo
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.views import cost
from sdyscope.words.remarks import remark_text

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
        *(waiting, moving, None, None, each, None, None),
    )


def ran(number, seconds, **work):
    """An op that took so long, and computes and moves so much."""
    return OpTime(
        *(f"fusion.{number}", "fusion", "", "", "forward", None, 2.0),
        *(2 * seconds, 2 * seconds, 2 * seconds, seconds, Work(**work)),
    )


def measured(*collectives, mesh=MESH, ops=(), steps=()):
    return Measured(
        *("shardy", "jit_step", 8, 1, 3, mesh, tuple(steps), 0.0, 0.0, 0.0, None),
        *(tuple(ops), tuple(collectives), (), (), (), ()),
    )


def errors(calibration):
    return {error.of: error for error in calibration.errors}


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
    assert errors(found)["collectives"].median < 0.01
    assert errors(found)["collectives"].held_out is None


def test_the_error_of_other_traces_is_that_of_rates_without_them():
    slow, fast = (
        measured(*(timed("all-gather", "data", size, bandwidth, 0.0) for size in (4000, 8000)))
        for bandwidth in (1e8, 2e8)
    )
    found = calibrated({"slow": slow, "fast": fast})
    # By the other's rate one takes half as long, and one twice.
    assert errors(found)["collectives"].held_out == pytest.approx(0.75)
    assert errors(found)["collectives"].median < 0.75
    assert errors(found)["collectives"].expected == pytest.approx(0.75)


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
    alone = calibrated({"trace": trace})
    assert "fitted to 1 collective of 1 trace" in next(cost.calibrated(alone)).text
    assert "other programs is not known" in remark_text(error_of_estimates("cpu", alone))
    assert [cell.text for cell in cost.errors(alone).cells[0]] == ["collectives", "1", "0%", "-"]
    two = calibrated({"one": trace, "other": trace})
    assert "off by 0% for collectives: medians over 2 traces" in remark_text(
        error_of_estimates("cpu", two)
    )
    assert next(cell.text for cell in cost.rates(two).cells[0]) == "axis data"


compute = st.floats(1e9, 1e15), st.floats(1e9, 1e13), st.floats(1e-7, 1e-4)


@given(*compute)
def test_rates_of_ops_are_found_again(flops, bandwidth, overhead):
    """Ops that are limited by arithmetic, by memory, and by being run at all."""
    size = 50 * overhead
    ops = [
        op
        for times in (1, 2, 4)
        for op in (
            ran(3 * times, times * size + overhead, matmuls={"f32": flops * times * size}),
            ran(3 * times + 1, times * size + overhead, bytes=bandwidth * times * size),
            ran(3 * times + 2, overhead * 1.001, bytes=bandwidth * overhead / 1000),
        )
    ]
    found = calibrated({"trace": measured(ops=ops)})
    assert found.compute.matmuls["f32"] == pytest.approx(flops, rel=0.02)
    assert found.compute.bandwidth == pytest.approx(bandwidth, rel=0.02)
    assert found.compute.overhead == pytest.approx(overhead, rel=0.02)
    assert (found.compute.other, found.compute.ops) == (math.inf, len(ops))
    assert errors(found).keys() == {"matmuls", "copies"}
    assert errors(found)["matmuls"].median < 0.02


STEP = """HloModule jit_step, is_scheduled=true, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (p: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64]{1,0} parameter(0)
  %dot.1 = f32[64,64]{1,0} dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %all-reduce.1 = f32[64,64]{1,0} all-reduce(%dot.1), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true, to_apply=%add
}
"""  # noqa: E501


def stepped(factor):
    """A step of which all took so many times a millisecond, and itself twice as long as that."""
    each = factor * 1e-3
    traced = TracedProgram(
        *("jit_step", STEP, 8, 1, 1),
        {
            "dot.1": [(0, device, 0.0, each) for device in range(8)],
            "all-reduce.1": [(0, device, each, 3 * each) for device in range(8)],
        },
        [0] * 8,
    )
    return traced, replace(measure(traced, [MESH]), step_seconds=(8 * each,))


#: The same with a dot and a collective more, between those.
BESIDE = STEP.replace(
    "  ROOT %all-reduce.1 = f32[64,64]{1,0} all-reduce(%dot.1)",
    """  %dot.2 = f32[64,64]{1,0} dot(%dot.1, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %all-reduce.2 = f32[64,64]{1,0} all-reduce(%dot.2), channel_id=2, replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true, to_apply=%add
  ROOT %all-reduce.1 = f32[64,64]{1,0} all-reduce(%all-reduce.2)""",  # noqa: E501
)


def test_what_is_computed_next_to_collectives_makes_them_longer_where_devices_share_cores():
    module = read_hlo(BESIDE)
    beside = work_beside(module, {"all-reduce.1", "all-reduce.2"})
    flops = {name: sum(op.flops for op in ops) for name, ops in beside.items()}
    assert flops == {"all-reduce.2": 4 * 64**3, "all-reduce.1": 0}
    # A dot takes a millisecond, the collective beside both 1 and 3 more, the other only 1.
    times = {"dot.1": 1e-3, "dot.2": 1e-3, "all-reduce.2": 4e-3, "all-reduce.1": 1e-3}
    traced = TracedProgram(
        *("jit_step", BESIDE, 8, 1, 1),
        {
            name: [(0, device, 0.01 * at, seconds) for device in range(8)]
            for at, (name, seconds) in enumerate(times.items())
        },
        [0] * 8,
        shares_cores=True,
    )
    shared = calibrated({"shared": measure(traced, [MESH])}, {"shared": traced})
    assert shared.compute.beside == pytest.approx(1.5, rel=0.02)
    assert shared.rates[0].error < 0.02
    assert "beside a collective" in [cells[0].text for cells in cost.rates(shared).cells]
    compiled = Compiled(
        *("step", "shardy", Hardware("cpu", 8), 8, "cpu", BESIDE),
        *(None, None, (), (), (), 0.0),
    )
    step = cost_of_compiled(compiled, [MESH], read_given({}, {}, shared))
    seconds = {each.collective.name: each.each for each in step.collectives}
    assert seconds["all-reduce.2"] == pytest.approx(4e-3, rel=0.03)
    assert seconds["all-reduce.1"] == pytest.approx(1e-3, rel=0.03)
    alone = replace(traced, shares_cores=False)
    apart = calibrated({"apart": measure(alone, [MESH])}, {"apart": alone})
    assert apart.compute.beside == 0


def test_a_whole_step_is_its_schedule_and_as_much_longer_as_others_were():
    programs, measurements = {}, {}
    for name, factor in (("one", 1.0), ("twice", 2.0)):
        programs[name], measurements[name] = stepped(factor)
    found = calibrated({"one": measurements["one"]}, {"one": programs["one"]})
    assert found.stretch == pytest.approx(2.0, rel=0.02)
    assert errors(found)["steps"].median == pytest.approx(0.0, abs=0.02)
    # By the rates of one that takes twice as long, a step is off by as much, and by half.
    both = calibrated(measurements, programs)
    assert errors(both)["steps"].held_out == pytest.approx(0.75, rel=0.05)
    assert [of.of for of in both.errors] == ["steps", "collectives", "matmuls"]


def test_a_calibrated_step_is_shown_with_its_error():
    traced, measurement = stepped(1.0)
    found = calibrated({"a": measurement, "b": measurement}, {"a": traced, "b": traced})
    compiled = Compiled(
        *("step", "shardy", Hardware("cpu", 8), 8, "cpu", STEP),
        *(None, None, (), (), (), 0.0),
    )
    program = with_step(cost_of_compiled(compiled, [MESH], read_given({}, {}, found)))
    assert program.step == pytest.approx(8e-3, rel=0.05)
    assert program.compute.fitted
    assert program.memory.fitted
    document = CostDocument(
        name="step", programs=(program,), calibration=found, errors=found.errors, account=Account()
    )
    texts = [each.text for each in cost.heading(document, program, ("shardy",))]
    assert "per step, known to be off by 0%" in texts[-1]
