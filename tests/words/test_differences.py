"""What two sides differ in, as it is said."""

from types import SimpleNamespace

import pytest

from sdyscope.facts.differences import (
    Cause,
    CompiledDiff,
    LoneMesh,
    LoweredDiff,
    MemoryRow,
    NotCompared,
    NotComparedValues,
    ProgramSide,
)
from sdyscope.facts.memory import MemoryPart
from sdyscope.facts.origins import OriginAnnotation
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.values.convert import to_placement
from sdyscope.values.entry_layout import StoredArray
from sdyscope.values.mesh import AxisRef, Mesh, SubAxisInfo
from sdyscope.values.placement import Digit, Placement
from sdyscope.values.sharding import NamedSharding
from sdyscope.words.differences import (
    across_text,
    behind_texts,
    compared_over_text,
    compiled_remarks,
    entry_text,
    entry_texts,
    lone_mesh_text,
    lowered_notes,
    not_compared_entries_text,
    not_compared_text,
    without_cause_text,
)


def test_a_side_is_said_by_what_the_sides_are():
    assert across_text("partitioners", "gspmd") == "under GSPMD"
    assert across_text("hardware", "tpu:v5e:2x4") == "on tpu:v5e:2x4"
    assert across_text("programs", "after.mlir") == "in after.mlir"
    assert across_text("annotations", "after") == "after"


@pytest.mark.parametrize(
    ("left", "across", "words"),
    [
        (
            NotComparedValues("folded", "gspmd", 2),
            "partitioners",
            "2 values not compared: the compiler folded the value away under GSPMD",
        ),
        (
            NotComparedValues("folded", "after", 1),
            "annotations",
            "1 value not compared: the compiler folded the value away after",
        ),
        (
            NotComparedValues("absent", "b.mlir", 1),
            "programs",
            "1 value not compared: b.mlir's module has no such value",
        ),
        (
            NotComparedValues("no placement", "shardy", 1),
            "partitioners",
            "1 value not compared: Shardy's sharding has no placement",
        ),
    ],
)
def test_values_that_were_not_compared(left, across, words):
    assert not_compared_text(left, across) == words


def test_what_was_left_out_of_two_modules():
    diff = LoweredDiff(
        name="step",
        across="partitioners",
        a="shardy",
        b="gspmd",
        same_tensors=3,
        ops_compared=False,
        left_out={"gspmd": 1},
    )
    assert list(lowered_notes(diff)) == [
        "1 constraint that JAX writes on its own for GSPMD was left out.",
        "Ops not compared: the partitioners spell constraints and shard_map with different ops.",
    ]


def test_a_mesh_of_one_side():
    mesh = Mesh(Mesh.of({"a": 2, "b": 8}).axes, tuple(reversed(range(16))))
    words = lone_mesh_text(LoneMesh("a", mesh))
    assert words.startswith("Only a has this mesh: a=2 x b=8, 16 devices in")
    assert lone_mesh_text(LoneMesh("b", "<[")) == "Only b has this mesh: <[."


def test_axes_have_their_size_where_both_meshes_agree_on_it():
    meshes = Mesh.of({"data": 4, "model": 2}), Mesh.of({"data": 8, "model": 2})
    axes = AxisRef("data"), AxisRef("model"), AxisRef("data", SubAxisInfo(1, 2))
    assert compared_over_text(axes, None, meshes) == "data x model=2 x data:(1)2"
    assert compared_over_text((), None, meshes) == "a single device"
    assert compared_over_text(None, 4, meshes) == "groups of 4"
    assert compared_over_text(None, None, meshes) == "no single axis"


def test_annotations_behind_collectives():
    every = tuple(
        OriginAnnotation(
            "argument", f"w{k}", parse_partition_spec("P('data')"), (), "has", None, True
        )
        for k in range(5)
    )
    sides = {"a": ProgramSide("shardy"), "b": ProgramSide("gspmd")}
    diff = CompiledDiff(name="step", across="partitioners", **sides)
    assert list(behind_texts(Cause((), 0, 0, (), every), diff)) == [
        "annotations behind it under GSPMD: w0 P('data'), w1 P('data'), w2 P('data') and 2 more"
    ]


MESH = Mesh.of({"a": 4, "b": 2})


@pytest.mark.parametrize(
    ("spec", "block", "words"),
    [
        ("P()", (8, 8), "replicated f32[8,8]"),
        ("P(None, None)", (8, 8), "replicated f32[8,8]"),
        ("P('a')", (2, 8), "P('a', None) in blocks f32[2,8]"),
    ],
)
def test_an_entry_is_sharded_as_every_stage_says_it(spec, block, words):
    """However its PartitionSpec is written."""
    named = NamedSharding(MESH, parse_partition_spec(spec))
    held = SimpleNamespace(
        sharding=named, placement=to_placement(named, 2), stored=StoredArray("f32", block, "", 0)
    )
    assert entry_text(held, None, "sharding") == words


def test_an_entry_that_no_partition_spec_says_is_named_by_the_sides_mesh():
    digits = ((Digit(2, 4),), ())
    held = SimpleNamespace(
        sharding=None, placement=Placement(8, digits), stored=StoredArray("f32", (4, 8), "", 0)
    )
    assert entry_text(held, MESH) == "[{a:(1)2}, {}] in blocks f32[4,8]"
    assert entry_text(held, None).startswith("dim 0 split 2 ways (device stride 4)")


def test_entries_of_meshes_in_another_order_are_told_apart_by_their_devices():
    meshes = MESH, Mesh.of({"b": 2, "a": 4})
    held = []
    for mesh in meshes:
        named = NamedSharding(mesh, parse_partition_spec("P('a')"))
        stored = StoredArray("f32", (2, 8), "", 0)
        held.append(
            SimpleNamespace(sharding=named, placement=to_placement(named, 2), stored=stored)
        )
    both = "P('a', None) in blocks f32[2,8]: dim 0 split 4 ways (device stride "
    texts = entry_texts(*held, meshes, "sharding")
    assert [text.startswith(f"{both}{k})") for text, k in zip(texts, (2, 1), strict=True)] == [
        True
    ] * 2
    assert entry_texts(held[0], None, meshes, "sharding")[1] == "not there"


def test_entries():
    assert entry_text(None, None) == "not there"
    left = NotCompared("result", tuple("abcdef"), "b")
    assert not_compared_entries_text(left, ("x", "y")) == (
        "6 results are not compared: y does not say how a, b, c, d, ... are sharded"
    )


HELD = (MemoryRow("total", MemoryPart.TOTAL, 8, 8),)


@pytest.mark.parametrize(
    ("facts", "clauses"),
    [
        ({"a": ProgramSide("a", failure="refused")}, []),
        (
            {"moved": 1, "memory": HELD},
            [
                "1 tensor is communicated for ops of other scopes, from the same lines, with "
                "no other difference"
            ],
        ),
        ({}, ["memory is not compared: a text does not say how it stores its parameters"]),
        (
            {
                "memory": HELD,
                "b": ProgramSide("b", is_text=True),
                "causes_missing": "no module.",
            },
            [
                "memory: arguments and results, which is all that a text says of it",
                "where differences begin is not known: propagation failed: no module",
            ],
        ),
    ],
)
def test_what_was_not_compared_of_compiled_programs_is_said(facts, clauses):
    sides = {"a": ProgramSide("a"), "b": ProgramSide("b")}
    diff = CompiledDiff(**{"name": "step", "across": "programs", **sides, **facts})
    assert list(compiled_remarks(diff)) == clauses


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"across": "hardware"}, "The shardings are the same on both"),
        ({"same_shardings": True}, "Every value is sharded the same way on both sides"),
        ({"b": ProgramSide("b", is_text=True)}, "2 differences; HLO text does not show"),
        ({}, "2 differences that could not be traced to a sharding:"),
    ],
)
def test_differences_that_follow_from_no_place_say_why(facts, words):
    sides = {"a": ProgramSide("a"), "b": ProgramSide("b")}
    diff = CompiledDiff(**{"name": "step", "across": "programs", **sides, **facts})
    assert without_cause_text(diff, 2).startswith(words)
