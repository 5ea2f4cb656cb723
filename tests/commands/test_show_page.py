"""What docs/show.md and docs/check.md show is what the commands print, 80 characters wide."""

import re
import shlex
from pathlib import Path

import pytest

from sdyscope.lint import Rule, requested
from sdyscope.stages import compat

ROOT = Path(__file__).parents[2]
CONSOLE = re.compile(r"```console\n\$ sdyscope (.*)\n((?:.*\n)*?)(?:\$ echo(?:.*\n)*?)?```")
BLOCKS = [
    (arguments, shown)
    for page in ("show", "check")
    for arguments, shown in CONSOLE.findall((ROOT / "docs" / f"{page}.md").read_text())
    if arguments != "show dumps"  # a directory that is nobody's
]
VERSION = re.compile(r"JAX\s\d+[\d.]*")


@pytest.mark.skipif(
    compat.version_tuple()[:2] != (0, 10),
    reason="the pages show what JAX 0.10 lowers; others differ in details",
)
@pytest.mark.parametrize(("arguments", "shown"), BLOCKS)
def test_console_blocks_are_what_the_command_prints(sdyscope, monkeypatch, arguments, shown):
    monkeypatch.chdir(ROOT)
    done = sdyscope(*shlex.split(arguments), columns=80)
    assert VERSION.sub("JAX", done.out) == VERSION.sub("JAX", shown)


def test_the_pages_have_blocks():
    assert len(BLOCKS) == 6


def test_the_rules_of_check_are_those_of_lint():
    page = (ROOT / "docs" / "check.md").read_text()
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| (error|warning|note) \|", page, re.MULTILINE))
    known = {
        rule.name: rule.severity for rule in vars(requested).values() if isinstance(rule, Rule)
    }
    assert {name: listed.get(name) for name in known} == known
    # What is only worth knowing of one tensor is no rule of lint.
    assert set(listed) - set(known) <= {"axes-dropped", "request-note"}
