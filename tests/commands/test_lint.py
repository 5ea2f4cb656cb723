"""`sdyscope lint`."""

from pathlib import Path

import pytest

from sdyscope.analysis.lint import RULES

ROOT = Path(__file__).parents[2]
INDIVISIBLE = f"{ROOT / 'docs' / 'indivisible.py'}:program"


def test_nothing_found(sdyscope):
    done = sdyscope("lint", "mlp", "--no-compile", columns=80)
    assert (done.status, done.err) == (0, "")
    assert f"mlp: {len(RULES)} rules under shardy, nothing found" in done.out
    assert "donation-unused, bytes-differ, gathered-in-loop: It needs the compiled" in done.out


def test_findings_and_exit_status(sdyscope):
    done = sdyscope("lint", INDIVISIBLE, "--no-compile", "--select", "not-*", columns=80)
    assert done.status == 1
    assert "1 warning" in done.out
    assert "constraint jit(step) at docs/indivisible.py:20 [not-divisible]" in done.out
    done = sdyscope("lint", INDIVISIBLE, "--no-compile", "--ignore", "not-*,constraint-*")
    assert done.status == 0


def test_json(sdyscope):
    done = sdyscope("lint", INDIVISIBLE, "--no-compile", "--json", "--partitioner", "both")
    document = done.document("lint")
    assert done.status == 1
    assert document["partitioners"] == ["shardy", "gspmd"]
    (finding,) = [one for one in document["findings"] if one["rule"] == "not-divisible"]
    assert finding["source"]["line"] == 20
    assert finding["partitioner"] is None
    counts = {one["name"]: one["findings"] for one in document["rules"]}
    assert counts["not-divisible"] == 1
    missing = {(one["rule"], one["partitioner"]) for one in document["not_run"] if one["applies"]}
    assert ("full-rematerialization", "gspmd") in missing
    assert {rule for rule, under in missing if under == "shardy"} == {
        name for name, one in RULES.items() if one.needs == "compiled"
    }


def test_rules_are_listed_and_explained(sdyscope):
    done = sdyscope("lint", "--rules", columns=80)
    assert done.status == 0
    assert all(name in done.out for name in RULES)
    done = sdyscope("lint", "--explain", "gathered-in-loop", columns=80)
    assert done.status == 0
    assert done.out.startswith("gathered-in-loop\n")
    assert "FSDP is not found" in done.out
    document = sdyscope("lint", "--rules", "--select", "not-*", "--json").document("lint")
    assert document["name"] is None
    assert [one["name"] for one in document["rules"]] == [
        name for name in RULES if name.startswith("not-")
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mlp", "--select", "donation"], "There is no rule 'donation'"),
        (["mlp", "--ignore", "x"], "There is no rule 'x'"),
        (["--explain", "donation-unusd"], "Did you mean donation-unused"),
        ([], "There is no TARGET"),
        (["mlp", "--rules"], "Leave TARGET out"),
        (["mlp", "--no-compile", "--on", "cpu:8"], "compiles for no hardware"),
        (["nothing_here"], "nothing_here"),
    ],
)
def test_bad_usage(sdyscope, words, said):
    sdyscope("lint", *words).said(said)
