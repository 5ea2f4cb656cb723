"""`sdyscope skill`: what it writes can be run, and has every symptom."""

import re
import shlex

import click
import yaml

from sdyscope.commands import COMMANDS, cli, load
from sdyscope.commands.docs import pages
from sdyscope.terminal.brief import tokens
from sdyscope.words.symptoms import read_symptoms


def test_it_is_a_skill(sdyscope):
    text = sdyscope("skill").out
    _, head, body = text.split("---\n", 2)
    about = yaml.safe_load(head)
    assert about["name"] == "sdyscope"
    assert len(about["description"]) <= 1024
    # It is read whole, before the first command.
    assert tokens(body) < 7_000
    for name in COMMANDS:
        assert f"- `{name}`: " in body
    for symptom in read_symptoms(pages()["symptoms"].read_text()):
        assert f"### {symptom.title}\n" in body
        assert symptom.prose[0] in body


def test_every_command_line_in_it_can_be_run(sdyscope):
    text = sdyscope("skill").out
    inline = re.findall(r"`(sdyscope [a-z]+ [^`]*)`", text)
    blocks = re.findall(r"^(sdyscope .*)$", text, re.MULTILINE)
    assert inline
    assert blocks
    for line in (*inline, *blocks):
        words = shlex.split(line)
        command = load(words[1])
        if command is None:  # `sdyscope COMMAND ...`
            continue
        command.make_context(words[1], words[2:], parent=click.Context(cli, obj=()))


def test_it_is_written_to_a_folder_that_is_made(sdyscope, tmp_path):
    file = tmp_path / ".agents" / "skills" / "sdyscope" / "SKILL.md"
    done = sdyscope("skill", "-o", file)
    assert done.out == f"{file}: {file.stat().st_size:,} bytes\n"
    assert file.read_text() == sdyscope("skill").out


def test_brief_is_the_document_of_a_command(sdyscope):
    done = sdyscope("models", "--brief")
    whole = sdyscope("models", "--json").document("models")
    brief = yaml.safe_load(done.out)
    assert brief["document"] == whole["schema"]
    assert set(brief) == set(whole) | {"document", "brief"}
    assert tokens(done.out) < 4_000
