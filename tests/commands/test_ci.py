"""`sdyscope ci`: targets in processes of their own, and what is told of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest
from own_process import in_own_process
from page_files import fenced

from sdyscope.ci import Outcome
from sdyscope.ci import run as running
from sdyscope.process import output
from sdyscope.snapshots import read_snapshots, update
from sdyscope.stages.compiled import compiler

pytestmark = pytest.mark.compiles

PROGRAM = """
import os, time
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
        print("a print while it is traced")
        for n, w in enumerate(params["layers"]):
            with jax.named_scope(f"layer{n}"):
                x = jnp.tanh(x @ w)
                x = jax.lax.with_sharding_constraint(x, on("data", "model"))
        return x

    weights = [array((8, 8), None, "model") for _ in range(2)]
    return Program("step", jax.jit(step), ({"layers": weights}, array((16, 8), "data")))

def aborts(mesh):
    os.abort()

def raises(mesh):
    raise ValueError("not, today")

def sleeps(mesh):
    open("sleeping", "w").close()
    time.sleep(60)
"""
LINES = [line.strip() for line in PROGRAM.split("\n")]
CONSTRAINT = LINES.index('x = jax.lax.with_sharding_constraint(x, on("data", "model"))') + 1
RAISES = LINES.index('raise ValueError("not, today")') + 1
INDIVISIBLE = Path(__file__).parents[2] / "docs" / "indivisible.py"

STEP = """
[tool.sdyscope.targets.step]
target = "step.py:program"
snapshot = { file = "golden.snap" }
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository with a program; further targets are written to its pyproject.toml."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "step.py").write_text(PROGRAM)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def write(*targets):
        (tmp_path / "pyproject.toml").write_text("\n".join(targets))
        return tmp_path

    return write


@pytest.fixture
def ci(sdyscope):
    """Runs `sdyscope ci` here; its children are real."""
    return partial(sdyscope, "ci", supervising=True)


@pytest.fixture
def outcome(ci):
    """What came of a target, looked at in this process."""

    def run(name="step"):
        return msgspec.json.decode(ci("--target", name, "--outcome").out, type=Outcome).target

    return run


def test_all_paths_are_told_from_the_repository_s_root(project, outcome, monkeypatch):
    folder = project(STEP) / "inner"
    folder.mkdir()
    (folder / "step.py").write_text(PROGRAM)
    budgets = "\n[tool.sdyscope.targets.step.budgets]\nunlisted-communication = 0\n"
    (folder / "pyproject.toml").write_text(STEP.replace("snapshot", "# snapshot") + budgets)
    monkeypatch.chdir(folder)
    found = [finding.finding for finding in outcome().findings]
    assert {one.source.file for one in found if one.source} == {"inner/step.py"}
    budget = [one.found for one in found if "step.py:" in one.found]
    assert budget
    assert all("inner/step.py:" in words for words in budget)


def test_what_changed_is_told_on_its_line_and_others_break_alone(project, ci, monkeypatch):
    broken = '[tool.sdyscope.targets.{0}]\ntarget = "step.py:{0}"\n'
    folder = project(STEP, broken.format("aborts"), broken.format("raises"))
    first = ci("--update", "--target", "step")
    assert (first.status, "golden.snap is rewritten" in first.out) == (0, True), first
    assert "step: a print while it is traced" in first.err
    golden = (folder / "golden.snap").read_text()
    changed = PROGRAM.replace('(x, on("data", "model"))', '(x, on("data"))')
    (folder / "step.py").write_text(changed)
    summary = folder / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = ci("--junit", "out.xml", "--sarif", "out.sarif", "--jobs", "2", columns=80)
    assert done.status == 2
    assert (folder / "golden.snap").read_text() == golden
    assert max(len(line) for line in done.out.split("\n") if not line.startswith("::")) <= 80
    assert "3 targets: 1 failed, 2 errored" in done.out
    # What is not configured for a target did not fail.
    (row,) = [line for line in done.out.split("\n") if line.startswith("raises ")]
    assert row.split()[1:5] == ["error", "error", "-", "-"]
    assert "target 'aborts' aborted inside the compiler (SIGABRT)" in done.out
    assert f"  step.py:{RAISES}: step.py:raises can't be built on the mesh" in done.out
    annotations = [line for line in done.out.split("\n") if line.startswith("::")]
    where = f"file=step.py,line={CONSTRAINT},"
    about = [line for line in annotations if "constraint layer{0..1}" in line]
    assert [where in line for line in about] == [True]
    assert any(line.startswith(f"::error file=step.py,line={RAISES},") for line in annotations)
    assert any(line.startswith("::error file=golden.snap,line=") for line in annotations)
    assert summary.read_text().startswith("before\n### ❌ sdyscope: 3 targets")
    assert (folder / "out.xml").read_text().count("<testcase") == 5
    assert json.loads((folder / "out.sarif").read_text())["version"] == "2.1.0"
    assert not [path for path in folder.iterdir() if path.name.startswith(".out")]


def test_all_of_a_target_compiles_once_a_partitioner(project, outcome, monkeypatch):
    stages = '["requested", "lowered", "propagated", "compiled"]'
    project(
        STEP.replace('"golden.snap"', f'"golden.snap", stages = {stages}'),
        'partitioner = "both"\n[tool.sdyscope.targets.step.budgets]\n'
        'communication = [{ axis = "model", bytes = 0 }]\n'
        'replicated = 0\nmemory = { total = "1GiB" }',
    )
    compiled = []

    def counted(*args, partitioner, **options):
        compiled.append(partitioner)
        return made(*args, partitioner=partitioner, **options)

    made = compiler.compile_module
    monkeypatch.setattr(compiler, "compile_module", counted)
    found = outcome()
    assert sorted(compiled) == ["gspmd", "shardy"]
    assert [check.check for check in found.checks] == ["check", "lint", "snapshot", "budgets"]
    assert not any(check.error for check in found.checks)
    assert found.hardware == "cpu:8"
    # The second layer needs the whole of [4,8], of which a device has a half.
    sent = [budget for budget in found.budgets if budget.words == "collectives over model"]
    over = [
        finding.finding
        for finding in found.findings
        if finding.finding.rule == "over-communication"
    ]
    assert [one.used for one in sent] == [64, 64]
    # Alike under both partitioners, and so told once.
    assert [collective.partitioner for collective in over] == [None]
    assert {
        collective.source.file.rpartition("/")[2] for collective in over if collective.source
    } <= {"step.py"}
    assert all("from " in collective.found for collective in over)


def test_another_mesh_is_told_with_the_blocks_that_it_makes(project, ci, outcome):
    quick = STEP.replace("snapshot", "lint = false\nsnapshot")
    project(quick)
    assert ci("--update").status == 0
    project(quick, 'mesh = "data=2,model=4"')
    (found,) = [finding.finding for finding in outcome().findings if finding.finding.kind == "mesh"]
    assert (found.expected, found.found) == ("data=4, model=2", "data=2, model=4")
    assert found.message.startswith("The program has another mesh than its snapshot.")
    assert "all arguments: 384 -> 384 bytes" in found.message
    assert "params['layers'][0] and 1 more f32[8,8]: [8,4] -> [8,2]" in found.message


def test_ignored_findings_are_told_with_the_reason(project, ci):
    project(
        f'[tool.sdyscope.targets.step]\ntarget = "{INDIVISIBLE}:program"\nlint = false',
        'ignore = [{ rule = "not-divisible", tensors = "jit(st?p)", reason = "padded" }]',
        '[[tool.sdyscope.ignore]]\nrule = "donation-unusd"\nreason = "no"',
    )
    done = ci("--json")
    document = done.document("ci")
    (target,) = document["targets"]
    (known,) = [
        finding for finding in target["findings"] if finding["finding"]["rule"] == "not-divisible"
    ]
    assert (known["ignored"], known["fails"]) == ("padded", False)
    assert target["status"] == "passed"
    # The line of the program is in another repository than the configuration.
    assert (known["file"], known["line"]) == ("pyproject.toml", 1)
    (unused,) = document["findings"]
    assert (unused["finding"]["rule"], unused["line"]) == ("unused-ignore", 5)
    assert unused["finding"]["message"].startswith("There is no rule 'donation-unusd'")
    assert unused["finding"]["hint"] == "Did you mean 'donation-unused'?"
    assert done.status == 1


def test_programs_that_are_no_targets_are_told_until_they_are_removed(project, ci, monkeypatch):
    renamed = STEP.replace("targets.step", "targets.other")
    folder = project(STEP.replace("snapshot", "lint = false\nsnapshot"))
    assert ci("--update").status == 0
    project(renamed.replace("snapshot", "lint = false\nsnapshot"))
    done = ci()
    assert done.status == 1
    assert "program other [snapshot-missing]" in done.out
    assert "program step [snapshot-unused]" in done.out
    golden = folder / "golden.snap"

    @contextlib.contextmanager
    def waited(path):
        """Another process writes the file while this one waits for it."""
        (step,) = read_snapshots(golden.read_text())
        golden.write_text(update(golden.read_text(), [replace(step, name="meanwhile")]))
        with output.locked(path):
            yield

    with monkeypatch.context() as patch:
        patch.setattr(running, "locked", waited)
        assert "program step [snapshot-unused]" in ci("--update").out
    assert "program  step" in golden.read_text()
    assert "program  meanwhile" in golden.read_text()
    assert ci("--update", "--remove-unused").status == 0
    text = golden.read_text()
    assert "program  step" not in text
    assert "program  other" in text


def test_what_an_older_golden_file_does_not_say_is_told(project, ci):
    folder = project(STEP.replace("snapshot", "lint = false\nsnapshot"))
    source = folder / "step.py"
    unscoped = PROGRAM.replace('with jax.named_scope(f"layer{n}"):', "if True:")
    source.write_text(unscoped.replace('on("data", "model"))', 'on("data", ["model", None][n]))'))
    assert ci("--update").status == 0
    golden = folder / "golden.snap"
    lines = golden.read_text().replace("snapshot 6", "snapshot 4").splitlines(keepends=True)
    newer = ("places ", "on ")
    golden.write_text("".join(line for line in lines if not line.strip().startswith(newer)))
    done = ci()
    assert done.status == 1
    assert "program [snapshot-older]" in done.out
    assert "the order of constraints" in done.out
    assert ci("--update").status == ci().status == 0


@pytest.mark.parametrize("damage", ["<<<<<<< ours\n", "sdyscope snapshot 10\n", "\0"])
def test_a_damaged_golden_file_is_an_error_and_stays(project, ci, damage):
    folder = project(STEP.replace("snapshot", "lint = false\nsnapshot"))
    (folder / "golden.snap").write_text(damage)
    done = ci("--update")
    assert done.status == 2
    assert "snapshot errored: golden.snap:1:" in done.out
    assert (folder / "golden.snap").read_text() == damage


def test_an_axis_that_the_program_does_not_have_is_an_error(project, outcome):
    project(
        STEP.replace("snapshot", "lint = false\n# "),
        "[tool.sdyscope.targets.step.budgets]",
        'communication = [\n  { axis = "modl", bytes = 0 }\n]',
    )
    (error,) = [check.error for check in outcome().checks if check.error]
    assert error.text.endswith("The mesh has no axis 'modl'.\nDid you mean 'model'?")
    assert (error.line, error.file) == (9, "pyproject.toml")


def test_the_mesh_and_the_settings_of_a_target(project, outcome):
    project(
        '[tool.sdyscope.targets.step]\ntarget = "mlp"\nlint = false\n'
        "mesh = { data = 2, model = -1 }\ndevices = 8\nsettings = { hidden = 64 }"
    )
    found = outcome()
    assert (found.program, found.mesh) == ("mlp", "data=2 x model=4, 8 devices")
    assert found.checks[0].words.endswith("comparisons")


def test_mappings_of_a_mesh_configuration_are_looked_at(project, outcome):
    pytest.importorskip("haliax")
    folder = project(
        '[tool.sdyscope.targets.step]\ntarget = "levanter-gpt2"\ncheck = false\n'
        'compile = false\nmesh-config = "mesh.toml"\ndevices = 8'
    )
    mapping = '[mesh]\naxes = {model = 2}\nparam_mapping = {embde = "data"}\n'
    (folder / "mesh.toml").write_text(mapping)
    rules = {finding.finding.rule: finding.finding for finding in outcome().findings}
    assert "'embde' of param_mapping" in rules["logical-axis-unused"].message


@pytest.mark.parametrize(
    ("targets", "words", "said"),
    [
        ([STEP], ["--target", "stp"], "Did you mean 'step'?"),
        ([STEP, 'jax = "0.5"'], [], "No target is for JAX"),
        ([STEP], ["--remove-unused"], "--remove-unused goes with --update."),
        ([STEP], ["--junit", "no/such/folder.xml"], "no such folder"),
        ([], ["--config", "nope.toml"], "nope.toml: The configuration can't be read"),
        ([], [], "There is no pyproject.toml with [tool.sdyscope]"),
        ([STEP, "lnt = 1"], [], "pyproject.toml:6:1: There is no key 'lnt'"),
    ],
)
def test_wrong_usage_and_configurations(project, ci, targets, words, said):
    project(*targets)
    done = ci(*words)
    assert (done.status, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_the_list_of_targets(project, ci):
    project(STEP, "lint = false")
    done = ci("--list")
    assert done.status == 0
    assert done.out.split("\n")[2].split("  ")[-1].strip() == "check, snapshot"


def test_a_signal_stops_the_children(project):
    folder = project('[tool.sdyscope.targets.sleeps]\ntarget = "step.py:sleeps"\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "sdyscope", "ci"], stdout=subprocess.PIPE, env={**os.environ}
    )
    for _ in range(600):
        if (folder / "sleeping").exists():
            break
        time.sleep(0.1)
    assert (folder / "sleeping").exists()
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == -signal.SIGTERM
    assert time.monotonic() - started < 20


def test_a_file_for_gspmd_needs_no_partitioner(tmp_path, mlp_texts):
    (tmp_path / "mlp.mlir").write_text(mlp_texts["gspmd"])
    (tmp_path / "pyproject.toml").write_text('[tool.sdyscope.targets.mlp]\ntarget = "mlp.mlir"\n')
    done = in_own_process("ci", "--json", cwd=tmp_path)
    (target,) = json.loads(done.stdout)["targets"]
    assert (target["partitioners"], target["error"]) == (["gspmd"], None)


@pytest.mark.thorough
def test_a_target_that_fails_gets_the_patch_that_makes_it_pass(sdyscope, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("logits.py").write_text(fenced("fix", "python", "# logits.py\n"))
    Path("pyproject.toml").write_text(
        "[tool.sdyscope.targets.logits]\ntarget = 'logits.py:program'\n"
        "lint = false\nstrict = false\n"
        "[tool.sdyscope.targets.logits.budgets]\ncommunication = [{ bytes = '2MiB' }]\n"
    )
    done = sdyscope("ci", "--fix", "--json")
    (target,) = done.document("ci")["targets"]
    assert (done.status, target["status"], target["remedy"]["proven"]) == (1, "failed", True)
    subprocess.run(["patch", "-p1"], input=target["remedy"]["patch"], text=True, check=True)
    assert sdyscope("ci", "--fix", "--json").status == 0
