"""A refused expression in words."""

from dataclasses import replace

from sdyscope.facts.refusals import ArrayType, Choice, DifferingTypes, Operand, Refusal, Sent
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec as P
from sdyscope.values.source import SourceLocation
from sdyscope.words.refusals import library_text, refusal_text

MESH = Mesh.of({"data": 4, "model": 2})


def type_of(shape, *spec):
    return ArrayType(shape, "f32", P(spec), MESH)


def refused(*choices):
    operands = (
        Operand("x", type_of((8, 16), "data", "model")),
        Operand('w["up"]', type_of((16, 32), "model", None)),
    )
    return Refusal('x @ w["up"]', SourceLocation("train.py", 7), operands, choices)


HEAD = """\
The operands of x @ w["up"] (line 7):
  x        f32[8@data,16@model]
  w["up"]  f32[16@model,32]
"""


def test_each_choice_says_what_it_makes_and_sends():
    summed = type_of((8, 32), "data", None)
    sent = (Sent("all-reduce", ("model",), 256), Sent("all-to-all", ("data", "model"), 1024))
    text = refusal_text(
        refused(
            Choice("local", (summed,), ()),
            Choice("moved", (summed, type_of((2,), ("data", "model"))), sent),
            Choice("unknown", (summed,), None),
        )
    )
    assert text == HEAD + (
        "JAX accepts each of these instead:\n"
        "  local\n"
        "      f32[8@data,32]: sends nothing\n"
        "  moved\n"
        "      f32[8@data,32], f32[2@(data,model)]: sends 1.2 KiB (all-reduce over model and "
        "all-to-all over (data, model))\n"
        "  unknown\n"
        "      f32[8@data,32]: no prediction\n"
        "sends: bytes each device sends for this expression alone, without its gradient, as "
        "Shardy's passes predict."
    )


def test_the_rest_is_counted():
    choice = Choice("same", (type_of((8,), "data"),), ())
    lines = refusal_text(refused(*[choice] * 11)).splitlines()
    assert lines.count("  same") == 8
    assert "  and 3 more (--verbose)" in lines
    assert refusal_text(refused(*[choice] * 11), every=True).count("  same\n") == 11


def test_nothing_that_jax_accepts_is_said_to_be_so():
    assert refusal_text(refused()) == HEAD + (
        "No reshard of one operand and no out_sharding makes JAX accept it."
    )


def test_types_that_have_to_be_equal():
    whole, along = type_of((8,), None), type_of((8,), "data")
    carry = DifferingTypes("carry", "c['h']", "", "", along, whole)
    branch = DifferingTypes("branch", "true_fun", "false_fun", "['h']", along, whole)
    sent = Sent("all-gather", ("data",), 24)
    refusal = replace(
        refused(Choice("moved", (whole,), (sent,), an_iteration=True)), differences=(carry, branch)
    )
    lines = refusal_text(refusal).splitlines()
    assert lines[3:5] == [
        "The carry c['h'] goes in as f32[8@data] and comes out as f32[8].",
        "true_fun returns f32[8@data] at ['h'] and false_fun returns f32[8].",
    ]
    assert "      f32[8]: sends 24 B (all-gather over data, a loop counted once)" in lines
    assert refusal_text(replace(refusal, choices=())).splitlines()[-1] == (
        "No reshard of what goes in or is returned makes JAX accept it."
    )


def test_what_a_library_is_refused_is_left_to_the_compiler_on_auto_axes():
    line = SourceLocation("/v/lib/python3.12/site-packages/haiku/_src/embed.py", 182, 0, "lookup")
    assert library_text(line) == (
        "What JAX refuses is haiku's, at haiku/_src/embed.py:182, on Explicit axes. The compiler "
        "decides there on Auto axes: give jax.make_mesh axis_types of jax.sharding.AxisType.Auto, "
        "or call haiku in jax.sharding.auto_axes."
    )
