"""The GitHub action and the hooks: options that exist, and one comment that is edited."""

import os
import shlex
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from sdyscope.commands import cli, load

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())

GH = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *--paginate*) echo "$OLD";; *) cat "${6#body=@}" >> "$CALLS";; esac
"""


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_hooks_are_command_lines(hook):
    program, name, *words = shlex.split(hook["entry"])
    assert program == "sdyscope"
    targets = [] if name == "ci" else ["-o", "shardings.snap", "mlp"]
    load(name).make_context(name, [*words, *targets], parent=click.Context(cli, obj=()))


def test_nothing_of_a_pull_request_is_pasted_into_a_script():
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize(("old", "method"), [("", "POST"), ("17\n18", "PATCH")])
def test_one_comment_for_each_name(tmp_path, old, method):
    step = ACTION["runs"]["steps"][-1]
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "report.md").write_text("### sdyscope: step\n")
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "OLD": old,
        "MARK": "<!-- sdyscope: train -->",
        "MARKDOWN": str(tmp_path / "report.md"),
        "PAGE": "https://github.com/a/b/artifacts/1",
        "COMMENTS": "repos/a/b/issues/7/comments",
        "EDITED": "repos/a/b/issues/comments",
    }
    subprocess.run(["bash", "-e", "-c", step["run"]], env=environment, check=True)
    _, call, *body = (tmp_path / "calls").read_text().splitlines()
    where = "repos/a/b/issues/comments/17" if old else "repos/a/b/issues/7/comments"
    assert call.startswith(f"api --method {method} {where} ")
    assert body == [
        "<!-- sdyscope: train -->",
        "### sdyscope: step",
        "",
        "[The whole inspection as a page](https://github.com/a/b/artifacts/1)",
    ]
