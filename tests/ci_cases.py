"""What came of targets, made by hand, with everything that could disturb a form."""

from dataclasses import replace
from pathlib import Path

from sdyscope.analysis.budgets import Budgets, Spent
from sdyscope.ci import Config, PlacedFinding, SnapshotFile, Target
from sdyscope.ci.judge import Done, judged, unjudged
from sdyscope.ci.run import summed
from sdyscope.errors import SdyscopeError
from sdyscope.facts.findings import BudgetSubject
from sdyscope.lint import NotRun
from sdyscope.values.source import SourceLocation
from sdyscope.words.findings import Finding

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
        "strict": True,
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

    def found(check, finding, otherwise=step.place, ignored=""):
        return PlacedFinding(check, finding, finding.source or otherwise, otherwise, ignored)

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
        Spent(("memory", "total"), BudgetSubject("total"), "bytes", "shardy", 2048, 10),
        Spent(
            ("communication", 0, "count"),
            BudgetSubject("collectives", "all-gather"),
            "collectives",
            "shardy",
            1,
            4,
        ),
        Spent(("memory", "temporaries"), BudgetSubject("temporaries"), "bytes", "shardy", None, 10),
    )
    done = {
        "check": Done("8 comparisons", seconds=0.5),
        "lint": Done("33 rules", not_run=(NotRun("rule", "shardy", "because", True),)),
        "snapshot": Done("20 tensors", seconds=0.5),
        "budgets": Done("3 limits", spent=spent, seconds=0.5),
    }
    judged_step = replace(
        judged(config, step, done, everything, updating=is_update),
        mesh="data=4, model=2",
        partitioners=("shardy",),
        hardware="cpu:8",
        seconds=2.5,
    )
    error = SdyscopeError(NASTY, file=folder / "step.py", line=9)
    unused = finding("unused-ignore", kind="ignore", tensor="odd of *")
    return summed(
        config,
        [
            judged_step,
            unjudged(config, broken, error=error),
            unjudged(config, old, skipped="It is for JAX 0.5, and this is 0.10.2."),
        ],
        [PlacedFinding("check", unused, step.place, step.place)],
        jax="0.10.2",
        seconds=3.0,
    )
