"""What every command has in common."""

import click
import pytest

from sdyscope.__main__ import run_here
from sdyscope.commands import COMMANDS, cli


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_common_options(name):
    options = {option for parameter in command(name).params for option in parameter.opts}
    assert {"--json", "--verbose"} <= options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_explained(name):
    assert command(name).help
    for parameter in command(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_help_lists_every_command_in_a_line_of_80_columns(capsys):
    assert run_here(["--help"]) == 0
    out, err = capsys.readouterr()
    lines = out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert not [line for line in lines if line.endswith("...") or len(line) > 80]
    assert err == ""


def test_nothing_at_all_is_answered_with_help(capsys):
    assert run_here([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: sdyscope")


@pytest.mark.parametrize("words", [["modles"], ["--no-such-option"], ["doctor", "surplus"]])
def test_wrong_usage_is_two_lines(capsys, words):
    assert run_here(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("Try 'sdyscope")
