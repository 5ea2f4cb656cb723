"""`sdyscope snapshot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdyscope.commands import opening, options
from sdyscope.errors import TargetError
from sdyscope.facts.remarks import Remark
from sdyscope.facts.snapshots import STAGES
from sdyscope.hardware.names import Hardware
from sdyscope.process import output
from sdyscope.terminal.messages import tell

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sdyscope.facts.account import Account
    from sdyscope.inspection import Inspection
    from sdyscope.snapshots import Snapshot, Stage
    from sdyscope.snapshots.document import Action


def _read_stages(
    _: click.Context, __: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    if value is None:
        return None
    words = [word.strip() for word in value.split(",")]
    for word in words:
        if word not in STAGES:
            raise click.BadParameter(f"there is no stage {word!r}; there is {', '.join(STAGES)}.")
    return tuple(stage for stage in STAGES if stage in words)


@options.command(
    examples=(
        "snapshot mlp",
        "snapshot mlp -o mlp.snap",
        "snapshot mlp -o mlp.snap --check",
    ),
)
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("-o", "--output", "file", metavar="FILE", help="The snapshot file.")
@click.option("--check", "check", is_flag=True, help="Compare with the file, and write nothing.")
@click.option("--update", "update", is_flag=True, help="Rewrite what changed in the file.")
@click.option(
    "--remove-unused",
    is_flag=True,
    help="With --update, remove programs from the file that are not targets.",
)
@click.option(
    "--stages",
    metavar="STAGE,...",
    callback=_read_stages,
    help=f"Which stages: {', '.join(STAGES)}. By default what the file has, or the first three.",
)
@options.mesh
@options.one_partitioner("The partitioner.", "what the file has, or shardy")
@options.on
@options.settings
@opening.module
@options.strict
@options.json("snapshots.document:SnapshotDocument")
def command(
    targets: tuple[str, ...],
    file: str | None,
    check: bool,
    update: bool,
    remove_unused: bool,
    stages: tuple[Stage, ...] | None,
    mesh: dict[str, int] | None,
    partitioner: str | None,
    on: Hardware | None,
    settings: dict[str, str],
    module: str | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Write the shardings to a golden file, or compare them with it.

    The file is plain text, sorted, with one block per tensor or group of collectives, named by
    pytree path and scope. Source lines and SSA names are not in it.

    --check exits with 1 where a program differs from the file, where the file lacks a program, and
    where it has one that is not among the targets. --update writes only what changed. Without -o
    the snapshot is printed.
    """
    from sdyscope.snapshots import compare, read_snapshots, write
    from sdyscope.snapshots import update as updated
    from sdyscope.snapshots.document import SnapshotDocument
    from sdyscope.snapshots.read import is_snapshot, read_file
    from sdyscope.terminal import document, paragraphs
    from sdyscope.views import snapshot
    from sdyscope.words.account import account_lines, account_title

    _check_options(file, check, update, remove_unused)
    path = Path(file) if file is not None else None
    is_there = path is not None and path.exists()
    if check and not is_there:
        raise TargetError(
            "There is no such file to compare with.", file=file, hint="--update writes it."
        )
    if path is not None and is_there and not (check or update) and not is_snapshot(path):
        raise TargetError(
            "this file exists and is not a snapshot.", file=file, hint="Name another one with -o."
        )
    text = read_file(path) if path is not None and is_there and (check or update) else ""
    before = {snapshot.name: snapshot for snapshot in read_snapshots(text, file)} if text else {}
    opened = _opened(targets, mesh, settings, partitioner, module, before)
    # A golden file is never written without a stage that it had or was asked for.
    partial = not (update or (stages is not None and file is not None and not check))
    now: list[Snapshot] = []
    accounts: dict[str, Account] = {}
    for inspection in opened:
        taken = _taken(inspection, before.get(inspection.name), partitioner, stages, on, partial)
        now.append(taken)
        if taken.account:
            accounts[inspection.name] = taken.account
    named = [taken.name for taken in now]
    missing = [name for name in named if name not in before] if check or update else []
    unused = [name for name in before if name not in named]
    compared = [
        compare(
            before[taken.name],
            taken,
            refused=set(stages or before[taken.name].stages) - set(taken.stages),
        )
        for taken in now
        if taken.name in before
    ]
    action: Action = "print"
    written = False
    if path is not None and check:
        action = "check"
    elif path is not None and update:
        action = "update"
        with output.locked(path):
            # Another process may have written it while this one looked at the programs.
            text = read_file(path) if path.exists() else ""
            content = (
                updated(text, now, remove_unused=remove_unused, file=file) if text else write(now)
            )
            written = content != text
            if written:
                output.write_atomically(path, content)
        unused = [] if remove_unused else unused
    elif path is not None:
        action, written = "write", True
        output.write_atomically(path, write(now))
    result = SnapshotDocument(
        action=action,
        file=file or "",
        programs=tuple(now),
        compared=tuple(compared),
        missing=tuple(missing),
        unused=tuple(unused),
        written=written,
        accounts=accounts,
    )
    if as_json:
        output.answers().write_bytes(document.encode(result))
    elif action == "print":
        output.answers().write(write(now))
    else:
        paragraphs.print_paragraphs(snapshot.paragraphs(result))
    for name, account in accounts.items():
        # Standard output may be the snapshot itself.
        for line in () if as_json else (account_title(account, name), *account_lines(account)):
            tell(line)
    return 1 if (action == "check" and not result.same) or (strict and accounts) else 0


def _check_options(file: str | None, check: bool, update: bool, remove_unused: bool) -> None:
    if check and update:
        raise TargetError("--check and --update exclude each other.", hint="Give one of the two.")
    if file is None and (check or update):
        raise TargetError(
            f"{'--check' if check else '--update'} needs a snapshot file.",
            hint="Name it with -o FILE.",
        )
    if remove_unused and not update:
        raise TargetError("--remove-unused goes with --update.", hint="Give both, or neither.")


def _opened(
    targets: Sequence[str],
    mesh: dict[str, int] | None,
    settings: dict[str, str],
    partitioner: str | None,
    module: str | None,
    before: dict[str, Snapshot],
) -> list[Inspection]:
    """The programs of all targets, each under the partitioners to look at."""
    from sdyscope.inspection import Inspection

    inspections: list[Inspection] = []
    for target in targets:
        asked = options.PARTITIONERS[partitioner or "both"]
        opened = opening.Opening(target, mesh, settings, module).opened(asked)
        for unread in opened.unread:
            raise unread.error
        for inspection in _chosen(opened, before):
            if partitioner is None and inspection.program is not None:
                was = before.get(inspection.name)
                inspection = Inspection(
                    inspection.program, was.partitioners if was else ("shardy",)
                )
            if any(inspection.name == other.name for other in inspections):
                raise TargetError(
                    f"Two of the programs are called {inspection.name}.",
                    file=target,
                    hint="Write each to a snapshot file of its own.",
                )
            inspections.append(inspection)
    return inspections


def _chosen(opened: opening.Opened, before: Collection[str]) -> tuple[Inspection, ...]:
    """The programs of a target: of a recorded run not JAX's own functions, which change with it.

    Those that a file has are compared with it.
    """
    from sdyscope.words.remarks import remark_text

    chosen = tuple(
        program for program in opened.programs if program in opened.own or program.name in before
    )
    left_out = len(opened.programs) - len(chosen)
    if left_out:
        tell(remark_text(Remark("JAX's own not written", opened.word, left_out)))
    return chosen


def _taken(
    inspection: Inspection,
    before: Snapshot | None,
    partitioner: str | None,
    stages: tuple[Stage, ...] | None,
    on: Hardware | None,
    partial: bool,
) -> Snapshot:
    """A program as it is now, under every partitioner that was asked for or that the file has."""
    needed = (partitioner,) if before is None else (partitioner, *before.partitioners)
    for refused, failure in inspection.failures.items():
        if refused in needed:
            raise failure
    chosen = stages if stages is not None or before is None else before.stages
    hardware: Hardware | str | None = on
    if on is None and before is not None and before.hardware and not inspection.is_compiled:
        hardware = before.hardware
    return inspection.snapshot(chosen, hardware, partial=partial)
