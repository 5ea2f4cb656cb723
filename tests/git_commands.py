"""Git in repositories of the tests' own, whatever is configured on this machine.

A commit is the same each time: what it is called, its author and its date.
"""

import os
import subprocess

PROGRAM = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}
SCALE = NUMBER


def program(mesh):
    def on(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    @jax.jit
    def step(w, x):
        hidden = jnp.tanh(x @ w) * SCALE
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(mesh, P(CONSTRAINT)))

    return Program("step", step, (on((64, 32), None, WEIGHT), on((16, 64), "data")))
"""

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.com"))
} | {"GIT_CONFIG_GLOBAL": os.devnull}
DATE = "2026-11-25T12:00:00Z"
DATES = {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}


def git(root, *words):
    done = subprocess.run(
        ["git", "-C", str(root), *words],
        env=os.environ | IDENTITY | DATES,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def repository(root, texts):
    """A commit for each text of `step.py`."""
    root.mkdir(exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    for number, text in enumerate(texts):
        (root / "step.py").write_text(text)
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"Commit {number}")
    return root


def text(number, constraint='"data", "model"', weight='"model"'):
    made = PROGRAM.replace("NUMBER", f"{number}.5").replace("CONSTRAINT", constraint)
    return made.replace("WEIGHT", weight)
