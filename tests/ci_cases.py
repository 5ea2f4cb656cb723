"""What came of targets, made by hand, with everything that could disturb a form."""

from pathlib import Path

from sdyscope.analysis.budgets import Budgets, Spent
from sdyscope.ci import CheckOutcome, Config, Found, Outcome, SnapshotFile, Target, Trouble
from sdyscope.findings import Finding
from sdyscope.source import SourceLocation
from sdyscope.views import ci

NASTY = "100%: a,b::error file=x::y\r\n<b>|`]]>\x1b[31m \N{PILE OF POO}"

CONFIG = """[tool.sdyscope.targets.step]
target = "step.py:program"
[tool.sdyscope.targets.broken]
target = "gone.py:program"
[tool.sdyscope.targets.old]
target = "step.py:program"
"""


def target(folder, name, line, **changed):
    values = {
        "name": name,
        "word": "step.py:program",
        "place": SourceLocation(str(folder / "pyproject.toml"), line, 24),
        "mesh": None,
        "mesh_config": None,
        "mesh_selector": None,
        "devices": None,
        "partitioners": ("shardy",),
        "on": None,
        "settings": {},
        "module": None,
        "jax": (),
        "check": True,
        "lint": True,
        "compiles": True,
        "snapshot": SnapshotFile(folder / "golden.snap"),
        "budgets": Budgets(total=10),
        "ignores": (),
        "fail_on": "warning",
    }
    return Target(**{**values, **changed})


def finding(rule="not-divisible", severity="warning", **changed):
    values = {"message": "It does not divide.", "tensor": "jit(step)/layer0", "kind": "constraint"}
    return Finding(rule, severity, **{**values, **changed})


def document(folder, *, extra=(), line=2, is_update=False, fail_on="warning"):
    """A document of three targets: one with findings, one that broke, one that is skipped."""
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(CONFIG)
    (folder / "step.py").write_text("# nothing\n" * 40)
    (folder / "golden.snap").write_text("sdyscope snapshot 1\n")
    step = target(folder, "step", 1, fail_on=fail_on)
    broken = target(folder, "broken", 3)
    old = target(folder, "old", 5, jax=("0.5",))
    config = Config(Path(folder / "pyproject.toml"), (step, broken, old), (), {})
    source = SourceLocation(str(folder / "step.py"), line, 7)
    elsewhere = SourceLocation("/usr/lib/python3/site-packages/lib.py", 3, 1)
    golden = SourceLocation(str(folder / "golden.snap"), 1)

    def found(check, one, otherwise=step.place, ignored=""):
        return Found(check, one, one.source or otherwise, otherwise, ignored)

    everything = (
        found("check", finding(source=source)),
        found("check", finding(severity="note", rule="argument-dropped", tensor="x")),
        found("lint", finding(rule="odd", severity="error", message=NASTY, tensor=NASTY)),
        found("lint", finding(rule="far", source=elsewhere)),
        found("lint", finding(rule="known", severity="error"), ignored="It is well, 100%."),
        found("snapshot", finding("snapshot-changed", "error", expected="P('a')"), golden),
        found("budgets", finding("over-memory", "error", tensor="memory", kind="budget")),
        *(found("check", one) for one in extra),
    )
    spent = (
        Spent(("memory", "total"), "memory", "bytes", "shardy", 2048, 10),
        Spent(("communication", 0, "count"), "all-gather", "collectives", "shardy", 1, 4),
        Spent(("memory", "temporaries"), "temporaries", "bytes", "shardy", None, 10),
    )
    outcome = Outcome(
        "step",
        program="step",
        mesh="data=4, model=2",
        partitioners=("shardy",),
        hardware="cpu:8",
        seconds=2.5,
        checks=(
            CheckOutcome("check", "8 comparisons", 0.5),
            CheckOutcome("lint", "33 rules", 1.0, not_run=("rule: because",)),
            CheckOutcome("snapshot", "20 tensors", 0.5),
            CheckOutcome("budgets", "3 limits", 0.5),
        ),
        found=everything,
        spent=spent,
    )
    trouble = Trouble(f"{folder}/step.py:9: {NASTY}", SourceLocation(str(folder / "step.py"), 9))
    outcomes = {
        "step": outcome,
        "broken": Outcome("broken", trouble=trouble),
    }
    unused = finding("unused-ignore", kind="ignore", tensor="odd of *")
    return ci.document(
        config,
        outcomes,
        {"old": "It is for JAX 0.5, and this is 0.10.2."},
        [Found("check", unused, step.place, step.place)],
        version="0.1.0",
        jax="0.10.2",
        seconds=3.0,
        is_update=is_update,
    )
