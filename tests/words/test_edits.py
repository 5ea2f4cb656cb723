"""Edits in sentences."""

import pytest

from sdyscope.facts.counterfactuals import (
    AxisCause,
    AxisCauses,
    CheckedEdits,
    Counterfactual,
    Removals,
    TriedCause,
    TriedEdits,
)
from sdyscope.facts.edits import MovedResult, SourceEdit
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding
from sdyscope.values.sharding import PartitionSpec as P
from sdyscope.values.source import SourceLocation
from sdyscope.words.edits import (
    causes_texts,
    checked_edits_text,
    edit_text,
    edits_text,
    moved_text,
    no_edits_text,
    no_removal_text,
    removal_texts,
    then_text,
    trials_texts,
    tried_edits_text,
    why_not_text,
)

LINE = SourceLocation("train.py", 7)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (
            SourceEdit("new constraint", "x[tokens]", None, P(("data", None)), LINE),
            "constrain x[tokens] to P('data', None)",
        ),
        (
            SourceEdit("constraint", "logits", P(("data",)), None, LINE),
            "remove the constraint P('data') of logits",
        ),
        (
            SourceEdit("constraint", "h", P(("a",)), P(("b",)), LINE),
            "constrain h to P('b') instead of P('a')",
        ),
        (
            SourceEdit("argument", "params['w']", P((None,)), P(("a",)), LINE, 3),
            "shard params['w'] and 2 more tensors as P('a') instead of P(None)",
        ),
        (
            SourceEdit("argument", "x", P(("a",)), None, LINE),
            "leave x to the compiler instead of P('a')",
        ),
        (
            SourceEdit("donation", "state", None, None, LINE, 2),
            "donate state and 1 more tensor, which the call then deletes",
        ),
        (
            SourceEdit("optimizer state", "mu['w']", P(("a",)), None, LINE, 3),
            "shard mu['w'] and 2 more tensors as their parameters instead of P('a')",
        ),
        (
            SourceEdit("optimizer state", "mu", None, None, LINE),
            "shard mu as its parameter instead of no sharding",
        ),
        (
            SourceEdit("repeated reduction", "psum(g, 'd')", None, None, LINE),
            "leave out psum(g, 'd'): it is already summed",
        ),
    ],
)
def test_what_an_edit_is(edit, text):
    assert edit_text(edit) == text
    assert edits_text([edit]) == f"{text} (train.py:7)"


def test_a_long_expression_is_shown_by_its_beginning():
    edit = SourceEdit("setting", "x" * 80, None, None, None)
    assert edit_text(edit) == f"set {'x' * 45}..."


def test_why_not():
    assert why_not_text("not built", "No mesh.") == "the edited source does not build: No mesh"
    assert why_not_text("loses") == "compiled, it gains nothing"


WEIGHT = AxisCause("argument", "params['w']", P(("data",)), LINE)
BATCH = AxisCause("argument", "x", P(("data",)), LINE)


def counterfactual(**fields):
    values = {
        "now": P(("data",)),
        "removed": "data",
        "wanted": None,
        "causes": (),
        "remedies": (),
        "constraint": None,
        "propagations": 7,
        "complete": True,
    }
    return Counterfactual(**{**values, **fields})


def removals(**fields):
    values = {
        "is_found": True,
        "removed": "",
        "causes": (),
        "remedies": (),
        "constraints": (),
        "is_kept": False,
        "complete": True,
        "sent": None,
        "differing": None,
        "tried": 3,
    }
    return Removals(**{**values, **fields})


def test_whether_an_axis_needs_its_cause():
    causes = AxisCauses(0, "data", WEIGHT, False, (BATCH,), 1)
    assert list(causes_texts(causes)) == [
        "dim 0 on data: params['w'] P('data') is not necessary: the axis stays without it",
        "dim 0 on data: it is not sufficient on its own, with no other annotation over the axis",
        "dim 0 on data: sufficient on their own: x P('data')",
    ]


def test_what_edits_are_to_do_and_that_none_do():
    wanted = counterfactual(removed="", wanted=P(("model",)), complete=False, crashed=1)
    smallest, other = (CheckedEdits((), P(()), each) for each in (True, False))
    assert checked_edits_text(counterfactual(), smallest) == (
        "to take data off it, the fewest removals (propagated again)"
    )
    assert checked_edits_text(wanted, other) == (
        "to shard it as P('model'), removals none of which can be left out (propagated again)"
    )
    assert no_edits_text(counterfactual()) == (
        "no removal of annotations behind it takes data off it"
    )
    assert no_edits_text(wanted) == (
        "none of the removals of annotations that were tried shards it as P('model')"
    )
    assert list(trials_texts(wanted)) == [
        "checked with 7 propagations",
        "1 propagation crashed Shardy: what those edits do is not known",
    ]


def test_what_becomes_of_a_collective_without_annotations():
    causes = tuple(TriedCause(cause, False, False) for cause in (WEIGHT, BATCH))
    both = "params['w'] P('data'), x P('data')"
    assert list(removal_texts(removals(causes=causes), "the collective")) == [
        f"none of these is necessary; the collective stays without any one of them: {both}",
        "none of them is sufficient on its own",
    ]
    kept = removals(causes=causes, removed="data", is_kept=True)
    assert list(removal_texts(kept, "the collective over data")) == [
        "none of these is necessary; the collective over data stays if any one of them loses the "
        f"axis: {both}",
        "the collective over data stays even if all of them lose it: something else causes it",
    ]
    assert no_removal_text(removals(causes=causes)) == (
        "it stays whichever of these annotations are removed"
    )
    assert no_removal_text(removals(causes=causes, complete=False)) == (
        "it stayed in every trial in which some of these annotations were removed"
    )


def test_what_a_program_does_with_edits_that_were_tried():
    sent = TriedEdits((), False, 1024)
    assert tried_edits_text(sent, removals(sent=2048)) == (
        "removals that end it, none of which can be left out; partitioned again, a device sends "
        "1.0 KiB per step instead of 2.0 KiB",
        True,
    )
    differing = TriedEdits((), True, None, 1)
    assert tried_edits_text(differing, removals(differing=1), adds=True) == (
        "one more annotation that ends it; propagated again, 1 comparable value differs instead "
        "of 1",
        False,
    )


def test_an_edit_of_the_mesh_says_which_mesh_it_makes():
    mesh = Mesh.of({"data": 1, "model": 8})
    texts = [
        edit_text(SourceEdit(kind, "", None, None, None, mesh=mesh))
        for kind in ("mesh", "mesh sizes")
    ]
    assert texts == [
        "put the axes of the mesh in the order data, model",
        "make the mesh data=1 x model=8",
    ]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (P(()), "replicated"),
        (P((None, None)), "replicated"),
        (P((None, "model")), "P(None, 'model')"),
        (P((None,), frozenset({"data"})), "P(None, unreduced={'data'})"),
    ],
)
def test_what_an_edit_leaves_whole_is_replicated(spec, words):
    assert then_text(CheckedEdits((), spec, True)) == f"it is then {words}"


def test_results_that_only_another_mesh_moves_are_said_with_it():
    spec, other = P(("data",)), P(("model",))
    meshes = [Mesh.of({"data": 4, "model": 2}), Mesh.of({"model": 2, "data": 4})]
    on, reordered = (NamedSharding(mesh, spec) for mesh in meshes)
    assert moved_text([MovedResult("result", on, reordered)]) == (
        "result is P('data') on model=2 x data=4, not on data=4 x model=2"
    )
    assert moved_text([MovedResult("result", on, NamedSharding(meshes[0], other))]) == (
        "result is P('model'), not P('data')"
    )


def test_an_edit_of_a_rule_is_said_with_its_mesh_axes():
    before, after = P((None,)), P((("data", "model"),))
    edit = SourceEdit("logical axis", "mlp", before, after, None)
    assert edit_text(edit) == "map the logical axis 'mlp' to ('data', 'model') instead of None"


def test_a_reshard_is_left_out():
    edit = SourceEdit("reshard", "z", P(("data", None)), None, None)
    assert edit_text(edit) == "leave out the reshard of z to P('data', None)"
