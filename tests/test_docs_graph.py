"""The examples of docs/graph.md run, and give what they say."""

import ast
import re
from pathlib import Path

import networkx
import pytest

from sdyscope.__main__ import run_here
from sdyscope.stages import compat

PAGE = Path(__file__).parents[1] / "docs" / "graph.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.skipif(
    compat.version_tuple() >= (0, 11), reason="since JAX 0.11 replica groups are mesh axes"
)
def test_every_example_runs_and_gives_what_it_says(tmp_path, monkeypatch):
    """A line `expression  # value` says what the expression is; later blocks go on with earlier."""
    monkeypatch.chdir(tmp_path)
    # As the page's first command has it.
    assert run_here(["graph", "mlp", "--output", "mlp.json"]) == 0
    names = {}
    said = 0
    for block in BLOCKS:
        lines = block.splitlines()
        for statement in ast.parse(block).body:
            code = ast.get_source_segment(block, statement)
            comment = lines[statement.end_lineno - 1].partition("  # ")[2]
            if isinstance(statement, ast.Expr) and comment:
                assert repr(eval(code, names)) == comment, code
                said += 1
            else:
                exec(compile(ast.Module([statement], []), PAGE.name, "exec"), names)
    assert said > 10
    assert isinstance(names["graph"], networkx.MultiDiGraph)
