"""What an axis needs, what suffices, and the fewest edits: against propagating by what_if."""

from dataclasses import replace

import pytest

from sdyscope.analysis.naming.resolve import resolve_value
from sdyscope.analysis.propagation.counterfactuals import (
    Counterfactuals,
    annotation_groups,
    with_counterfactuals,
)
from sdyscope.analysis.propagation.explain import explain_document
from sdyscope.annotations import read_annotations
from sdyscope.errors import TargetError
from sdyscope.graph import read_text
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec as P
from sdyscope.values.source import SourceLocation
from sdyscope.views.explain import details
from sdyscope.words.edits import cause_text, edit_text


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


def test_a_constraint_keeps_what_it_says_whatever_else_goes(program, answers):
    graph = program.graph("shardy")
    constraint = next(op for op in graph.operations() if op.is_constraint)
    found = answers.without((constraint.id, 0), "data")
    (causes,) = found.causes
    assert (causes.cause.kind, causes.cause.source) == ("constraint", constraint.source)
    assert not causes.necessary  # Opened, it gets the axis from the batch.
    (remedy,) = found.remedies
    assert [(edit.kind, edit.source) for edit in remedy.edits] == [
        ("constraint", constraint.source)
    ]
    assert remedy.after == P((None, None))


def test_a_type_that_nobody_wrote_is_called_one(answers):
    (group,) = annotation_groups(
        [
            replace(annotation, primitive="dot_general")
            for annotation in read_annotations(answers.graph)
            if annotation.kind == "constraint"
        ][:1],
        answers.mesh,
    )
    assert (group.cause.kind, group.edit(None).kind) == ("type", "type")
    line = f"models/mlp.py:{group.first.source.line}"
    assert cause_text(group.cause) == f"the type at {line} P('data', None)"
    assert edit_text(group.edit(None)) == "leave out the type P('data', None) of jvp(block0)"
    assert edit_text(group.edit(P((None, None)))).endswith(
        "P(None, None) instead of P('data', None)"
    )


def test_a_wanted_sharding(program, answers):
    asked = value(program, "dot_general")
    found = answers.wanted(asked, P((None, "model")))
    assert found.wanted == P((None, "model"))
    for remedy in found.remedies:
        assert remedy.after == P((None, "model"))
    with pytest.raises(TargetError, match="already sharded as"):
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


def test_constraints_of_one_line_that_differ_are_said_to():
    line = SourceLocation("model.py", 405)
    mesh = Mesh.of({"data": 4, "model": 2})
    module = """
module @m {
  sdy.mesh @mesh = <["data"=4, "model"=2]>
  func.func public @main(%arg0: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{"data"}, {}]>
      : tensor<8x8xf32> loc("model.py":405:0)
    %1 = sdy.sharding_constraint %0 <@mesh, [{"data"}, {"model"}]>
      : tensor<8x8xf32> loc("model.py":405:0)
    return %1 : tensor<8x8xf32>
  }
}"""
    (group,) = annotation_groups(read_annotations(read_text(module)), mesh)
    assert (group.cause.spec, group.cause.count, group.cause.source) == (None, 2, line)
    assert cause_text(group.cause) == "the constraint at model.py:405 (2 of different shardings)"
