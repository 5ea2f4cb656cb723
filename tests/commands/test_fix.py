"""`sdyscope fix`."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from own_process import in_own_process
from page_files import fenced

pytestmark = pytest.mark.compiles

QUICK = ("--predictions", "40", "--compiles", "1", "--edits", "1")


@pytest.fixture
def logits(tmp_path, monkeypatch):
    """The file of docs/fix.md, in a git work tree."""
    file = tmp_path / "logits.py"
    file.write_text(fenced("fix", "python", "# logits.py\n"))
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a program"]):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("logits", None)
    yield file
    sys.modules.pop("logits", None)


@pytest.mark.thorough
def test_the_patch_is_written_into_a_clean_work_tree_only(sdyscope, logits):
    before = logits.read_text()
    logits.write_text(before + "\n# changed\n")
    words = ("fix", "logits.py:program", "logits.py:19", *QUICK)
    sdyscope(*words, "--apply").said("--apply", "uncommitted changes", "logits.py")
    assert logits.read_text() == before + "\n# changed\n"
    logits.write_text(before)
    found = sdyscope(*words, "--apply", "--json", "--sarif", "fix.sarif")
    assert (found.status, found.err) == (1, "")
    document = found.document("fix")
    best = document["remedies"][0]
    assert (best["proven"], best["verdict"]) == (True, "pays")
    assert document["before"]["sent"] > 4 * best["after"]["sent"]
    assert "with_sharding_constraint" not in logits.read_text()
    subprocess.run(["git", "checkout", "-q", "."], cwd=logits.parent, check=True)
    subprocess.run(
        ["git", "apply", "--check", "-"],
        input=best["patch"],
        text=True,
        cwd=logits.parent,
        check=True,
    )
    (run,) = json.loads((logits.parent / "fix.sarif").read_text())["runs"]
    (change,) = run["results"][0]["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "logits.py"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mlp", "no-such-thing"], ["'no-such-thing' is no rule", "train.py:42"]),
        (["mlp", "ragged-all-to-all"], ["has no ragged-all-to-all"]),
        (["mlp", "--on", "toaster"], ["names no hardware"]),
        (["mlp", "--sarif", "no/folder/f"], ["no such folder"]),
    ],
)
def test_what_can_not_be_is_one_sentence(sdyscope, words, said):
    sdyscope("fix", *words).said(*said)


SCRIPT = """
import sys
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

@jax.jit
def step(w, x):
    y = x @ w["up"]
    y = jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P(None, "model")))
    return jnp.tanh(y) @ w["down"]

def put(shape, *spec):
    return jax.device_put(jnp.ones(shape), NamedSharding(mesh, P(*spec)))

if __name__ == "__main__":
    w = {"up": put((64, 256), None, "model"), "down": put((256, 64), "model", None)}
    for _ in range(int(sys.argv[1])):
        print(step(w, put((512, 64), "data")).sum())
    step(w, put((512, 64), "model"))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, others_frozen):
    root = tmp_path_factory.mktemp("rerun")
    (root / "train.py").write_text(SCRIPT)
    words = ["record", "-o", root / "run", "--", root / "train.py", "2"]
    in_own_process(*words, cwd=root).check_returncode()
    return root


def test_a_recorded_script_is_run_again_for_each_edit(sdyscope, recorded, monkeypatch):
    monkeypatch.chdir(recorded)
    ran = sdyscope("fix", "run:step.1", "--rerun", *QUICK, "--json")
    assert ran.err == ""
    document = ran.document("fix")
    best = document["remedies"][0]
    assert best["proven"]
    assert "-    y = jax.lax.with_sharding_constraint(" in best["patch"]
    assert document["before"]["sent"] > 2 * best["after"]["sent"]
    (note,) = [note for note in document["notes"] if "was run" in note]
    assert re.fullmatch(
        r"The script \(`\S+train.py 2`\) was run \d+ times, up to where JAX lowers step\.1\.", note
    )


def test_what_a_recorded_script_asked_for_is_known_once_it_is_run_again(
    sdyscope, recorded, monkeypatch
):
    monkeypatch.chdir(recorded)
    assert sdyscope("check", "run:step.1", "--rerun").out.endswith(
        "comparisons under Shardy and GSPMD, all agree\n"
    )
    (program,) = sdyscope("show", "run:step.1", "--rerun", "--json").document("show")["programs"]
    rows = [row for row in program["tensors"] if row["kind"] == "argument"]
    requested = {row["name"]: row["requested"] for row in rows}
    assert all(requested.values())
    assert len(requested) == 3
    # Of two programs with the same name and types, the one in the same place.
    for name, axis in (("run:step.1", "data"), ("run:step.2", "model")):
        (program,) = sdyscope("show", name, "--rerun", "--json").document("show")["programs"]
        (x,) = [row for row in program["tensors"] if row["name"] == "x"]
        assert x["requested"]["text"].startswith(f"P('{axis}'")


def test_a_recorded_script_is_run_and_linted_once_it_is_run_again(sdyscope, recorded, monkeypatch):
    monkeypatch.chdir(recorded)
    ran = sdyscope("run", "run:step.1", "--rerun", "--partitioner", "shardy", "--steps", "1")
    assert (ran.status, ran.err) == (0, "")
    assert re.search(r"verdict +agrees", ran.out)
    assert re.search(r"compared with +its jaxpr without shardings", ran.out)
    linted = sdyscope("lint", "run:step.1", "--rerun", "--no-compile")
    assert linted.out.startswith("step.1: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fix", "run:step.1"], ["step.1 was recorded", "--rerun runs `", "train.py 2` again"]),
        (
            ["report", "run:step.1", "--fix", "-o", "x.html"],
            ["step.1 was recorded", "--rerun runs `"],
        ),
        (["run", "run:step.1"], ["step.1 was recorded", "--rerun runs `", "lowers it.\n"]),
        (["fix", "train.py:step", "--rerun"], ["train.py:step is none", "Leave --rerun out"]),
        (["search", "mlp", "--rerun"], ["mlp is none", "Leave --rerun out"]),
        (["run", "run:step.1", "--rerun", "--mesh", "data=8"], ["--mesh can't change what"]),
        (["run", "run:step.1", "--rerun", "--meshes", "data=8"], ["Leave --meshes out"]),
    ],
)
def test_a_recorded_program_has_a_script_that_can_be_run_again(
    sdyscope, recorded, monkeypatch, words, said
):
    monkeypatch.chdir(recorded)
    sdyscope(*words).said(*said)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arguments": ["python", "-c", "import jax"]}, "of code that was typed"),
        ({"arguments": ["python", "-m", "ipykernel_launcher", "-f", "k.json"]}, "that was typed"),
        ({"arguments": ["python", "train.py", "--token", "***"]}, "is recorded as ***"),
        ({"arguments": ["python", "gone.py"]}, "The script is not there any more."),
    ],
)
def test_a_script_that_can_not_be_run_again(
    sdyscope, recorded, monkeypatch, tmp_path, changed, said
):
    monkeypatch.chdir(recorded)
    shutil.copytree("run", tmp_path / "run")
    (file,) = [
        path
        for path in (tmp_path / "run" / "processes").glob("*.jsonl")
        if not path.name.startswith("run-")
    ]
    first, *others = file.read_text().splitlines(keepends=True)
    file.write_text(json.dumps(json.loads(first) | changed) + "\n" + "".join(others))
    sdyscope("fix", f"{tmp_path / 'run'}:step.1", "--rerun").said(said)
