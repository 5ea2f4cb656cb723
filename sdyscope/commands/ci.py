"""`sdyscope ci`."""

from __future__ import annotations

import io
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sdyscope.commands import completing, options
from sdyscope.commands.command_help import Command
from sdyscope.errors import SdyscopeError, TargetError, did_you_mean
from sdyscope.hardware.names import parse_devices, parse_hardware
from sdyscope.process import child, output, progress
from sdyscope.process.output import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdyscope.ci import Ci, Config, Outcome, Target
    from sdyscope.ci.document import CiRemedy
    from sdyscope.ci.forms import Reader
    from sdyscope.commands.opening import Opening
    from sdyscope.inspection import Inspection


@click.command(
    cls=Command,
    examples=(
        "ci",
        "ci --target mlp --update",
        "ci --junit ci.xml --sarif ci.sarif",
    ),
)
@click.option(
    "--config",
    metavar="FILE",
    help="The TOML file with [tool.sdyscope]. By default the nearest pyproject.toml that has it.",
)
@click.option(
    "--target",
    "names",
    shell_complete=completing.ci_targets,
    metavar="NAME",
    multiple=True,
    help="Only this target of the configuration. Can be repeated.",
)
@click.option("--list", "list_only", is_flag=True, help="List the targets and stop.")
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    help="Targets to check in parallel. By default one per core.",
)
@click.option("--update", is_flag=True, help="Rewrite what changed in the golden files.")
@click.option(
    "--remove-unused",
    is_flag=True,
    help="With --update, remove programs that are not targets from golden files.",
)
@click.option(
    "--fix",
    "fixing",
    is_flag=True,
    help="Look for a proven edit of the source where a target fails: a minute each.",
)
@click.option("--notes", is_flag=True, help="Also show notes.")
@click.option("--budgets", is_flag=True, help="List how much of each budget is used.")
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
@click.option("--junit", metavar="FILE", help="Write JUnit XML.")
@click.option("--sarif", metavar="FILE", help="Write SARIF 2.1.0.")
@options.json("ci.document:Ci")
@options.verbose
@click.option(
    "--outcome", is_flag=True, hidden=True, help="Print the result of one target, for ci itself."
)
def command(
    config: str | None,
    names: tuple[str, ...],
    list_only: bool,
    jobs: int | None,
    update: bool,
    remove_unused: bool,
    fixing: bool,
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
    """Check all targets configured in pyproject.toml.

    Each target of [tool.sdyscope] is checked, linted, compared with its golden file and held to its
    budgets, in a process of its own, several at a time. Findings go to the terminal, to
    annotations and a summary for GitHub, to JUnit XML and to SARIF.

    Exit status 1 if something was found, 2 if a target could not be checked; the others are checked
    all the same.
    """
    from sdyscope.ci import find_config, read_config
    from sdyscope.terminal import table

    if remove_unused and not update:
        raise TargetError("--remove-unused goes with --update.", hint="Give both, or neither.")
    read = read_config(Path(config).absolute() if config else find_config(Path.cwd()))
    targets = _chosen(read, names)
    if outcome:
        return _answer(read, targets[0], updating=update, fixing=fixing)
    if list_only:
        from sdyscope.ci.forms.text import listed

        table.print_table(listed(read))
        return 0
    files = {
        form: file
        for form, file in (("summary", summary), ("junit", junit), ("sarif", sarif))
        if file is not None
    }
    output.check_folders(*files.values())

    with progress.shown("sdyscope ci"):
        from sdyscope.ci.forms import FORMS, Reader
        from sdyscope.ci.run import run

        result = run(
            read,
            targets,
            progress.step,
            jobs=jobs,
            verbose=verbose,
            updating=update,
            remove_unused=remove_unused,
            fixing=fixing,
        )
    if github is None:
        github = os.environ.get("GITHUB_ACTIONS") == "true"
    _print(result, "json" if as_json else "text", Reader(notes, budgets), github)
    for form, file in files.items():
        write_atomically(file, FORMS[form](result, Reader(notes)))
    step = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if step and summary is None:
        _append(step, FORMS["summary"](result, Reader(notes)))
    return result.exit_status


def _print(result: Ci, form: str, reader: Reader, github: bool) -> None:
    """Prints what was found, and annotations for GitHub where they are wanted."""
    from sdyscope.ci.forms import FORMS

    real = output.answers()
    reader = replace(
        reader, terminal=real.terminal, columns=real.columns, encoding=real.stream.encoding
    )
    answer = FORMS[form](result, reader)
    if form == "json":
        answer = output.escaped(answer)
    if github:
        annotations = FORMS["github"](result, reader)
        # The runner reads both streams; a document is alone on its own.
        if form == "json":
            output.say(annotations.decode().rstrip("\n"))
        else:
            answer += output.escaped(annotations)
    child.pass_on(io.BytesIO(answer), real)


def _append(file: str, text: bytes) -> None:
    """Adds to the step's summary, which other commands of the step may have begun."""
    try:
        with open(file, "ab") as summary:
            summary.write(text)
    except OSError as error:
        raise TargetError(
            f"cannot write the step's summary: {error.strerror or error}", file=file
        ) from error


def _chosen(config: Config, names: Sequence[str]) -> list[Target]:
    """The targets of these names, or all."""
    known = [target.name for target in config.targets]
    for name in names:
        if name not in known:
            raise TargetError(
                f"There is no target {name!r}.",
                file=config.file,
                hint=did_you_mean(name, known, f"There is {', '.join(known)}."),
            )
    return [target for target in config.targets if not names or target.name in names]


def _answer(config: Config, target: Target, *, updating: bool, fixing: bool) -> int:
    """Looks at a target and answers what came of it, for the process that asked."""
    import msgspec

    from sdyscope.ci import Outcome
    from sdyscope.ci.judge import unjudged
    from sdyscope.ci.places import RepositoryPlaces
    from sdyscope.words.paths import paths_from

    start = time.perf_counter()
    try:
        # This process is in the configuration's folder, its reader need not be.
        with paths_from(str(RepositoryPlaces(config.file).root)):
            outcome = _judged(config, target, updating, fixing)
    except SdyscopeError as error:
        outcome = Outcome(unjudged(config, target, error=error))
    seconds = time.perf_counter() - start
    outcome = replace(outcome, target=replace(outcome.target, seconds=seconds))
    output.answers().write_bytes(msgspec.json.encode(outcome))
    return 0


def _judged(config: Config, target: Target, updating: bool, fixing: bool) -> Outcome:
    from sdyscope.ci import judge
    from sdyscope.commands import mesh_choice, named_axes, opening

    on = None if target.on is None else parse_hardware(target.on)
    devices = None if target.devices is None else parse_devices(target.devices)
    about: dict[str, Any] = {"target": target.word, "on": on, "settings": target.settings}
    mesh = mesh_choice.chosen_mesh(
        target.mesh,
        target.mesh_config,
        target.mesh_selector,
        devices,
        about,
    )
    about |= mesh_choice.with_mapping(target.mesh_config, about, quiet=target.lint)
    subject = opening.Opening(target.word, mesh, about["settings"] or {}, target.module)
    inspection = subject.inspection(target.partitioners or subject.under(None))
    logical, why_not = None, ""
    if target.lint:
        logical, why_not = named_axes.logical_axes(inspection, target.mesh_config)
    outcome = judge(config, target, inspection, logical, why_not, updating=updating)
    if fixing and outcome.target.status == "failed" and inspection.program is not None:
        remedy = _remedy(config, target, subject, inspection)
        outcome = replace(outcome, target=replace(outcome.target, remedy=remedy))
    return outcome


def _remedy(
    config: Config,
    target: Target,
    subject: Opening,
    inspection: Inspection,
) -> CiRemedy | None:
    """The best proven edit of a target's source; None where there is none."""
    from sdyscope.ci.places import RepositoryPlaces
    from sdyscope.ci.remedies import remedy_of

    root = str(RepositoryPlaces(config.file).root)
    answer = subject.bench(inspection).fix(on=target.on, root=root)
    return remedy_of(answer, answer.proven[0], root) if answer.proven else None
