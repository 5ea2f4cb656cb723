"""`sdyscope bisect`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from sdyscope.commands.upgrade_subject import SubjectCommand, looks
from sdyscope.process import output, progress

if TYPE_CHECKING:
    from sdyscope.commands.upgrade_run import UpgradeSubject


@click.command(
    cls=SubjectCommand,
    examples=(
        "bisect --good v1.2 --bad HEAD train.py:step",
        "bisect --good v1.2 train.py:step --what 'memory.total > 16GiB'",
        "bisect --good main~40 train.py:step --what \"params['w1']\"",
        "bisect --good v1.2 -- python train.py --steps 1",
    ),
)
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
@looks("upgrade.bisected:Bisection")
def command(
    subject: Callable[[], UpgradeSubject],
    good: str | None,
    bad: str,
    what: str | None,
    program: str | None,
    everything: bool,
    strict: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    """Find the commit that changed a sharding or a figure.

    Searches the commits of your repository as git bisect does, each checked out in a worktree of
    its own: your tree, index and branches stay as they are. A commit is lowered first, and only
    compiled if its module is new. One that can't be judged is passed over.

    Names the commit, the lines it changed, the tensors and collectives that differ since, and
    where the difference begins.

    Exit status 0 if the commit was found, 1 if several may be it or nothing changed.
    """
    from sdyscope.commands import bisect_commits
    from sdyscope.terminal import document, paragraphs
    from sdyscope.upgrade.forms import text

    if good is None:
        raise click.UsageError("--good names a commit before the change.")
    asked = bisect_commits.BisectRequest(subject(), good, bad, what or "", program or "", verbose)
    with contextlib.ExitStack() as stack:
        with progress.shown("sdyscope bisect"):
            bisection = stack.enter_context(bisect_commits.bisected(asked, progress.step))
        if as_json:
            output.answers().write_bytes(document.encode(bisection))
        else:
            paragraphs.print_parts(text.bisected(bisection, everything=everything))
            paragraphs.print_paragraphs(text.accounts(bisection.accounts))
    known = not (strict and bisection.accounts)
    return 0 if bisection.first is not None and known else 1
