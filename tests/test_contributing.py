"""What docs/contributing.md says is so: a command takes what it lists and no more."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest

from sdyscope.commands import COMMANDS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text()
SECTION = PAGE.partition("## Add a command")[2].partition("\n## ")[0]
PLACES = re.findall(r"^\d+\. `([^`]+)`", SECTION, re.MULTILINE)

COMMAND = '''
from __future__ import annotations

from sdyscope.commands import opening, options


@options.command()
@options.target
@options.json("analysis.toy:Toy")
def command(target: str, as_json: bool) -> int:
    """Count the tensors of a program by kind."""
    from sdyscope.process import output
    from sdyscope.terminal import document, table
    from sdyscope.views import toy

    found = opening.Opening(target).inspection(("shardy",)).toy()
    if as_json:
        output.answers().write_bytes(document.encode(found))
    else:
        table.print_table(toy.table(found))
    return 0
'''

ANALYSIS = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """The document of `sdyscope toy --json`.

    Attributes:
      schema: name and version of this form.
      tensors: how many there are of each kind.
    """

    schema: Literal["sdyscope.toy/1"] = "sdyscope.toy/1"
    tensors: dict[str, int]
'''

VIEW = """
from __future__ import annotations

from sdyscope.analysis.toy import Toy
from sdyscope.terminal.table import Column, Table, number


def table(found: Toy) -> Table:
    rows = tuple((kind, str(count)) for kind, count in found.tensors.items())
    return Table((Column("kind"), number("tensors")), rows)
"""

METHOD = '''
    def toy(self):
        """How many tensors of each kind there are."""
        from sdyscope.analysis.toy import Toy

        kinds = [tensor.kind for tensor in self.tensors.tensors]
        return Toy(tensors={kind: kinds.count(kind) for kind in dict.fromkeys(kinds)})

    def check(self)'''


def test_a_command_takes_at_most_five_places():
    assert len(PLACES) <= 5
    for name in ("cost", "memory", "comms", "explain"):
        for place in PLACES:
            text = (ROOT / place.replace("NAME", name)).read_text()
            assert "NAME" in place or re.search(rf"\b{name}\b|\bcollectives\b", text), place


def _listed(node):
    if isinstance(node, ast.Dict):
        return node.keys
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else ()


def test_nothing_else_lists_the_commands():
    lists = set()
    for path in (ROOT / "sdyscope").rglob("*.py"):
        text = path.read_text()
        if sum(f'"{name}"' in text for name in COMMANDS) <= 4:
            continue
        for node in ast.walk(ast.parse(text)):
            names = {each.value for each in _listed(node) if isinstance(each, ast.Constant)}
            if len(names & set(COMMANDS)) > 4:
                lists.add(path.relative_to(ROOT).as_posix())
    assert lists == {"sdyscope/commands/__init__.py"}
    assert lists < set(PLACES)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository with the command `toy`, made in the places that the page names."""
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "sdyscope", folder / "sdyscope", ignore=ignored)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("*.png"))
    shutil.copy(ROOT / "README.md", folder)
    content = {
        "sdyscope/commands/NAME.py": ("", COMMAND),
        "sdyscope/commands/__init__.py": (
            '        "models",\n',
            '        "models",\n        "toy",\n',
        ),
        "sdyscope/views/NAME.py": ("", VIEW),
        "sdyscope/inspection.py": ("\n    def check(self)", METHOD),
        "README.md": ("| `models`, ", "| `toy` | counts tensors |\n| `models`, "),
    }
    assert content.keys() == set(PLACES)
    (folder / "sdyscope" / "analysis" / "toy.py").write_text(ANALYSIS)
    for place, (old, new) in content.items():
        path = folder / place.replace("NAME", "toy")
        text = path.read_text() if old else ""
        assert text.count(old) == 1, place
        path.write_text(text.replace(old, new) if old else new)
    return folder


def run(folder, *words):
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


@pytest.mark.thorough
def test_a_command_in_these_places_works(copy):
    listed = run(copy, "-m", "sdyscope", "--help")
    assert "  toy         Count the tensors of a program by kind." in listed
    assert "argument" in run(copy, "-m", "sdyscope", "toy", "mlp")
    assert "docs/schema/toy.json" in run(copy, "docs/generate.py")
    document = json.loads(run(copy, "-m", "sdyscope", "toy", "mlp", "--json"))
    jsonschema.validate(document, json.loads((copy / "docs/schema/toy.json").read_text()))
    assert document["tensors"]["argument"] == 9


def test_the_rooms_are_those_that_imports_are_held_to():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [re.split(r" [:|] ", layer) for layer in settings["contracts"][0]["layers"]]
    table = PAGE.partition("| package | holds |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == [
        name for layer in layers for name in layer
    ]
