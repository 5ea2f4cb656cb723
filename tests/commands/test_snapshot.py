"""`sdyscope snapshot`."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sdyscope.commands.snapshot import _taken
from sdyscope.errors import CompilerError
from sdyscope.inspection import Inspection, of_modules
from sdyscope.process import output
from sdyscope.snapshots import compare, read_snapshots, update
from sdyscope.targets import resolve

GOLDEN = Path(__file__).parent.parent / "snapshots"
V1, V2 = GOLDEN / "version_1.snap", GOLDEN / "version_2.snap"

PROGRAM = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}

def program(mesh):
    def on(*spec):
        return NamedSharding(mesh, P(*spec))

    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(*spec))

    def step(params, x):
        #MOVED
        for n, w in enumerate(params["layers"]):
            with jax.named_scope(f"layer{n}"):
                x = jnp.tanh(x @ w)
                x = jax.lax.with_sharding_constraint(x, on("data", "model"))
        #ADDED
        return x

    weights = [array((8, 8), None, "model") for _ in range(3)]
    arguments = ({"layers": weights}, array((16, 8), "data"))
    return Program("step", jax.jit(step), arguments)
"""


@pytest.fixture
def target(tmp_path):
    """Writes a program with some text replaced, and says what to call it."""

    def make(*replaced):
        text = PROGRAM
        for old, new in zip(replaced[::2], replaced[1::2], strict=True):
            assert old in text
            text = text.replace(old, new)
        number = len(list(tmp_path.glob("snapped*.py")))
        path = tmp_path / f"snapped{number}.py"
        path.write_text(text)
        return f"{path}:program"

    return make


@pytest.fixture
def golden(sdyscope, target, tmp_path):
    path = tmp_path / "golden.snap"
    assert sdyscope("snapshot", target(), "-o", path).status == 0
    return path


def test_layers_are_one_block_without_lines_or_paths(golden, tmp_path):
    text = golden.read_text()
    assert "argument  params['layers'][{0..2}]  f32[8,8]" in text or (
        "argument  params['layers'][0]  f32[8,8]\n  requested P(None, 'model')\n" in text
    )
    assert "constraint  layer{0..2}  f32[16,8]\n  requested P('data', 'model')\n  lowered =" in text
    assert str(tmp_path) not in text
    assert ".py" not in text


@pytest.mark.parametrize(
    "replaced",
    [
        ("#MOVED", "\n\n        # Lines below are other lines now.\n"),
        ("#MOVED", "unrelated = jnp.sin(jnp.sum(x))"),
        ("#ADDED", "unrelated = jnp.sin(jnp.sum(x))"),
        ("n, w in", "number, w in", "{n}", "{number}"),
        ('array((16, 8), "data")', 'array((16, 8), "data", None)'),
    ],
    ids=[
        "moved lines",
        "other SSA names",
        "moved code",
        "renamed variables",
        "another way to write it",
    ],
)
def test_what_changes_no_placement_passes(sdyscope, target, golden, replaced):
    done = sdyscope("snapshot", target(*replaced), "-o", golden, "--check")
    assert (done.status, done.err) == (0, ""), done.out
    assert "all as before" in done.out


def test_what_was_written_with_another_jax_still_holds():
    before = read_snapshots(V1.read_text())[0]
    comparison = compare(before, Inspection(resolve("mlp"), ("shardy",)).snapshot())
    assert comparison.is_same, comparison


@pytest.mark.compiles
def test_so_does_what_was_compiled_with_another_jax():
    (before,) = read_snapshots(V2.read_text())
    now = Inspection(resolve("mlp"), ("shardy",)).snapshot(before.stages, before.hardware)
    comparison = compare(before, now)
    assert comparison.is_same, comparison
    assert not comparison.not_compared


def test_a_constraint_that_changed_is_named_and_nothing_is_written(sdyscope, target, golden):
    text = golden.read_bytes()
    other = target('on("data", "model"))', 'on("data"))')
    done = sdyscope("snapshot", other, "-o", golden, "--check", columns=80)
    assert done.status == 1
    assert "  constraint layer{0..2} f32[16,8]\n    - requested P('data', 'model')\n" in done.out
    assert "    + requested P('data', None)\n" in done.out
    assert golden.read_bytes() == text
    document = sdyscope("snapshot", other, "-o", golden, "--check", "--json").document("snapshot")
    assert not document["same"]
    assert sdyscope("snapshot", other, "-o", golden, "--update").status == 0
    assert golden.read_bytes() != text
    assert sdyscope("snapshot", other, "-o", golden, "--check").status == 0
    assert sdyscope("snapshot", target(), "-o", golden, "--update").status == 0
    assert golden.read_bytes() == text


def test_missing_and_unused_are_reported(sdyscope, target, golden):
    done = sdyscope("snapshot", "mlp", "-o", golden, "--check")
    assert done.status == 1
    assert "mlp: missing from" in done.out
    assert "step: unused: " in done.out
    done = sdyscope("snapshot", "mlp", "-o", golden, "--update")
    assert done.status == 0
    assert [snapshot.name for snapshot in read_snapshots(golden.read_text())] == ["mlp", "step"]
    assert sdyscope("snapshot", "mlp", target(), "-o", golden, "--check").status == 0
    assert sdyscope("snapshot", "mlp", "-o", golden, "--update", "--remove-unused").status == 0
    assert [snapshot.name for snapshot in read_snapshots(golden.read_text())] == ["mlp"]


def test_what_another_process_writes_meanwhile_is_kept(sdyscope, golden, monkeypatch):
    """It waits for the file while the other writes, and reads it again."""
    locked = output.locked
    (before,) = read_snapshots(golden.read_text())

    @contextlib.contextmanager
    def waited(path):
        golden.write_text(update(golden.read_text(), [replace(before, name="another")]))
        with locked(path):
            yield

    monkeypatch.setattr(output, "locked", waited)
    assert sdyscope("snapshot", "mlp", "-o", golden, "--update").status == 0
    names = [snapshot.name for snapshot in read_snapshots(golden.read_text())]
    assert names == ["another", "mlp", "step"]


def test_a_file_that_is_not_there_can_not_be_compared_with(sdyscope, tmp_path):
    done = sdyscope("snapshot", "mlp", "-o", tmp_path / "gone.snap", "--check")
    done.said("gone.snap: There is no such file to compare with.\n--update writes it.")
    assert not (tmp_path / "gone.snap").exists()


def test_a_module_in_a_file_does_not_say_what_was_requested(sdyscope, mlp_files):
    done = sdyscope("snapshot", mlp_files / "gspmd.mlir", "--stages", "lowered")
    assert done.status == 0
    assert "  partitioners gspmd\n  stages lowered\n" in done.out
    sdyscope("snapshot", mlp_files / "gspmd.mlir", "--stages", "requested").said(
        "does not say what was requested", "Leave requested out"
    )


def test_bad_input(sdyscope, tmp_path):
    other = tmp_path / "mine.py"
    other.write_text("x = 1\n")
    sdyscope("snapshot", "mlp", "-o", other).said("is not a snapshot", "Name another one")
    assert other.read_text() == "x = 1\n"
    sdyscope("snapshot", "mlp", "--check").said("--check needs a snapshot file")
    sdyscope("snapshot", "mlp", "-o", other, "--check", "--update").said("Give one of the two")
    sdyscope("snapshot", "mlp", "-o", other, "--check").said("mine.py:1:1: this is not a snapshot")
    sdyscope("snapshot", "mlp", "mlp").said("Two of the programs are called mlp")
    sdyscope("snapshot", "mlp", "--remove-unused").said("goes with --update")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("snapshot 1", "snapshot 10", "golden.snap:1:19: this snapshot is of version 10"),
        (
            "\nargument",
            "\n<<<<<<< ours\nargument",
            "golden.snap:8:1: a merge conflict was left",
        ),
        (
            "  requested P('data', None)",
            "  asked P('data', None)",
            "expected a stage of this snapshot: requested, lowered, propagated",
        ),
        ("  lowered =", "lowered =", "expected an empty line before the next block"),
    ],
    ids=["future", "conflict", "by hand", "indent lost"],
)
@pytest.mark.parametrize("option", ["--check", "--update"])
def test_a_damaged_file_is_told_in_a_sentence_and_stays(
    sdyscope, target, golden, old, new, words, option
):
    text = golden.read_text()
    assert old in text
    golden.write_text(text.replace(old, new, 1))
    damaged = golden.read_bytes()
    changed = target('array((16, 8), "data")', 'array((16, 8), "model")')
    sdyscope("snapshot", changed, "-o", golden, option).said(words, "^")
    sdyscope("diff", golden, golden).said(words)
    assert golden.read_bytes() == damaged


@pytest.fixture
def others(sdyscope, target, golden, tmp_path):
    """The golden file, one with another constraint, and one with another program."""
    changed, two = tmp_path / "changed.snap", tmp_path / "two.snap"
    other = target('on("data", "model"))', 'on("data"))')
    assert sdyscope("snapshot", other, "-o", changed).status == 0
    two.write_text(
        golden.read_text() + "\nprogram  late\n  partitioners shardy\n  stages lowered\n"
    )
    return golden, changed, two


def test_two_files_are_compared_without_their_programs(sdyscope, others):
    golden, changed, two = others
    done = sdyscope("diff", golden, golden)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("step: ")
    assert "all the same in both" in done.out
    done = sdyscope("diff", golden, changed, columns=80)
    assert done.status == 1
    assert "  constraint layer{0..2} f32[16,8]\n    - requested P('data', 'model')\n" in done.out
    assert "    + requested P('data', None)\n" in done.out
    document = sdyscope("diff", golden, changed, "--json").document("diff")
    assert (document["at"], document["same"]) == ("snapshot", False)
    assert "constraint" in {change["kind"] for change in document["snapshots"][0]["changes"]}
    done = sdyscope("diff", golden, two)
    assert done.status == 1
    assert "only in the second: late" in done.out


def test_two_files_of_other_stages(sdyscope, target, golden, tmp_path):
    less, other = tmp_path / "less.snap", tmp_path / "other.snap"
    sdyscope("snapshot", target(), "-o", less, "--stages", "requested")
    sdyscope("snapshot", target(), "-o", other, "--stages", "propagated")
    for pair in ((golden, less), (less, golden)):
        done = sdyscope("diff", *pair)
        assert done.status == 0
        assert "not compared: lowered and propagated, which one side does not have" in done.out
    sdyscope("diff", less, other).said("no stage in common: requested and propagated")


def test_a_snapshot_and_something_else(sdyscope, golden):
    sdyscope("diff", golden).said("is one snapshot", "sdyscope snapshot TARGET --check")
    sdyscope("diff", "mlp", golden).said("and mlp is not", "sdyscope snapshot mlp --check -o")
    sdyscope("diff", golden, golden, "--at", "propagated").said("Leave --at out")


@pytest.mark.compiles
def test_collectives_of_the_compiled_program(sdyscope, target, golden):
    done = sdyscope("snapshot", target(), "--stages", "compiled")
    assert done.status == 0
    assert "  hardware cpu:8\n" in done.out
    assert "collective  all-gather over model=2  layer{1..2}/dot_general  f32[" in done.out
    # What was never recorded is no agreement.
    done = sdyscope("snapshot", target(), "-o", golden, "--check", "--stages", "compiled")
    assert done.status == 1


def test_another_mesh_is_said_first(sdyscope, tmp_path):
    golden = tmp_path / "mlp.snap"
    sdyscope("snapshot", "mlp", "-o", golden)
    done = sdyscope("snapshot", "mlp", "--mesh", "data=2,model=4", "--check", "-o", golden)
    assert done.status == 1
    assert done.out.startswith("mlp: mesh changed, 36 are as before\n")
    # Then what a device has of each tensor; those that are alike are named together.
    assert (
        "    P(None, 'model') of f32[128,256]: [128,128] -> [128,64], 64.0 KiB -> 32.0 KiB\n"
        in (done.out)
    )
    as_json = sdyscope(
        "snapshot", "mlp", "--mesh", "data=2,model=4", "--check", "-o", golden, "--json"
    )
    (compared,) = json.loads(as_json.out)["compared"]
    changes = compared["blocks"]["changes"]
    assert [change["same_spec"] for change in changes] == [True] * len(changes)
    assert {"kind": "argument", "name": "params['w1']", "count": 1} in changes[0]["tensors"]


def test_a_recorded_program_without_one_partitioner_is_written_and_a_file_with_both_is_held():
    lowered = Inspection(resolve("mlp"), ["shardy", "gspmd"])
    refused = CompilerError("exported with Shardy alone")
    program = of_modules({"shardy": lowered.lowered["shardy"]}, {"gspmd": refused})
    taken = _taken(program, None, None, None, None, False)
    assert taken.partitioners == ("shardy",)
    assert taken.account.refused == {"gspmd": refused.message}
    again = _taken(program, taken, None, None, None, False)
    assert compare(taken, again).is_same
    for before, partitioner in ((lowered.snapshot(), None), (taken, "gspmd")):
        with pytest.raises(CompilerError, match="exported with Shardy alone"):
            _taken(program, before, partitioner, None, None, True)
