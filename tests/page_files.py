"""The files that pages of the documentation speak of, made before their blocks are played."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import git_commands

from sdyscope.inspection import Inspection
from sdyscope.targets import resolve

DOCS = Path(__file__).parents[1] / "docs"
TRAIN = (DOCS / "train.py").read_text(encoding="utf-8")

CI = """
[tool.sdyscope.defaults]
snapshot = { file = "shardings.snap" }

[tool.sdyscope.targets.mlp]
target = "mlp"
[tool.sdyscope.targets.mlp.budgets]
communication = [{ kind = "all-reduce", bytes = "1MiB" }]

[tool.sdyscope.targets.fsdp-transformer]
target = "fsdp-transformer"
[tool.sdyscope.targets.fsdp-transformer.budgets]
communication = [{ kind = "all-gather", axis = "model", bytes = "200KiB" }]
"""

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def environment():
    """As a script is run by a person: it asks for its devices itself."""
    found = {name: text for name, text in os.environ.items() if name != "XLA_FLAGS"}
    return found | {"PATH": f"{Path(sys.executable).parent}:{found['PATH']}"}


def ci(folder, sdyscope):
    (folder / "pyproject.toml").write_text(CI)
    sdyscope("snapshot", "mlp", "fsdp-transformer", "-o", "shardings.snap")


def before_and_after(folder, sdyscope):
    sdyscope("lower", "mlp", "--partitioner", "shardy", "-o", "before.mlir")
    text = (folder / "before.mlir").read_text()
    text = text.replace("stablehlo.tanh", "stablehlo.sine", 1)
    text = text.replace('[{}, {"model"}]', '[{"model"}, {}]', 1)
    (folder / "after.mlir").write_text(text)


def misspelt_mapping(folder, sdyscope):
    (folder / "mesh.toml").write_text(
        'axes = { model = 2 }\nshared_mapping = { hedas = "model", mlp = "model" }\n'
    )


def donated(folder, sdyscope):
    (folder / "donated.py").write_text(fenced("memory", "python", "# donated.py\n"))


def constrained_logits(folder, sdyscope):
    (folder / "logits.py").write_text(fenced("fix", "python", "# logits.py\n"))


def replicated_layers(folder, sdyscope):
    (folder / "layers.py").write_text(fenced("search", "python", "# layers.py\n"))


def compiled_text(folder, sdyscope):
    compiled = Inspection(resolve("fsdp-transformer", settings={"donate": "true"})).compiled(
        "shardy"
    )
    (folder / "step.txt").write_text(compiled.hlo)


def lookup(folder, sdyscope):
    (folder / "lookup.py").write_text(fenced("source", "python", "# lookup.py\n"))


def mesh_configuration(folder, sdyscope):
    (folder / "mesh.toml").write_text(fenced("mesh", "toml", "[big]\n"))


def two_mappings(folder, sdyscope):
    (folder / "mesh.toml").write_text(fenced("mesh", "toml", "[base]\n"))


def fenced(page, language, start):
    """The block of a page that begins so."""
    blocks = _FENCED.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    return next(text for kind, text in blocks if kind == language and text.startswith(start))


def script(folder, sdyscope):
    (folder / "train.py").write_text(TRAIN)


def two_recordings(folder, sdyscope):
    otherwise = TRAIN.replace('on("model", None)', 'on(None, "model")')
    for name, text in (("monday", TRAIN), ("tuesday", otherwise)):
        (folder / "train.py").write_text(text)
        subprocess.run(
            [sys.executable, "-m", "sdyscope", "record", "-o", name, "--", "python", "train.py"],
            env=environment(),
            check=True,
            capture_output=True,
        )


def dumps(folder, sdyscope):
    subprocess.run(
        [sys.executable, DOCS / "train.py"],
        env=environment() | {"JAX_DUMP_IR_TO": str(folder / "dumps")},
        check=True,
        capture_output=True,
    )


def snapshot(folder, sdyscope):
    sdyscope("snapshot", "mlp", "-o", "shardings.snap")


def weight_sharded_otherwise(folder, sdyscope):
    """A golden file in which a weight is sharded as it is not any more."""
    snapshot(folder, sdyscope)
    edited(folder / "shardings.snap", folder / "shardings.snap", "P('data', None)")


def two_snapshots(folder, sdyscope):
    sdyscope("snapshot", "mlp", "-o", "before.snap")
    edited(folder / "before.snap", folder / "after.snap", "replicated")


def edited(before, after, sharding):
    """A snapshot in which one weight is sharded otherwise."""
    text = before.read_text()
    weight = "argument  params['w1']  f32[128,256]\n  requested "
    assert weight in text
    after.write_text(text.replace(f"{weight}P(None, 'model')", f"{weight}{sharding}"))


def nothing(folder, sdyscope):
    """The block itself writes files."""


def sixty_commits(folder, sdyscope):
    constraints = ['"data", "model"'] * 37 + ['None, "model"'] * 23
    git_commands.repository(
        folder, list(itertools.starmap(git_commands.text, enumerate(constraints)))
    )


#: By page and block of the page.
FILES = {
    ("bisect", 1): sixty_commits,
    ("search", 2): replicated_layers,
    ("fix", 1): constrained_logits,
    ("ci", 1): ci,
    ("diff", 2): nothing,
    ("diff", 3): before_and_after,
    ("graph", 1): nothing,
    ("lint", 3): misspelt_mapping,
    ("lower", 1): nothing,
    ("memory", 2): donated,
    ("memory", 6): compiled_text,
    ("mesh", 2): mesh_configuration,
    ("mesh", 3): two_mappings,
    ("record", 1): script,
    ("record", 2): two_recordings,
    ("report", 1): nothing,
    ("show", 5): dumps,
    ("snapshot", 1): nothing,
    ("snapshot", 2): weight_sharded_otherwise,
    ("snapshot", 3): snapshot,
    ("snapshot", 4): two_snapshots,
    ("source", 1): lookup,
}
