"""No page and no document names the folders of the machine that it was made on."""

import base64
import re
import zlib

import pytest

pytestmark = pytest.mark.compiles

PROGRAM = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"x": 4, "y": 2}

def program(mesh):
    w = jax.ShapeDtypeStruct((6, 16), jnp.float32, sharding=NamedSharding(mesh, P(None, "y")))

    def step(w):
        return jax.lax.with_sharding_constraint(w * 2, NamedSharding(mesh, P("x"))).sum()

    return Program("small", jax.jit(step), (w,))
"""
#: What a user of these commands looks for.
NAMES_THE_FILE = {"show", "propagate", "comms", "source", "graph", "report"}


@pytest.fixture
def target(tmp_path, monkeypatch):
    """A program whose file is too far from the working directory to be named from there."""
    source = tmp_path / "secret-machine" / "lab" / "small.py"
    source.parent.mkdir(parents=True)
    source.write_text(PROGRAM)
    here = tmp_path / "a" / "b" / "c" / "d"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    return f"{source}:program"


def unpacked(text):
    """A page's text with what is packed in it."""
    packed = re.findall(r'data-encoding="deflate">([^<]+)<', text)
    return text + "".join(zlib.decompress(base64.b64decode(part)).decode() for part in packed)


@pytest.mark.parametrize(
    "command",
    [
        "show {} --json",
        "check {} --json",
        "lint {} --json",
        "propagate {} --json",
        "explain {} w --json",
        "comms {} --json",
        "cost {} --json",
        "memory {} --peak --json",
        "source {} --json",
        "fix {} --json",
        "fix {} --sarif out",
        "diff {} --json",
        "graph {} --json",
        "graph {} --format graphml",
        "graph {} --format model-explorer",
        "report {} --json",
        "report {} -o out.html",
        "report {} -o out.md",
        "report {} --format svg -o out",
        "snapshot {} -o out",
        "run {} --steps 1 --json",
        "source {}",
        "comms {}",
    ],
)
def test_nothing_names_folders_of_this_machine(sdyscope, target, tmp_path, command):
    done = sdyscope(*command.format(target).split())
    assert done.status in (0, 1), done.err
    files = [path for path in tmp_path.glob("a/**/out*") if path.is_file()]
    files += tmp_path.glob("a/**/out/*")
    texts = [done.out, *(unpacked(path.read_text()) for path in files)]
    assert any(texts)
    for text in texts:
        assert str(tmp_path) not in text
        assert "secret-machine" not in text
    if command.split()[0] in NAMES_THE_FILE and "svg" not in command:
        assert any("lab/small.py" in text for text in texts)


def test_a_page_for_oneself_names_files_in_full(sdyscope, target, tmp_path):
    assert sdyscope("report", target, "--no-compile", "--full-paths", "-o", "out.html").status == 0
    (page,) = tmp_path.glob("a/**/out.html")
    assert str(tmp_path / "secret-machine" / "lab" / "small.py") in unpacked(page.read_text())
