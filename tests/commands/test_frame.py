"""What every command has in common."""

import itertools
import re
import shlex

import click
import pytest

from sdyscope.__main__ import run_here
from sdyscope.commands import COMMANDS, SECTIONS, cli
from sdyscope.commands.docs import pages

#: What these say is text for people; or is searched, and nothing is compiled for it.
OF_TEXT = ("docs", "completion", "symptoms", "skill")


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_common_options(name):
    options = {option for parameter in command(name).params for option in parameter.opts}
    assert name in OF_TEXT or {"--json", "--verbose"} <= options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_explained(name):
    assert command(name).help
    for parameter in command(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_help_lists_every_command_in_a_line_of_80_columns(capsys):
    assert run_here(["--help"]) == 0
    out, err = capsys.readouterr()
    sections = dict(re.findall(r"^(\S.*\S):\n((?: +.*\n)+)", out, re.MULTILINE))
    listed = {
        title: tuple(line.split()[0] for line in text.splitlines())
        for title, text in sections.items()
        if title != "Options"
    }
    assert listed == SECTIONS
    _usage, *lines = out.splitlines()
    assert not [line for line in lines if line.endswith("...") or len(line) > 80]
    assert err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_breaks_no_word_at_a_hyphen(name, capsys):
    assert run_here([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    assert not re.findall(r"\w-$", text, re.MULTILINE)


def test_nothing_at_all_is_answered_with_help(capsys):
    assert run_here([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: sdyscope")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_own_options_first_examples_that_can_be_run_and_a_page(name, capsys):
    assert run_here([name, "--help"]) == 0
    text = capsys.readouterr().out
    headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    order = ["Examples", "Options", "The program", "Output"]
    assert headings == [one for one in order if one in headings]
    assert {"Examples", "Output"} <= set(headings)
    has_page = name in pages() or f"{name}/README" in pages()
    assert has_page == (f"`sdyscope docs {name}` says more." in text)
    assert has_page or name == "docs"
    for example in command(name).examples:
        assert f"  sdyscope {example}\n" in text
        words = [*itertools.takewhile(lambda word: word[0] != ">", shlex.split(example))]
        assert words[0] == name
        command(name).make_context(name, words[1:], parent=click.Context(cli, obj=()))


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("shwo", "Did you mean 'show'?"),
        ("mlp", "A TARGET comes after a command: sdyscope show mlp."),
        ("train.py:step", "A TARGET comes after a command: sdyscope show train.py:step."),
    ],
)
def test_a_word_that_is_no_command_says_what_may_be_meant(word, meant, capsys):
    assert run_here([word]) == 2
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize("words", [["modles"], ["--no-such-option"], ["doctor", "surplus"]])
def test_wrong_usage_is_two_lines(capsys, words):
    assert run_here(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("Try 'sdyscope")


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (lambda: int("9" * 5_000), "A number of the input has too many digits to be read."),
        (lambda: _endless(), "The input is nested too deep to be read."),
        (lambda: _raise(MemoryError()), "memory ran out."),
    ],
    ids=["digits", "depth", "memory"],
)
def test_what_any_reader_may_meet_is_one_sentence(monkeypatch, capsys, raised, words):
    monkeypatch.setattr(cli, "main", lambda *_, **__: raised())
    assert run_here(["show", "mlp"]) == 2
    assert capsys.readouterr().err == f"error: {words}\n"


def _raise(error):
    raise error


def _endless():
    return _endless()
