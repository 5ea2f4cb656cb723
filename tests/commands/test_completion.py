"""Completion in the shell."""

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from sdyscope.commands import COMMANDS, cli
from sdyscope.commands.docs import pages
from sdyscope.lint import RULES
from sdyscope.targets import model_names


def offered(*words):
    *before, word = words
    completions = ShellComplete(cli, {}, "sdyscope", "_SDYSCOPE_COMPLETE").get_completions(
        before, word
    )
    return [one.value for one in completions]


def test_commands_options_and_choices():
    assert offered("") == list(COMMANDS)
    assert offered("sh") == ["show"]
    assert "--mesh-config" in offered("show", "mlp", "--mesh")
    assert offered("show", "mlp", "--partitioner", "") == ["shardy", "gspmd", "both"]


def test_targets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    assert offered("show", "") == [*model_names(), "mine.py"]
    assert offered("diff", "mlp", "m") == ["mlp", "mine.py"]
    (files,) = ShellComplete(cli, {}, "sdyscope", "_").get_completions(["show"], "tr")
    assert (files.type, files.value) == ("file", "tr")


def test_meshes_and_settings_of_a_model():
    assert offered("show", "mlp", "--mesh", "") == ["data=4,model=2", "data=", "model="]
    assert offered("show", "mlp", "--mesh", "data=8,") == ["data=8,model="]
    assert offered("diff", "mlp", "--mesh", "m") == ["model="]
    assert "layers=" in offered("show", "mlp", "--set", "la")
    assert offered("show", "train.py:step", "--mesh", "") == []


def test_rules_hardware_and_pages():
    assert offered("lint", "mlp", "--select", "donation") == [
        name for name in RULES if name.startswith("donation")
    ]
    assert offered("lint", "mlp", "--ignore", "rng-replicated,bytes") == [
        "rng-replicated,bytes-differ"
    ]
    assert "tpu:v5e:" in offered("memory", "mlp", "--on", "tpu")
    assert "cpu:" in offered("memory", "mlp", "--on", "")
    assert offered("docs", "schema/sh") == ["schema/show"]
    assert offered("docs", "") == list(pages())


def test_targets_of_ci(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert offered("ci", "--target", "") == []
    (tmp_path / "pyproject.toml").write_text(
        '[tool.sdyscope.targets.one]\ntarget = "mlp"\n[tool.sdyscope.targets.two]\ntarget = "mlp"\n'
    )
    assert offered("ci", "--target", "") == ["one", "two"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_ask_by_the_variable_that_answers(sdyscope, shell):
    script = sdyscope("completion", shell).out
    assert f"_SDYSCOPE_COMPLETE={shell}_complete" in script


def test_bash_completes(tmp_path, sdyscope):
    script = tmp_path / "completion.bash"
    script.write_text(sdyscope("completion", "bash").out)
    (tmp_path / "sdyscope").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sdyscope "$@"\n')
    (tmp_path / "sdyscope").chmod(0o755)
    asked = (
        f"source {script}; COMP_WORDS=(sdyscope show ml); COMP_CWORD=2; "
        "_sdyscope_completion sdyscope; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "mlp"
