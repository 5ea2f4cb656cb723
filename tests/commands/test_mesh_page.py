"""What docs/mesh.md shows is what happens."""

import re
from pathlib import Path

import pytest

from sdyscope.targets import resolve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mesh.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def mesh_toml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mesh.toml").write_text("\n".join(blocks("toml")))


def test_the_values_beside_the_lines_are_those(mesh_toml):
    (block,) = [block for block in blocks("python") if "mesh_shape_from_axes" in block]
    names: dict[str, object] = {}
    compared = 0
    exec(block, names)
    for line in block.splitlines():
        code, _, said = line.partition("  # ")
        if said and code == code.strip() and said[0] in "({P":
            assert str(eval(code, names)) == said, code
            compared += 1
    assert compared == 8


def test_a_program_that_reads_its_mappings(mesh_toml):
    (block,) = [block for block in blocks("python") if "def program" in block]
    Path("page_program.py").write_text(block)
    mesh = {"data": 2, "context": 4, "model": 2}
    program = resolve("page_program.py:program", mesh=mesh)
    assert str(tuple(program.args[0].sharding.spec)) == "('data', 'model')"
