"""`sdyscope explain`."""

import re

import pytest


def test_a_chain_from_the_annotation_to_the_value(sdyscope):
    done = sdyscope("explain", "mlp", "block0/tanh")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("Shardy: exact, from Shardy's passes")
    assert lines[3] == "jvp(block0)/tanh f32[16,128] (%0) at models/mlp.py:98"
    assert lines[4] == (
        "  P('data', None): dim 0 split 4 ways over data, dim 1 whole; "
        "replicated 2 times over model"
    )
    assert lines[5] == (
        "  dim 0 on data: from the annotation {data} on dim 0 of the constraint in jvp(block0) at "
        "models/mlp.py:98"
    )
    # JAX 0.7 moves it there without a step.
    assert re.match(
        r"    (step \d+, )?back through jvp\(block0\)/sharding_constraint at models/mlp.py:98: ",
        lines[6],
    )


def test_the_document_has_all_of_it(sdyscope):
    document = sdyscope("explain", "mlp", "%2", "--json").document("explain")
    (value,) = document["values"]
    assert (value["value"]["kind"], value["value"]["ssa"]) == ("stablehlo.dot_general", "%2")
    assert [(why["dimension"], why["axis"]) for why in value["chains"]] == [
        (0, "data"),
        (1, "model"),
    ]
    for why in value["chains"]:
        assert why["beginning"]["kind"] == "constraint"
        assert why["beginning"]["source"]["line"] == 100
        assert why["moves"][-1]["through"]["name"] == "jvp(block0)/sharding_constraint"


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("params['w1']", ["params['w1']"]),
        ("result[0]['w1']", ["result[0]['w1']"]),
        ("jvp(block0)/tanh", ["jvp(block0)/tanh"]),
        ("mlp.py:108", None),
    ],
)
def test_values_go_by_many_names(sdyscope, word, names):
    document = sdyscope("explain", "mlp", word, "--json").document("explain")
    if names is None:
        assert {value["value"]["source"]["line"] for value in document["values"]} == {108}
    else:
        assert [value["value"]["name"] for value in document["values"]] == names
    assert all(why["beginning"] for value in document["values"] for why in value["chains"])


def test_what_stopped_an_axis(sdyscope):
    done = sdyscope("explain", "fsdp-transformer", "embed/gather", "--set", "constrained=false")
    assert "dim 0 not on fsdp: " in done.out
    assert "already has fsdp, from the annotation {fsdp} on dim 1 of the argument" in done.out
    # The chain of what is in the way is the one above, and is not said twice.
    assert done.out.count("dim 2 on fsdp: from") == 1


def test_the_rest_is_counted(sdyscope):
    done = sdyscope("explain", "mlp", "optimizer")
    rest = re.search(r"and (\d+) more values that optimizer names: --all explains them", done.out)
    every = sdyscope("explain", "mlp", "optimizer", "--all")
    document = sdyscope("explain", "mlp", "optimizer", "--json").document("explain")
    assert int(rest[1]) + 8 == len(document["values"])
    assert "--all" not in every.out


@pytest.mark.thorough
def test_long_chains_are_cut_in_the_middle(sdyscope):
    words = ("explain", "fsdp-transformer", "layer7/mlp/add", "--set", "layers=8")
    assert re.search(r"^    \d+ more moves: --all lists them$", sdyscope(*words).out, re.MULTILINE)
    assert "more moves" not in sdyscope(*words, "--all").out


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_it_keeps_to_the_width(sdyscope, columns):
    done = sdyscope("explain", "mlp", "mlp.py:99", columns=columns)
    assert max(map(len, done.out.splitlines())) <= columns


def test_what_if(sdyscope):
    words = ("explain", "mlp", "params['w1']", "--set-sharding", "params['w1']=P('data', 'model')")
    done = sdyscope(*words)
    assert "with params['w1'] as P('data', 'model')" in done.out
    assert "    before: P(None, 'model'): " in done.out
    assert "from the annotation {data} on dim 0 of the argument params['w1']" in done.out
    same = sdyscope("explain", "mlp", "batch['x']", *words[3:])
    assert "    as before" in same.out


def test_no_such_value(sdyscope):
    sdyscope("explain", "mlp", "params['w9']").said(
        "No value is called params['w9'].", "Did you mean params['w"
    )
    sdyscope("explain", "mlp", "mlp.py:1").said("No value")


@pytest.mark.compiles
def test_gspmd_does_not_say_why(sdyscope):
    done = sdyscope("explain", "mlp", "block0/tanh", "--partitioner", "gspmd")
    assert done.status == 0
    assert "P('data', None)" in done.out
    assert "GSPMD does not say where the shardings that it propagates come from." in done.out
    done = sdyscope("explain", "mlp", "batch['x']", "--partitioner", "gspmd")
    assert "The program itself asks for this sharding, on the argument." in done.out
    done = sdyscope("explain", "mlp", "block0/tanh", "--partitioner", "both")
    assert "  GSPMD: P('data', None)" in done.out
    assert "dim 0 on data: from" in done.out


@pytest.mark.thorough
def test_what_keeps_an_axis_on_a_value_and_the_fewest_edits_without_it(sdyscope):
    done = sdyscope("explain", "mlp", "dot_general", "--remove-axis", "model", columns=80)
    assert (done.status, done.err) == (0, "")
    text = " ".join(done.out.split())
    assert "is not necessary: the axis stays without it" in text
    assert "to take model off it, the fewest removals (propagated again):" in text
    assert all(len(line) <= 80 for line in done.out.splitlines())
    words = ("explain", "mlp", "dot_general", "--want", "P(None, 'model')", "--json")
    values = sdyscope(*words).document("explain")["values"]
    assert values[0]["counterfactual"]["wanted"] == "P(None, 'model')"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--remove-axis", "modle"], ["no axis 'modle'"]),
        (["--want", "P('data'"], ["P('data'"]),
        (["--want", "P('data')", "--remove-axis", "data"], ["ask one of them"]),
        (["--want", "P('data', 'model', None)"], ["can't be sharded as"]),
    ],
)
def test_questions_that_can_not_be_answered_are_one_sentence(sdyscope, words, said):
    sdyscope("explain", "mlp", "dot_general", *words).said(*said)
