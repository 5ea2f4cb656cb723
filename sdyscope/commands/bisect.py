"""`sdyscope bisect`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from sdyscope.commands import completing, options, upgrade_carry
from sdyscope.commands.upgrade_words import SubjectCommand, arguments_of, subject_words


@click.command(
    cls=SubjectCommand,
    examples=(
        "bisect --good v1.2 --bad HEAD train.py:step",
        "bisect --good v1.2 train.py:step --what 'memory.total > 16GiB'",
        "bisect --good main~40 train.py:step --what \"params['w1']\"",
        "bisect --good v1.2 -- python train.py --steps 1",
    ),
)
@click.argument("target", metavar="[TARGET]", required=False, shell_complete=completing.targets)
@click.option("--good", metavar="REV", help="A commit before the change.")
@click.option(
    "--bad",
    metavar="REV",
    default="HEAD",
    show_default=True,
    help="A later commit, after the change.",
)
@click.option(
    "--what",
    metavar="WHAT",
    help="A figure (comms.bytes, 'memory.total > 16GiB'), collectives ('all-gather over fsdp'), or "
    "a tensor. By default all collectives.",
)
@click.option("--program", metavar="NAME", help="The program of a script to look at.")
@click.option("--all", "everything", is_flag=True, help="List every difference.")
@options.json("upgrade.bisected:Bisection")
@options.verbose
@options.like(upgrade_carry.carry)
@click.option("--carry", hidden=True, help="Hand the stages of TARGET over, for bisect itself.")
def command(
    target: str | None,
    good: str | None,
    bad: str,
    what: str | None,
    program: str | None,
    everything: bool,
    as_json: bool,
    verbose: bool,
    carry: str | None,
    **opening: Any,
) -> int:
    """Find the commit that changed a sharding or a figure.

    Searches the commits of your repository as git bisect does, each checked out in a worktree of
    its own: your tree, index and branches stay as they are. A commit is lowered first, and only
    compiled if its module is new. One that can't be judged is passed over.

    Names the commit, the lines it changed, the tensors and collectives that differ since, and
    where the difference begins.

    Exit status 0 if the commit was found, 1 if several may be it or nothing changed.
    """
    if carry is not None:
        return upgrade_carry.carry(file=Path(carry), target=target or "", **opening)
    from sdyscope.commands import bisect_commits
    from sdyscope.commands.upgrade_run import Subject
    from sdyscope.process import output, progress
    from sdyscope.terminal import document, paragraphs, table
    from sdyscope.upgrade.forms import text

    if good is None:
        raise click.UsageError("--good names a commit before the change.")
    ctx = click.get_current_context()
    word, script = subject_words(ctx, target)
    variables = options.lowering(**opening)
    subject = Subject(word, script, arguments_of(ctx), variables, opening["partitioner"] or "")
    asked = bisect_commits.Asked(subject, good, bad, what or "", program or "", verbose)
    with contextlib.ExitStack() as stack:
        with progress.shown("sdyscope bisect"):
            bisection = stack.enter_context(bisect_commits.bisected(asked, progress.step))
        if as_json:
            output.answers().write_bytes(document.encode(bisection))
        else:
            for part in text.bisected(bisection, everything=everything):
                if isinstance(part, table.Table):
                    table.print_table(part)
                else:
                    paragraphs.print_paragraphs([part])
    return 0 if bisection.first is not None else 1
