"""What README shows is what the commands print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONSOLE = re.findall(r"```console\n\$ sdyscope (.*)\n((?:.*\n)*?)```", README)
VERSION = re.compile(r"JAX \d+[\d.]*")


def without_versions(text: str) -> str:
    return VERSION.sub("JAX", text)


@pytest.mark.parametrize(("arguments", "shown"), CONSOLE)
def test_console_blocks_are_what_the_command_prints(arguments, shown):
    environment = {**os.environ, "COLUMNS": "98"}
    printed = subprocess.run(
        [sys.executable, "-m", "sdyscope", *arguments.split()],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert without_versions(printed) == without_versions(shown)


def test_the_program_in_the_readme_is_the_one_that_is_checked():
    program = (ROOT / "docs" / "indivisible.py").read_text().split("\n\n", 1)[1].rstrip()
    assert f"```python\n{program}\n```" in README


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / link).exists(), link
