"""docs/models/origins.md: every row is shown by a command that works, or by a test that exists."""

import ast
import functools
import re
import shlex
from pathlib import Path

import pytest

from sdyscope.stages import compat
from tests.commands.test_pages import BLOCKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "models" / "origins.md").read_text(encoding="utf-8")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| the document"))
]
SHOWN = re.compile(r"`((?:COLUMNS=\d+ )?sdyscope [^`]+|tests/[^`]+::[^`]+)`")
COMMANDS = sorted({word for word in SHOWN.findall(PAGE) if not word.startswith("tests/")})
TESTS = sorted({word for word in SHOWN.findall(PAGE) if word.startswith("tests/")})
#: What the pages of documentation show is played there, and its output compared.
PLAYED = {command.line.partition(" | ")[0] for block in BLOCKS for command in block.values[2]}


def test_every_row_has_what_shows_it():
    assert len(ROWS) > 90
    assert [what for what, *shown in ROWS if not SHOWN.search(" | ".join(shown))] == []


def test_each_section_says_what_is_left_out():
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0] for section in sections if "\nLeft out" not in section] == []
    assert len(sections) == 5


@functools.cache
def functions(path):
    """The names of the tests in a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("word", TESTS)
def test_every_test_that_is_named_exists(word):
    path, name = word.split("::")
    assert name in functions(path)


@pytest.mark.compiles
@pytest.mark.skipif(
    compat.version_tuple()[:2] != (0, 10), reason="as of the pages: others differ in details"
)
@pytest.mark.parametrize("line", [line for line in COMMANDS if line not in PLAYED])
def test_every_other_command_answers(sdyscope, monkeypatch, line):
    monkeypatch.chdir(ROOT)
    words = shlex.split(line)
    if any(word.startswith("levanter-gpt2") for word in words):
        pytest.importorskip("haliax", reason="needs Haliax: pip install 'haliax>=1.4.dev0'")
    done = sdyscope(*words[1:])
    assert done.status in (0, 1), done.err
    assert done.out
    assert not re.search(r"^error", done.err, re.MULTILINE)


def test_most_commands_are_played_by_the_pages():
    """So that they are run once; what is left is cheap."""
    assert len([line for line in COMMANDS if line not in PLAYED]) <= 6
