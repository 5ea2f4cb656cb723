"""`sdyscope bisect` on repositories of the test's own."""

import json
import signal
import subprocess
import time

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from git_commands import git, repository, text
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from own_process import command_line, in_own_process
from xla_flags import QUICK

from sdyscope import inspect
from sdyscope.commands import document_type
from sdyscope.commands.upgrade_carry import _key
from sdyscope.terminal.document import schema


@pytest.fixture
def bisect(monkeypatch):
    def run(root, *words):
        done = in_own_process("bisect", *words, cwd=root, XLA_FLAGS=QUICK)
        assert "Traceback" not in done.stderr
        assert git(root, "worktree", "list").count("\n") == 0
        return done

    return run


def document(done):
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema(document_type("bisect")))
    return found


@pytest.mark.thorough
@pytest.mark.compiles
def test_a_planted_commit_of_sixty_is_found_in_seven_compiles(tmp_path, bisect):
    """Each commit has another module, so that none is known from another one."""
    texts = [text(n, '"data", "model"' if n < 37 else 'None, "model"') for n in range(60)]
    root = repository(tmp_path / "repo", texts)
    (root / "own.txt").write_text("not committed")
    before = git(root, "status", "--porcelain"), git(root, "rev-parse", "HEAD")
    done = bisect(
        root, "--good", "HEAD~59", "step.py:program", "--what", "comms.bytes", "--json"
    )  # fmt: skip
    found = document(done)
    assert done.returncode == 0, done.stderr
    assert found["first"]["label"].endswith("(Commit 37)")
    assert found["before"]["label"].endswith("(Commit 36)")
    assert (found["subject"], found["author"], found["between"]) == ("Commit 37", "Ada", 59)
    assert found["compiles"] <= 7
    assert found["good"]["reading"]["number"] == 0
    assert found["first"]["reading"]["number"] > 0
    # The line and the tensor.
    line = found["lines"][0]
    assert line["begins"]
    assert (line["source"]["file"], line["source"]["line"]) == ("step.py", 19)
    assert 'P(None, "model")' in line["text"]
    assert any("constraint" in name for name in line["tensors"])
    (compared,) = found["comparison"]
    assert compared["compiled"]["collectives"][0]["key"]["kind"] == "all-gather"
    assert (git(root, "status", "--porcelain"), git(root, "rev-parse", "HEAD")) == before


@pytest.mark.thorough
@pytest.mark.compiles
def test_a_tensor_is_followed_without_a_compile_until_it_is_found(tmp_path, bisect):
    """One compile for each side then."""
    texts = [text(n, weight='"model"' if n < 1 else '"data"') for n in range(4)]
    root = repository(tmp_path / "repo", texts)
    found = document(bisect(root, "--good", "HEAD~3", "step.py:program", "--what", "w", "--json"))
    assert found["first"]["label"].endswith("(Commit 1)")
    assert found["compiles"] == 2
    shardings = [found[side]["reading"]["shardings"][0]["short"] for side in ("before", "first")]
    assert shardings == ["P(None, 'model')", "P(None, 'data')"]


@pytest.mark.compiles
def test_the_commit_and_the_line_of_a_collective_are_found_past_a_broken_commit(tmp_path, bisect):
    texts = [text(n, '"data", "model"' if n < 1 else 'None, "model"') for n in range(4)]
    texts[2] = "raise RuntimeError('half done')\n"
    root = repository(tmp_path / "repo", texts)
    found = document(bisect(root, "--good", "HEAD~3", "step.py:program", "--json"))
    assert found["first"]["label"].endswith("(Commit 1)")
    assert found["compiles"] <= 3
    (skipped,) = [each for each in found["evaluations"] if each["skipped"]]
    assert skipped["label"].endswith("(Commit 2)")
    assert "half done" in skipped["skipped"]
    assert (found["lines"][0]["source"]["file"], found["lines"][0]["begins"]) == ("step.py", True)


@pytest.mark.compiles
def test_ends_that_lower_to_one_module_are_told_without_a_search(tmp_path, bisect):
    root = repository(tmp_path / "repo", [text(1) + f"# {n}\n" for n in range(5)])
    done = bisect(root, "--good", "HEAD~4", "step.py:program", "--what", "collectives")
    assert done.returncode == 1
    assert done.stdout.startswith("collectives: unchanged from "), done.stdout
    assert "judged 0 of 4" in done.stdout


@pytest.mark.thorough
def test_the_package_of_another_checkout_is_not_taken_for_the_commit_s(tmp_path, bisect):
    """As where the repository is installed as editable: modules are its own tree's."""
    root = repository(tmp_path / "repo", [text(1), text(2, '"data"')])
    (root / "own").mkdir()
    (root / "own" / "own_step.py").write_text(text(1))
    (root / "own" / "conftest.pth").write_text("")
    code = f"import sys; sys.path.insert(0, {str(root / 'own')!r})"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(code)
    words = ("bisect", "--good", "HEAD~1", "own_step:program")
    done = in_own_process(*words, cwd=root, PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode == 2
    assert "was imported from" in done.stderr
    assert "not from the commit's own files" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["step.py:program"], "--good names a commit"),
        (["--good", "HEAD~1"], "Nothing is named to look at"),
        (["--good", "nowhere", "step.py:program"], "There is no commit 'nowhere'"),
        (["--good", "HEAD", "--bad", "HEAD~1", "step.py:program"], "not an ancestor"),
        (["--good", "HEAD", "step.py:program"], "name the same commit"),
        (["--good", "HEAD~1", "step.py:program", "--what", "comms.byte"], "no figure"),
        (["--good", "HEAD~1", "step.py:program", "--", "train.py"], "Give one of them"),
        (["--good", "HEAD~1", "--"], "no command after --"),
    ],
)
def test_wrong_words_are_one_sentence(tmp_path, sdyscope, monkeypatch, words, message):
    root = repository(tmp_path / "repo", ["one", "two"])
    monkeypatch.chdir(root)
    sdyscope("bisect", *words).said(message)


def test_a_target_that_the_good_commit_does_not_have_is_one_sentence(tmp_path, bisect):
    root = repository(tmp_path / "repo", ["one = 1", "two = 2"])
    done = bisect(root, "--good", "HEAD~1", "step.py:program")
    assert (done.returncode, done.stdout) == (2, "")
    assert "step has no 'program'" in done.stderr.splitlines()[0]
    assert str(root) not in done.stderr


def test_ctrl_c_is_one_sentence_and_leaves_no_worktree_behind(tmp_path):
    begun = tmp_path / "begun"
    sleeps = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(60)"
    root = repository(tmp_path / "repo", [sleeps, "two = 2"])
    words = ["bisect", "--good", "HEAD~1", "step.py:program"]
    process = subprocess.Popen(command_line(*words), cwd=root, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not begun.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert git(root, "worktree", "list").count("\n") == 1
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert message == "sdyscope was stopped by SIGINT before it had an answer.\n"
    assert git(root, "worktree", "list").count("\n") == 0


def _lowered(first="first", scope="attention", options=None, devices=slice(None), note=""):
    """A program of one matmul, made from a text."""
    code = f"""{note}
def step({first}, x):
    with jax.named_scope({scope!r}):
        return x @ {first}
"""
    values = {"jax": jax}
    exec(code, values)
    mesh = Mesh(np.array(jax.devices()[:2][devices]), ("data",))
    arguments = [
        jax.ShapeDtypeStruct((4, 4), jnp.float32, sharding=NamedSharding(mesh, P(axis)))
        for axis in (None, "data")
    ]
    return inspect(jax.jit(values["step"], compiler_options=options), *arguments)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"note": "# another line\n"}, True),
        ({"first": "weights"}, False),
        ({"scope": "mlp"}, False),
        ({"options": {"xla_cpu_enable_fast_math": True}}, False),
        ({"devices": slice(None, None, -1)}, False),
    ],
)
def test_only_source_lines_may_differ_in_what_is_known_again(changed, same):
    """A module alone does not say these: a tensor that was renamed was said to be unchanged."""
    assert (_key(_lowered()) == _key(_lowered(**changed))) is same
