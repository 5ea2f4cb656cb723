"""`sdyscope ci`."""

from __future__ import annotations

import io
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdyscope.errors import SdyscopeError, TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sdyscope.ci import Config, Found, Outcome, Target
    from sdyscope.snapshots import Snapshot
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
    from sdyscope.views import table

    if remove_unused and not update:
        raise TargetError("--remove-unused goes with --update.", hint="Give both, or neither.")
    read = read_config(Path(config).absolute() if config else find_config(Path.cwd()))
    targets = _chosen(read, names)
    if outcome:
        return _answer(read, targets[0])
    if list_only:
        from sdyscope.views import ci_text

        table.print_table(ci_text.listed(read))
        return 0
    _check_writable(summary, junit, sarif)
    found = _run(read, targets, jobs, update, remove_unused, verbose, whole=not names)
    _tell(found, as_json=as_json, notes=notes, budgets=budgets, github=github)
    _write(found, summary, junit, sarif, notes=notes)
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


# --- In the child: one target ---------------------------------------------------------------------


def _answer(config: Config, target: Target) -> int:
    """Looks at a target and answers what came of it, for the process that asked."""
    import msgspec

    from sdyscope.ci import Outcome, Trouble
    from sdyscope.views import output

    start = time.perf_counter()
    try:
        found = _judged(config, target)
    except SdyscopeError as error:
        found = Outcome(target.name, trouble=Trouble.of(error))
    found = replace(found, seconds=time.perf_counter() - start)
    output.answers().write_bytes(msgspec.json.encode(found))
    return 0


def _judged(config: Config, target: Target) -> Outcome:
    from sdyscope.ci import judge
    from sdyscope.commands import mesh_choice, opening
    from sdyscope.hardware import parse_hardware

    on = None if target.on is None else parse_hardware(target.on)
    devices = None if target.devices is None else mesh_choice.parse_devices(target.devices)
    about = {"target": target.word, "on": on, "settings": target.settings}
    mesh = mesh_choice.chosen_mesh(
        target.mesh, target.mesh_config, target.mesh_selector, devices, about
    )
    inspection = opening.open_one(
        target.word,
        mesh=mesh,
        settings=target.settings,
        partitioners=target.partitioners,
        module=target.module,
    )
    return judge(config, target, inspection)


# --- In the parent: all of them -------------------------------------------------------------------


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

    from sdyscope.views import ci, progress

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
        outcomes = _outcomes(config, running, jobs or _cores(), verbose, notify)
    general: list[Found] = []
    if whole and not skipped and not any(one.trouble for one in outcomes.values()):
        general += _unused_ignores(config, outcomes)
    updated, unused = _golden(config, outcomes, update, remove_unused)
    return ci.document(
        config,
        outcomes,
        skipped,
        [*general, *unused],
        version=version("sdyscope"),
        jax=jax,
        seconds=time.perf_counter() - start,
        updated=updated,
        is_update=update,
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _outcomes(
    config: Config,
    targets: Sequence[Target],
    jobs: int,
    verbose: bool,
    notify: Callable[[str, int, int], None],
) -> dict[str, Outcome]:
    import msgspec

    from sdyscope import child, children
    from sdyscope.ci import Outcome, Trouble

    works = [
        children.Work(
            f"target {one.name!r}",
            ("ci", "--config", str(config.file), "--target", one.name, "--outcome"),
            child.LOWERING,
            config.file.parent,
        )
        for one in targets
    ]
    notify("looking at targets", 0, len(works))
    answers = children.run_all(
        works, jobs, lambda done: notify("looking at targets", done, len(works))
    )
    found: dict[str, Outcome] = {}
    for target, answer in zip(targets, answers, strict=True):
        if answer.data:
            found[target.name] = msgspec.json.decode(answer.data, type=Outcome)
        else:
            said = answer.messages.strip().removeprefix("error: ")
            trouble = Trouble(str(answer.error or said))
            found[target.name] = Outcome(target.name, trouble=trouble)
        # What the user's program prints while it is traced, and warnings.
        lines = answer.messages.splitlines() if answer.data or answer.error else []
        lines += [f"compiler: {line}" for line in answer.log] if verbose else []
        for line in lines:
            click.echo(f"{target.name}: {line}", err=True)
    return found


def _unused_ignores(config: Config, outcomes: Mapping[str, Outcome]) -> Iterator[Found]:
    from sdyscope.ci import unused_ignores

    if any(check.trouble for one in outcomes.values() for check in one.checks):
        return
    used = {config.ignores[number] for one in outcomes.values() for number in one.used_ignores}
    yield from unused_ignores(config.ignores, used)


def _golden(
    config: Config, outcomes: Mapping[str, Outcome], update: bool, remove_unused: bool
) -> tuple[list[Path], list[Found]]:
    """Writes golden files where that is wanted, and finds programs in them that are no targets."""
    from sdyscope.ci import unused_programs
    from sdyscope.snapshots import read_snapshots
    from sdyscope.snapshots import update as updated
    from sdyscope.snapshots import write as written
    from sdyscope.snapshots.read import read_file
    from sdyscope.views.output import write_atomically

    files: dict[Path, list[str]] = {}
    for target in config.targets:
        if target.snapshot is not None:
            files.setdefault(target.snapshot.path, []).append(target.name)
    changed: list[Path] = []
    unused: list[Found] = []
    for path, names in files.items():
        now: list[Snapshot] = []
        for name in names:
            if name in outcomes and outcomes[name].snapshot:
                now += read_snapshots(outcomes[name].snapshot)
        if not now:
            continue  # Nothing is known, or what is in the file can't be read: its targets say so.
        text = read_file(path) if path.exists() else ""
        there = {one.name: one for one in read_snapshots(text, path)} if text else {}
        if update:
            looked_at = {one.name for one in now}
            kept = [one for name, one in there.items() if name in names and name not in looked_at]
            made = (
                updated(text, [*now, *kept], remove_unused=remove_unused, file=path)
                if text
                else written(now)
            )
            if made != text:
                write_atomically(path, made)
                changed.append(path)
                text = made
        strangers = [name for name in there if name not in names]
        if strangers and not remove_unused:
            unused += unused_programs(text, path, strangers)
    return changed, unused


# --- What is told ---------------------------------------------------------------------------------


def _check_writable(*files: str | None) -> None:
    """Finds a folder that is not there before anything takes time."""
    for file in files:
        if file is not None and not Path(file).absolute().parent.is_dir():
            raise TargetError("There is no such folder to write to.", file=file)


def _tell(found: Ci, *, as_json: bool, notes: bool, budgets: bool, github: bool | None) -> None:
    from sdyscope import child
    from sdyscope.views import ci_github, ci_text, document, output, paragraphs, table

    real = output.answers()
    answer = io.BytesIO()
    stream = io.TextIOWrapper(answer, encoding=real.stream.encoding, errors="backslashreplace")
    here = output.Output(stream, real.terminal, real.columns)
    if as_json:
        here.write_bytes(document.encode(found))
    else:
        table.print_table(ci_text.overview(found), here)
        paragraphs.print_paragraphs(ci_text.paragraphs(found, notes=notes), here)
        for target in (one for one in found.targets if budgets and one.budgets):
            here.write("")
            table.print_table(ci_text.budgets(target), here)
    if github if github is not None else os.environ.get("GITHUB_ACTIONS") == "true":
        # The runner reads both streams; a document is alone on its own.
        for line in ci_github.annotation_lines(found):
            if as_json:
                click.echo(line, err=True)
            else:
                here.write(line)
    stream.flush()
    child.pass_on(answer, real)


def _write(
    found: Ci, summary: str | None, junit: str | None, sarif: str | None, *, notes: bool
) -> None:
    from sdyscope.views import ci_junit, ci_markdown, ci_sarif
    from sdyscope.views.output import write_atomically

    step = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if summary is not None:
        write_atomically(summary, ci_markdown.markdown(found, notes=notes) + "\n")
    elif step:
        _append(step, ci_markdown.markdown(found, notes=notes))
    if junit is not None:
        write_atomically(junit, ci_junit.junit(found))
    if sarif is not None:
        write_atomically(sarif, ci_sarif.sarif(found))


def _append(file: str, text: str) -> None:
    """Adds to the step's summary, which other commands of the step may have begun."""
    try:
        with open(file, "a", encoding="utf-8") as summary:
            summary.write(text + "\n")
    except OSError as error:
        raise TargetError(
            f"cannot write the step's summary: {error.strerror or error}", file=file
        ) from error
