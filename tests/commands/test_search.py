"""`sdyscope search`."""

import re

import pytest

QUICK = ("--budget", "20", "--checks", "0", "--compiles", "0")


def test_the_table_and_the_document(sdyscope):
    done = sdyscope("search", "mlp", *QUICK, "--all")
    assert (done.status, done.err) == (0, "")
    assert "6 arguments and 5 constraints in 5 decisions over 2 axes (data, model): " in done.out
    assert "predicted" in done.out
    assert "params['w2']" in done.out
    assert "not compiled" in done.out
    assert "constraint at models/mlp.py:" in done.out
    document = sdyscope("search", "mlp", *QUICK, "--json").document("search")
    space = document["space"]
    assert (document["outcome"], space["size"], space["axes"]) == (
        "not compiled",
        88_704,
        ["data", "model"],
    )
    assert 20 <= document["tried"] <= 21
    start, best = document["start"], document["chosen"]
    assert start["changes"] == []
    assert start["prediction"]["sent"] == sum(
        sent["sent"] for sent in start["prediction"]["traffic"]
    )
    assert best["predicted_cost"] < start["predicted_cost"]
    named = {decision["name"] for decision in space["decisions"]}
    assert {change["name"] for change in best["changes"]} <= named
    held = [candidate["prediction"]["held"] for candidate in document["front"]]
    assert held == sorted(held, reverse=True)


def test_what_the_changes_say_is_what_what_if_takes(sdyscope):
    """The program with the changes is predicted to send what the search said."""
    document = sdyscope("search", "mlp", *QUICK, "--json").document("search")
    changed = {change["name"]: change["after"] for change in document["chosen"]["changes"]}
    words = []
    for decision in document["space"]["decisions"]:
        if decision["name"] in changed:
            for member in decision["members"]:
                words += ["--set-sharding", f"{member['name']}={changed[decision['name']]}"]
    done = sdyscope("propagate", "mlp", *words)
    assert (done.status, done.err) == (0, "")


def test_limits_bandwidths_and_seeds(sdyscope):
    words = ("--max-memory", "200KiB", "--bandwidth", "data=90GB/s", "--seed", "4")
    done = sdyscope("search", "mlp", *QUICK, *words, columns=80)
    assert (done.status, done.err) == (0, "")
    assert "at most 200.0 KiB" in done.out
    assert "data 90 GB/s" in done.out
    assert all(len(line) <= 80 for line in done.out.splitlines())
    document = sdyscope("search", "mlp", *QUICK, *words, "--json").document("search")
    assert document["chosen"]["prediction"]["held"] <= document["limit"] == 200 * 1024
    assert document["chosen"]["seconds"] > 0


def test_nothing_better_is_said(sdyscope):
    done = sdyscope(
        "search", "mlp", *QUICK, "--argument", "params['w2']", "--axes", "model", "--budget", "9"
    )
    assert done.status == 0
    assert "nothing better than the program's own shardings was found" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--argument", "parms*"], ["matches 'parms*'", "Did you mean"]),
        (["--axes", "fsdp"], ["no axis 'fsdp'", "data, model"]),
        (["--axes", "data,data"], ["'data,data' is not a list"]),
        (["--max-memory", "16"], ["'16' is not a size", "16GiB"]),
        (["--bandwidth", "90GB/s"], ["AXIS=RATE"]),
        (["--bandwidth", "data=90"], ["not a bandwidth"]),
        (["--bandwidth", "fsdp=9GB/s"], ["no axis 'fsdp'"]),
        (["--mesh", "data=1,model=1"], ["no axis to place"]),
        (["--on", "toaster"], ["names no hardware"]),
    ],
)
def test_what_can_not_be_is_one_sentence(sdyscope, words, said):
    sdyscope("search", "mlp", *QUICK, *words).said(*said)


def test_a_file_is_searched_too(sdyscope, mlp_files):
    done = sdyscope("search", mlp_files / "shardy.mlir", *QUICK)
    assert (done.status, done.err) == (0, "")
    assert "params['w1']" in done.out
    sdyscope("search", mlp_files / "gspmd.mlir", *QUICK).said("GSPMD's shardings")


@pytest.mark.compiles
def test_the_best_is_partitioned_and_compiled(sdyscope):
    done = sdyscope("search", "mlp", "--budget", "30", "--checks", "4", "--compiles", "1")
    assert (done.status, done.err) == (0, "")
    said = ("by a compile for cpu:8", "nothing better", "is better than the program as it is")
    assert any(words in done.out for words in said)
    counts = re.search(
        r"^(\d+) predicted \(.* per minute\): (\d+) first, then (\d+) near the best of the 4 that",
        done.out,
        re.MULTILINE,
    )
    tried, first, near = map(int, counts.groups())
    assert first <= 30 < tried == first + near
