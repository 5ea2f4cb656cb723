"""Differences as they are printed."""

from dataclasses import replace

import pytest

from sdyscope.annotations import Annotation
from sdyscope.facts.differences import (
    LoneMesh,
    LoweredDiff,
    OpDifference,
    TensorDifference,
    TensorSide,
)
from sdyscope.facts.failures import Uncompared
from sdyscope.facts.sharded import Sharded
from sdyscope.snapshots.differences import DiffDocument
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Heading, Table
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.placement import Placement, axes_digits
from sdyscope.values.source import SourceLocation
from sdyscope.views import diff

MESH = Mesh.of({"data": 4})
LINE = SourceLocation("model.py", 9, 1)


def made(*, ops=(), meshes=()):
    diff = LoweredDiff(
        name="step",
        across="programs",
        a="a.mlir",
        b="b.mlir",
        same_tensors=3,
        meshes=tuple(meshes),
        ops=tuple(ops),
    )
    return DiffDocument(at="lowered", programs=(diff,))


def op(scope, number):
    return OpDifference(scope, "stablehlo.add", number, 0, {"tensor<16x128xf32>": number}, {})


def test_the_total_names_what_differs():
    (total,) = diff.summary(made())
    assert total == Paragraph("step: 3 tensors, the same in a.mlir and b.mlir", "good", hang=2)
    lone = LoneMesh("a", Mesh.of({"data": 4}))
    (total,) = diff.summary(made(ops=[op("layer0", 2)], meshes=[lone]))
    assert total.text == "step: the meshes and 2 ops in 1 place differ between a.mlir and b.mlir"
    assert total.tone == "bad"


def test_what_several_programs_leave_out_is_said():
    (program,) = made().programs
    partial = replace(program, constants_not_compared=2)
    assert (program.leaves_out, partial.leaves_out) == (False, True)
    document = DiffDocument(at="lowered", programs=(program, partial))
    assert list(diff.summary(document)) == [
        Paragraph(
            "2 programs in both: all the same; 1 program not compared in full", "warning", hang=2
        )
    ]
    texts = [part.text for part in diff.details(document)]
    assert "step: 3 tensors, the same in a.mlir and b.mlir; 2 constants not compared" in texts
    assert "Constants are not compared: the module leaves out the values." in texts


def test_programs_whose_ops_are_not_compared_are_the_same_in_their_tensors():
    """A run under each partitioner, in which `tanh` became `sin`, was "all the same"."""
    (program,) = made().programs
    document = DiffDocument(at="lowered", programs=(replace(program, ops_compared=False),) * 2)
    (paragraph,) = diff.summary(document)
    assert paragraph.text == "2 programs in both: all tensors the same"
    texts = [part.text for part in diff.details(document)]
    assert [text for text in texts if text.startswith("Ops not compared")] == texts[1:]


@pytest.mark.parametrize(("at", "said"), [("lowered", "the same"), ("compiled", "hold the same")])
def test_several_programs_are_the_same_in_what_was_compared_alone(at, said):
    (program,) = made().programs
    document = DiffDocument(at=at, programs=(program, program))
    ((paragraph),) = diff.summary(document)
    assert paragraph.text.startswith("2 programs in both: all ")
    assert paragraph.text.endswith(said)


def test_the_biggest_differences_are_listed_and_the_rest_counted():
    document = made(ops=[op(f"layer{k // 2}", 30 - k) for k in range(25)])
    parts = list(diff.details(document))
    (table,) = [part for part in parts if isinstance(part, Table)]
    assert sum(not isinstance(row, Heading) for row in table.rows) == 20
    assert table.rows[0] == Heading("layer0")
    assert Paragraph("and 5 more places: --all lists them", "muted") in parts
    (table,) = [p for p in diff.details(document, everything=True) if isinstance(p, Table)]
    assert sum(not isinstance(row, Heading) for row in table.rows) == 25


def test_constraints_of_one_line_and_arguments_of_many_layers_are_one_row():
    def tensor(name, kind, dims, line=None):
        rows, columns = (
            TensorSide(
                Annotation(kind, name, (8, 8), "f32", None, source=line),
                Sharded(None, (8, 8), "f32", Placement(4, split), MESH),
            )
            for split in (dims, dims[::-1])
        )
        return TensorDifference(name, kind, "changed", ("placement",), rows, columns)

    split = (axes_digits(MESH, (AxisRef("data"),)), ())
    weights = [tensor(f"params['layers'][{layer}]", "argument", split) for layer in range(8)]
    types = [tensor("jit(step)", "constraint", split, LINE)] * 3
    (program,) = made().programs
    program = replace(program, tensors=(*weights, *types))

    def names(everything):
        document = DiffDocument(at="lowered", programs=(program,))
        (table,) = [
            part
            for part in diff.details(document, everything=everything)
            if isinstance(part, Table)
        ]
        return [row.text if isinstance(row, Heading) else str(row[0]) for row in table.rows]

    assert names(False) == [
        "arguments (8)",
        "params['layers'][{0..7}] (8)",
        "constraints (3)",
        "jit(step) model.py:9 (×3)",
    ]
    assert len(names(True)) == 11


def test_programs_of_which_the_same_is_said_are_told_once():
    (program,) = made(ops=[op("layer0", 2)]).programs
    first, again, other = (
        replace(program, name=f"step.{number}", a=f"old:step.{number}", b=f"new:step.{number}")
        for number in (1, 2, 3)
    )
    other = replace(other, ops=(op("layer1", 2),))
    document = DiffDocument(at="lowered", programs=(first, again, other))

    def told(*, everything):
        parts = diff.details(document, everything=everything)
        return [part.text for part in parts if isinstance(part, Paragraph) and part.text]

    every = [f"step.{number}" for number in (1, 2, 3)]
    assert [text.partition(":")[0] for text in told(everything=True)] == every
    short = told(everything=False)
    assert [text.partition(":")[0] for text in short] == every
    assert short[1] == "step.2: as step.1; --all shows it"
    tables = [part for part in diff.details(document) if isinstance(part, Table)]
    assert len(tables) == 2
    # A name that is part of another word is no name.
    alike = replace(first, name="a", a="a", b="b"), replace(first, name="d", a="d", b="e")
    document = DiffDocument(at="lowered", programs=alike)
    assert "d: as a; --all shows it" in told(everything=False)


def test_types_are_short():
    (table,) = [p for p in diff.details(made(ops=[op("layer0", 2)])) if isinstance(p, Table)]
    assert table.cells[0][3].text == "-2 x f32[16,128]"


def test_no_programs_in_common():
    document = DiffDocument(
        at="lowered", only_a=("x",), only_b=("y", "z"), unread=(Uncompared("w"),)
    )
    assert not document.same
    assert [p.text for p in diff.summary(document)] == [
        "0 programs in both",
        "only in the first: x",
        "only in the second: y, z",
        "not read: w",
    ]
