"""`sdyscope upgrade`: environments are folders of the test's own, and no index is asked.

Both have the JAX of these tests; a variable that one of them sets stands for what another JAX does
differently.
"""

import json
import os
import re
import signal
import site
import subprocess
import sys
import time
import venv

import jsonschema
import pytest
from own_process import command_line, in_own_process
from xla_flags import QUICK

from sdyscope.commands import document_type
from sdyscope.terminal.document import schema

TRAIN = """
import os, sys
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

NEWER = os.environ.get("STANDS_FOR_ANOTHER_JAX") == "1"
mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

def on(*spec):
    return NamedSharding(mesh, P(*spec))

@jax.jit
def step(w, x):
    hidden = jax.lax.with_sharding_constraint(
        jnp.tanh(x @ w), on(None if NEWER else "data", "model")
    )
    return (hidden * 2).sum()

@jax.jit
def evaluate(x):
    return x.sum()

w = jax.device_put(jnp.ones((8, 16)), on(None, "model"))
for size in (8, 16) if NEWER else (8,):
    step(w, jax.device_put(jnp.ones((size, 8)), on("data")))
evaluate(w)
if NEWER and "fails" in sys.argv:
    import nothing_like_it
"""

TARGET = """
import os
import jax
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}

def program(mesh):
    spec = P() if os.environ.get("STANDS_FOR_ANOTHER_JAX") == "1" else P("data")
    x = jax.ShapeDtypeStruct((16, 16), "float32", sharding=NamedSharding(mesh, spec))
    return Program("double", jax.jit(lambda x: x * 2), (x,))
"""

PYPROJECT = """
[tool.sdyscope.targets.double]
target = "target.py:program"
budgets = { memory = { total = "2KiB" } }
"""


DEVICES = "--xla_force_host_platform_device_count=8"
ENDS = ("--from", "./old", "--to", "./new")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a script, a TARGET, budgets, and the environments `old` and `new`."""
    root = tmp_path_factory.mktemp("upgrade")
    (root / "train.py").write_text(TRAIN)
    (root / "target.py").write_text(TARGET)
    (root / "pyproject.toml").write_text(PYPROJECT)
    for name in ("old", "new"):
        venv.create(root / name, symlinks=True)
        (packages,) = (root / name).glob("lib/*/site-packages")
        here = [path for path in site.getsitepackages() if os.path.isdir(path)]
        lines = [f"import site; site.addsitedir({path!r})" for path in here]
        if name == "new":
            lines.append("import os; os.environ['STANDS_FOR_ANOTHER_JAX'] = '1'")
        (packages / "here.pth").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def upgrade(folder):
    def run(*words, **environment):
        flags = {"XLA_FLAGS": f"{QUICK} {DEVICES}"}
        done = in_own_process("upgrade", *words, cwd=folder, **flags | environment)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def script(upgrade):
    """A script in both: its last line fails in the second."""
    return upgrade(
        *ENDS, "--json", "--summary", "up.md", "--page", "up.html", "--program", "step",
        "--", "python", "train.py", "fails",
    )  # fmt: skip


@pytest.fixture(scope="module")
def document(script):
    found = json.loads(script.stdout)
    jsonschema.validate(found, schema(document_type("upgrade")))
    return found


@pytest.mark.thorough
@pytest.mark.compiles
def test_a_script_is_compared_at_every_stage_with_lines(document):
    (step,) = document["steps"]
    (program,) = step["programs"]
    assert (program["name"], program["name_before"]) == ("step.1", "step")
    (tensor,) = program["lowered"]["tensors"]
    assert (tensor["kind"], tensor["change"]) == ("constraint", "changed")
    (beginning,) = program["propagated"]["beginnings"]
    assert beginning["begins"]["value"]["source"]["line"] == 16
    assert program["propagated"]["propagation_a"]["exactness"] == "exact"
    changed = {change["figure"]: change for change in program["changes"]}
    assert changed["comms.bytes"]["verdict"] == "worse"
    assert step["worse"]
    assert document["exit_status"] == 1


@pytest.mark.thorough
@pytest.mark.compiles
def test_a_script_that_fails_in_one_version_loses_nothing(script, document):
    assert script.returncode == 1
    one, two = document["sides"]
    assert (one["failure"], one["status"], two["status"]) == ("", 0, 1)
    assert "No module named 'nothing_like_it'" in two["failure"]
    assert "--requirements" in two["failure"]
    assert [side["programs"][0]["name"] for side in (one, two)] == ["step", "step.1"]


@pytest.mark.thorough
@pytest.mark.compiles
def test_recompiles_and_programs_of_one_version_alone_are_told(document):
    (step,) = document["steps"]
    assert step["recompiles"] == 1
    (again,) = document["sides"][1]["recompiles"]
    assert again["arguments"][0]["was_type"] == "f32[8,8]"
    (alone,) = step["unpaired"]
    assert alone["name"].startswith("step.2")


def parts_of(page):
    """What a page has data of: its differences, and the views of its sides."""
    return set(re.findall(r'data-part="([^"]+)"', page))


@pytest.mark.thorough
@pytest.mark.compiles
def test_the_summary_is_markdown_and_the_page_has_the_differences(script, document, folder):
    text = (folder / "up.md").read_text()
    assert text.startswith("### ❌ sdyscope upgrade: `python train.py fails`\n")
    assert "| `comms.bytes` |" in text
    assert "<details><summary>" in text
    assert text.count("```") % 2 == 0
    page = (folder / "up.html").read_text()
    assert {"differences", "a/graph", "b/graph"} <= parts_of(page)
    assert str(folder) not in text


@pytest.mark.compiles
def test_a_target_is_opened_in_each_with_its_requests_and_budgets(upgrade, folder):
    words = ["--from", sys.executable, "--to", "./new", "--summary", "target.md"]
    done = upgrade(*words, "--page", "target.html", "target.py:program")
    assert done.returncode == 0, done.stderr
    assert "requested differently (1)" in done.stdout
    assert "in ./new" in " ".join(done.stdout.split())
    # It needs more memory, as far as the budget of this target allows.
    assert "nothing got worse beyond its budgets" in " ".join(done.stdout.split())
    assert "double: 1 budget kept" in done.stdout
    assert (folder / "target.md").read_text().startswith("### ✅ sdyscope upgrade")
    page = (folder / "target.html").read_text()
    assert {"differences", "a/graph", "a/memory", "b/graph", "b/source"} <= parts_of(page)


def test_ctrl_c_is_one_sentence_and_stops_the_script(folder, tmp_path):
    begun = tmp_path / "begun"
    (folder / "sleeps.py").write_text(
        "import os, pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\ntime.sleep(60)\n"
    )
    words = ["upgrade", *ENDS, "--", "python", "sleeps.py", str(begun)]
    process = subprocess.Popen(command_line(*words), cwd=folder, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not (begun.exists() and begun.read_text()):
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert message == "sdyscope was stopped by SIGINT before it had an answer.\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Nothing is named to look at"),
        (["mlp", "--", "python", "train.py"], "Give one of them"),
        (["--versions", "0.12", "--", "python", "train.py"], "two versions or more"),
        (["--versions", "0.10", "0.12", "--to", "0.12", "mlp"], "in place of --from and --to"),
        (["--from", "newest", "mlp"], "not a JAX version"),
        (["--from", "0.4.31", "mlp"], "too old"),
        (["--from", "./nowhere", "--to", "./new", "mlp"], "There is no environment here"),
        (["--from", "./old", "--to", "./old", "mlp"], "named twice"),
        (["--what", "comms.bytes", "mlp"], "go with --bisect"),
        (["--bisect", "--what", "comms.byte", "mlp"], "no figure 'comms.byte'"),
        ([*ENDS, "--requirements", "none.txt", "mlp"], "requirements can't be read"),
        ([*ENDS, "--budgets", "nobody", "mlp"], "no target 'nobody'"),
        ([*ENDS, "--summary", "no/where.md", "mlp"], "no such folder to write to"),
        ([*ENDS, "--python", "3.9", "--to", "0.12", "mlp"], "no Python 3.9"),
        ([*ENDS, "--", "python", "nowhere.py"], "no such script"),
        ([*ENDS, "--", "nowhere"], "no program 'nowhere'"),
    ],
)
def test_wrong_words_are_one_sentence(folder, sdyscope, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    sdyscope("upgrade", *words).said(message)
