"""`sdyscope upgrade`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from sdyscope.commands.upgrade_subject import SubjectCommand, looks
from sdyscope.errors import TargetError
from sdyscope.process import output, progress

if TYPE_CHECKING:
    from sdyscope.commands.upgrade_run import UpgradeSubject
    from sdyscope.upgrade.document import Upgrade


@click.command(
    cls=SubjectCommand,
    examples=(
        "upgrade --from 0.10.2 --to 0.12 -- python train.py",
        "upgrade --to 0.12 train.py:step --summary upgrade.md",
        "upgrade --versions 0.9 0.10 0.11 0.12 mlp",
        "upgrade --from 0.9 --to 0.12 mlp --bisect --what comms.bytes",
    ),
)
@click.option(
    "--from",
    "first",
    metavar="VERSION",
    help="The JAX to compare with: 0.10.2, or 0.10 for the newest 0.10; or the folder of an "
    "environment. By default the one that is installed here.",
)
@click.option(
    "--to",
    "last",
    metavar="VERSION",
    help="The JAX to upgrade to. By default the newest release.",
)
@click.option(
    "--versions",
    metavar="VERSION...",
    help="Several versions side by side, in place of --from and --to.",
)
@click.option(
    "--requirements",
    metavar="FILE",
    help="What else the environments have: a requirements file or a pyproject.toml, or the word "
    "installed for what is installed here. JAX, jaxlib and plugins in it are left out.",
)
@click.option(
    "--python",
    metavar="PYTHON",
    help="The Python of the environments, such as 3.12. By default one that all versions support.",
)
@click.option("--pre", is_flag=True, help="Dev releases and release candidates count, too.")
@click.option(
    "--bisect",
    "bisecting",
    is_flag=True,
    help="Also find the release in which --what changed.",
)
@click.option(
    "--what",
    metavar="WHAT",
    help="With --bisect: a figure (comms.bytes, 'memory.total > 16GiB'), collectives ('all-gather "
    "over fsdp'), or a tensor. By default all collectives.",
)
@click.option(
    "--changelog",
    metavar="FILE",
    help="With --bisect: JAX's CHANGELOG.md. By default that of its repository.",
)
@click.option(
    "--budgets",
    "budget",
    metavar="NAME",
    help="Hold the last version to the budgets of this target in pyproject.toml. By default those "
    "of the target that is TARGET.",
)
@click.option("--summary", metavar="FILE", help="Write Markdown for a pull request.")
@click.option("--page", metavar="FILE", help="Write the comparison as an offline HTML page.")
@looks("upgrade.document:Upgrade")
def command(
    subject: Callable[[], UpgradeSubject],
    first: str | None,
    last: str | None,
    versions: str | None,
    requirements: str | None,
    python: str | None,
    pre: bool,
    bisecting: bool,
    what: str | None,
    changelog: str | None,
    program: str | None,
    budget: str | None,
    summary: str | None,
    page: str | None,
    everything: bool,
    strict: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    """Show what another JAX changes: shardings, collectives, memory.

    Makes an environment for each version of JAX and keeps it in the cache folder. Runs the
    script, or opens TARGET, in each, by its own JAX. Compares what was requested, lowered,
    propagated and compiled, memory, estimated cost and recompiles; groups differences by where
    they begin.

    With --bisect, also finds the release that changed something, and prints what its notes say of
    sharding.

    Exit status 1 if something got worse or exceeds a budget, 2 if a version could not be looked at
    or nothing could be bisected.
    """
    from sdyscope.commands import upgrade_versions

    named = _named(first, last, versions)
    if (what or changelog) and not bisecting:
        raise TargetError("--what and --changelog go with --bisect.", hint="Give --bisect, too.")
    output.check_folders(summary, page)
    asked = upgrade_versions.UpgradeRequest(
        subject=subject(),
        versions=named,
        requirements=requirements,
        python=python,
        pre=pre,
        what=(what or "") if bisecting else None,
        changelog=changelog,
        program=program or "",
        budget=budget,
        verbose=verbose,
    )
    with progress.shown("sdyscope upgrade"):
        upgrade = upgrade_versions.upgraded(asked, progress.step)
    _write(upgrade, summary, page, program or "", everything=everything, as_json=as_json)
    return upgrade.exit_status or int(strict and upgrade.not_known)


def _named(first: str | None, last: str | None, versions: str | None) -> tuple[str, ...]:
    """The versions that are named, two or more; `installed` for the one that is installed here."""
    if versions is None:
        return first or "installed", last or "latest"
    if first or last:
        raise TargetError(
            "--versions stands in place of --from and --to.", hint="Leave the others out."
        )
    named = tuple(filter(None, versions.split(",")))
    if len(named) < 2:
        raise TargetError("--versions names two versions or more.", hint="--versions 0.10 0.12.")
    return named


def _write(
    upgrade: Upgrade,
    summary: str | None,
    page: str | None,
    program: str,
    *,
    everything: bool,
    as_json: bool,
) -> None:
    from sdyscope.terminal import document, paragraphs
    from sdyscope.upgrade.forms import text

    if as_json:
        output.answers().write_bytes(document.encode(upgrade))
    else:
        paragraphs.print_parts(text.upgraded(upgrade, everything=everything))
    if summary is not None:
        from sdyscope.upgrade.forms import markdown

        output.write_atomically(summary, markdown.render(upgrade))
    if page is not None:
        from sdyscope.upgrade.forms import html

        output.write_atomically(page, html.render(upgrade, program))
