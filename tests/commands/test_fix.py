"""`sdyscope fix`."""

import json
import subprocess
import sys

import pytest
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
