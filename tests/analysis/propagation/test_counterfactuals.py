"""What an axis needs, what suffices, and the fewest edits: against propagating by what_if."""

from dataclasses import replace

import pytest

from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.analysis.propagation.counterfactuals import Counterfactuals, with_counterfactuals
from sdyscope.analysis.propagation.explain import explain_document
from sdyscope.errors import TargetError
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.values.sharding import PartitionSpec as P
from sdyscope.views.explain import details


@pytest.fixture(scope="module")
def program():
    return Inspection(resolve("mlp"), ("shardy",))


@pytest.fixture(scope="module")
def answers(program):
    return Counterfactuals(program)


def value(program, word, number=0):
    return resolve_value(program.graph("shardy"), word)[number].id


def spec_of(program, value):
    """The sharding of a value, by the ordinary propagation of a program."""
    from sdyscope.analysis.propagation.explain import Explainer

    explained = Explainer.of(program, "shardy").explain(value)
    return explained.decided["shardy"].sharding.text


def test_edits_do_what_is_said_of_them_when_the_program_is_changed_by_other_means(program, answers):
    asked = value(program, "dot_general", 2)
    found = answers.without(asked, "model")
    assert found.now == P((None, "model"))
    (remedy,) = found.remedies
    assert len(remedy.edits) > 1
    wishes = {edit.name: edit.after for edit in remedy.edits}
    assert "model" in spec_of(program, asked)
    assert "model" not in spec_of(program.what_if(wishes), asked)
    for name in wishes:
        fewer = {one: spec for one, spec in wishes.items() if one != name}
        assert "model" in spec_of(program.what_if(fewer), asked), name


def test_a_cause_that_others_can_stand_in_for_is_not_necessary(program, answers):
    found = answers.without(value(program, "dot_general"), "model")
    (causes,) = found.causes
    assert (causes.dimension, causes.cause.kind, causes.necessary) == (1, "constraint", False)
    names = {cause.name for cause in causes.sufficient}
    assert {"params['w1']", "params['w2']"} <= names
    without = program.what_if({f"{causes.cause.source.file}:{causes.cause.source.line}": None})
    assert "model" in spec_of(without, value(program, "dot_general"))
    (remedy,) = found.remedies
    assert remedy.smallest
    assert [edit.after for edit in remedy.edits] == [P(("data", None))]
    assert found.constraint.edits[0].after == P(("data", None))


def test_a_wanted_sharding(program, answers):
    asked = value(program, "dot_general")
    found = answers.wanted(asked, P((None, "model")))
    assert found.wanted == P((None, "model"))
    for remedy in found.remedies:
        assert remedy.after == P((None, "model"))
    with pytest.raises(TargetError, match="so already"):
        answers.wanted(asked, P(("data", "model")))
    with pytest.raises(TargetError, match="can't be sharded"):
        answers.wanted(asked, P(("data", "model", None)))
    with pytest.raises(TargetError, match="not sharded over 'x'"):
        answers.without(asked, "x")


def test_a_value_that_can_not_be_as_wanted_says_so_beside_those_that_can(program):
    weight, count = (
        explain_document(program, name) for name in ("params['w2']", "opt_state[0].count")
    )
    both = replace(weight, values=(*weight.values, *count.values))
    answered = with_counterfactuals(both, program, wanted=P((None, None)))
    can, can_not = answered.values
    assert (can.counterfactual is None, can.unanswered) == (False, "")
    assert can_not.counterfactual is None
    assert "can't be sharded as P(None, None)" in can_not.unanswered
    lines = [" ".join(each.text.split()) for each in details(answered)]
    assert can_not.unanswered in lines


def test_every_answer_is_propagated(program, answers):
    found = answers.without(value(program, "params['w1']"), "model")
    assert found.propagations > 2
    assert found.constraint is None
    (causes,) = found.causes
    assert causes.cause.name == "params['w1']"


@pytest.mark.compiles
@pytest.mark.thorough
def test_a_collective_goes_with_what_it_needs_and_stays_with_what_it_does_not(program, answers):
    """Against the program partitioned anew with the annotations changed by what_if."""
    from sdyscope.analysis.collectives.read import collectives
    from sdyscope.hlo import read_hlo
    from sdyscope.stages.compiled.spmd import spmd

    def kinds(changed):
        text = spmd(changed.lowered["shardy"], changed.graph("shardy"))
        program_collectives = collectives(read_hlo(text), (program.only_mesh("shardy"),))
        return {
            (
                collective.kind,
                tuple(axis.name for axis in collective.axes or ()),
                part.scope,
                part.primitive,
            )
            for collective in program_collectives.collectives
            for part in collective.parts
        }

    compiled = program.collectives("shardy").collectives
    model = [
        compiled_program
        for compiled_program in compiled
        if [axis.name for axis in compiled_program.axes or ()] == ["model"]
    ]
    asked = max(model, key=lambda collective: collective.sent)
    collective = answers.collective(asked)
    assert (collective.name, collective.axes, collective.is_found) == (asked.name, ("model",), True)
    assert collective.causes
    key = (asked.kind, collective.axes, asked.largest.scope, asked.largest.primitive)
    assert key in kinds(program)
    for tried in collective.causes:
        one = tried.cause
        name = f"{one.source.file}:{one.source.line}" if one.kind == "constraint" else one.name
        assert (key in kinds(program.what_if({name: None}))) != tried.necessary
    for remedy in collective.remedies:
        names = {
            f"{edit.source.file}:{edit.source.line}" if edit.kind == "constraint" else edit.name
            for edit in remedy.edits
        }
        assert key not in kinds(program.what_if(dict.fromkeys(names)))
