"""`sdyscope ci`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdyscope.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sdyscope.ci import Config, Found, Outcome, Target
    from sdyscope.views.ci import Ci


@click.command()
@click.option(
    "--config",
    metavar="FILE",
    help="The TOML file with [tool.sdyscope]. By default the nearest pyproject.toml that has it.",
)
@click.option(
    "--target",
    "names",
    metavar="NAME",
    multiple=True,
    help="Only this target of the configuration. Can be repeated.",
)
@click.option("--list", "list_only", is_flag=True, help="List the targets and stop.")
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    help="How many targets at a time. By default as many as there are cores.",
)
@click.option("--update", is_flag=True, help="Write anew what changed in the golden files.")
@click.option(
    "--remove-unused",
    is_flag=True,
    help="With --update, remove programs from golden files that are no targets.",
)
@click.option("--notes", is_flag=True, help="Tell notes, too.")
@click.option("--budgets", is_flag=True, help="List what of each budget is used.")
@click.option(
    "--github/--no-github",
    default=None,
    help="Write annotations for GitHub. By default in GitHub Actions.",
)
@click.option(
    "--summary",
    metavar="FILE",
    help="Write Markdown. By default to $GITHUB_STEP_SUMMARY, if that is set.",
)
@click.option("--junit", metavar="FILE", help="Write JUnit's XML.")
@click.option("--sarif", metavar="FILE", help="Write SARIF 2.1.0.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document (docs/schema describes it) instead of tables.",
)
@click.option("--verbose", is_flag=True, help="Pass on what the compiler logs, on standard error.")
@click.option(
    "--outcome", is_flag=True, hidden=True, help="Print what came of one target, for ci itself."
)
def command(
    config: str | None,
    names: tuple[str, ...],
    list_only: bool,
    jobs: int | None,
    update: bool,
    remove_unused: bool,
    notes: bool,
    budgets: bool,
    github: bool | None,
    summary: str | None,
    junit: str | None,
    sarif: str | None,
    as_json: bool,
    verbose: bool,
    outcome: bool,
) -> int:
    """Check all targets that are configured in pyproject.toml.

    Each target of [tool.sdyscope] is checked, linted, compared with its golden file and held to its
    budgets, in a process of its own, several at a time. Says what was found on the terminal, as
    annotations and a summary for GitHub, as JUnit's XML and as SARIF.

    Exit status 1 where something was found, 2 where a target could not be looked at; the others are
    looked at all the same.
    """
    from sdyscope.ci import find_config, read_config
    from sdyscope.commands import ci_targets, ci_told
    from sdyscope.views import table

    if remove_unused and not update:
        raise TargetError("--remove-unused goes with --update.", hint="Give both, or neither.")
    read = read_config(Path(config).absolute() if config else find_config(Path.cwd()))
    targets = _chosen(read, names)
    if outcome:
        return ci_targets.answer(read, targets[0])
    if list_only:
        from sdyscope.views import ci_text

        table.print_table(ci_text.listed(read))
        return 0
    ci_told.check_writable(summary, junit, sarif)
    found = _run(read, targets, jobs, update, remove_unused, verbose, whole=not names)
    ci_told.tell(found, as_json=as_json, notes=notes, budgets=budgets, github=github)
    ci_told.write(found, summary, junit, sarif, notes=notes)
    return found.exit_status


def _chosen(config: Config, names: Sequence[str]) -> list[Target]:
    """The targets of these names, or all."""
    import difflib

    known = [one.name for one in config.targets]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise TargetError(
                f"There is no target {name!r}.",
                file=config.file,
                hint=f"Did you mean {close[0]!r}?" if close else f"There is {', '.join(known)}.",
            )
    return [one for one in config.targets if not names or one.name in names]


def _run(
    config: Config,
    targets: Sequence[Target],
    jobs: int | None,
    update: bool,
    remove_unused: bool,
    verbose: bool,
    *,
    whole: bool,
) -> Ci:
    from importlib.metadata import version

    from sdyscope.ci import golden_files
    from sdyscope.commands import ci_targets
    from sdyscope.views import ci, progress
    from sdyscope.views.output import write_atomically

    start = time.perf_counter()
    jax = version("jax")
    skipped = {
        one.name: f"It is for JAX {' and '.join(one.jax)}, and this is {jax}."
        for one in targets
        if not one.is_for(jax)
    }
    running = [one for one in targets if one.name not in skipped]
    if not running:
        # Green for ever, from the day on which JAX is a new one.
        raise TargetError(
            f"No target is for JAX {jax}, so nothing was looked at.",
            file=config.file,
            hint="Write the targets' jax anew, or leave it out.",
        )
    with progress.progress_bar() as notify:
        outcomes = ci_targets.outcomes(config, running, jobs, verbose, notify)
    general: list[Found] = []
    if whole and not skipped and not any(one.trouble for one in outcomes.values()):
        general += _unused_ignores(config, outcomes)
    files = list(golden_files(config, outcomes, updating=update, remove_unused=remove_unused))
    updated = [file.path for file in files if file.made != file.text]
    for file in files:
        if file.made != file.text:
            write_atomically(file.path, file.made)
        general += file.unused
    return ci.document(
        config,
        outcomes,
        skipped,
        general,
        version=version("sdyscope"),
        jax=jax,
        seconds=time.perf_counter() - start,
        updated=updated,
        is_update=update,
    )


def _unused_ignores(config: Config, outcomes: Mapping[str, Outcome]) -> Iterator[Found]:
    from sdyscope.ci import unused_ignores

    if any(check.trouble for one in outcomes.values() for check in one.checks):
        return
    used = {config.ignores[number] for one in outcomes.values() for number in one.used_ignores}
    yield from unused_ignores(config.ignores, used)
