"""The index of a propagation by value, against looking at every step there is."""

import pytest

from sdyscope.analysis.propagation.axis_parts import part_of
from sdyscope.analysis.propagation.flow import Arrival, Flow
from sdyscope.stages.lowered.lower import NotLowerable
from tests.analysis.propagations import of_model, of_program, of_text, sharded
from tests.programs import PROGRAMS
from tests.user_programs import USER_PROGRAMS


def all_arrivals(flow):
    """What came to each value: by going through all steps, not from the value to its steps."""
    found = {}
    for step in flow.propagated.steps:
        source = flow.at(step.op, step.source)
        for slot in step.targets:
            target = flow.at(step.op, slot)
            if None not in (source, target) and target != source:
                part = part_of(step.axis, flow.mesh)
                found.setdefault(target, []).append(Arrival(step, part, source, slot))
    return found


def check(case):
    flow = Flow(case.propagated, case.graph)
    values = [(op.id, result) for op in flow.graph.ops for result in range(len(op.types))]
    lazily = {root: flow.arrivals(root) for root in map(flow.root, values)}
    every = all_arrivals(Flow(case.propagated, case.graph))
    assert {root: arrivals for root, arrivals in lazily.items() if arrivals} == every


@pytest.mark.parametrize(
    "settings", [{}, {"scan": True}, {"remat": True, "constrained": False}], ids=str
)
def test_arrivals_in_a_model(settings):
    check(of_model("fsdp-transformer", **settings))


@pytest.mark.parametrize("name", [*PROGRAMS, *USER_PROGRAMS])
def test_arrivals_in_programs(name):
    try:
        case = of_program(name)
    except NotLowerable as error:
        pytest.skip(error.message)
    check(case)


def test_steps_of_a_few_ops_are_a_part_of_all():
    steps = of_model("mlp").propagated.steps
    nodes = {step.op for step in steps}
    assert len(nodes) > 3
    for some in ([], sorted(nodes)[:3], nodes):
        assert steps.through(some) == [step for step in steps if step.op in set(some)]
    assert steps[0] == next(iter(steps))
    assert len(steps[1:]) == len(steps) - 1


def test_a_program_without_anything_to_do_has_no_steps():
    case = of_text(
        "return %a : tensor<8xf32>",
        f"%a: tensor<8xf32> {sharded('[{}]')}",
        "tensor<8xf32>",
    )
    assert not case.propagated.steps
    assert list(case.propagated.steps) == []
