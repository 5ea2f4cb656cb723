"""`sdyscope skill`."""

from __future__ import annotations

from pathlib import Path

import click

from sdyscope.commands.command_help import Command


@click.command(
    cls=Command,
    examples=(
        "skill",
        "skill -o .claude/skills/sdyscope/SKILL.md",
        "skill -o .agents/skills/sdyscope/SKILL.md",
    ),
)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file; its folder is made. By default to standard output.",
)
def command(path: Path | None) -> int:
    """Write a SKILL.md that teaches an agent to use sdyscope.

    It has the commands for each symptom and how to read their answers, from the pages of this
    version: write it again after an upgrade.
    """
    from sdyscope.commands import SECTIONS, load
    from sdyscope.commands.docs import pages
    from sdyscope.process import output
    from sdyscope.words.skill import skill
    from sdyscope.words.symptoms import read_symptoms

    commands = {
        title: {
            name: subcommand.get_short_help_str(200)
            for name in names
            if (subcommand := load(name)) is not None
        }
        for title, names in SECTIONS.items()
    }
    known = read_symptoms(pages()["symptoms"].read_text(encoding="utf-8"))
    text = skill(known, commands)
    here = output.answers()
    if path is None:
        here.write(text)
        return 0
    output.make_folder(path.parent)
    output.write_atomically(path, text + "\n")
    here.write(f"{path}: {len(text.encode()) + 1:,} bytes")
    return 0
