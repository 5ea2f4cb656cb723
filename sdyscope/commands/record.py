"""`sdyscope record`."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from sdyscope.commands import options
from sdyscope.commands.command_help import Command
from sdyscope.errors import SdyscopeError
from sdyscope.process import output
from sdyscope.terminal.messages import tell

if TYPE_CHECKING:
    from sdyscope.facts.recorded import Record
    from sdyscope.facts.remarks import Remark

_Partitioner: TypeAlias = Literal["shardy", "gspmd", "both"]

#: Which part of a script's CPU time is spent on propagating its programs.
_SHARE = 0.05


@click.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=(
        "record -o run -- python train.py",
        "record -o run -- train.py --steps 10",
    ),
)
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The directory to write: new or empty.",
)
@click.option(
    "--partitioner",
    type=options.choice(_Partitioner),
    help="Run the script under this partitioner; with both, under its own, and also lower every "
    "program under the other. By default only the script's own.",
)
@click.option("--overwrite", is_flag=True, help="Replace the run that DIR holds.")
@click.option(
    "--add",
    is_flag=True,
    help="Add to the run that DIR holds, as when every host of a run records its own process.",
)
@click.option(
    "--propagate/--no-propagate",
    default=None,
    help="Keep what propagation decides, for sdyscope with another JAX: of every program of the "
    "script, or of none. By default as far as a twentieth of the script's CPU time reaches.",
)
@options.json("facts.recorded:Record")
@click.option("--verbose", is_flag=True, help="List what was recorded in each process.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(
    folder: Path,
    partitioner: _Partitioner | None,
    overwrite: bool,
    add: bool,
    propagate: bool | None,
    as_json: bool,
    verbose: bool,
    words: tuple[str, ...],
) -> int:
    """Run a script and capture every program that JAX compiles in it.

    COMMAND is any program, such as python train.py; a file.py or -m package.module alone is run by
    sdyscope's own Python. Nothing in it is changed. Its child processes are recorded, too, and
    what a script that fails has compiled is kept.

    DIR is then a TARGET for every command, DIR:name being one program of it; `show DIR` lists
    them, and `diff DIR_A DIR_B` compares two runs. With --json, what COMMAND prints goes to
    standard error.

    Exit status: that of COMMAND, and 128 + N where signal N ended it. 2, with a message, if it
    did not start, or succeeded but the recording is gone.
    """
    from sdyscope.commands import record_run
    from sdyscope.terminal import paragraphs
    from sdyscope.views import record

    command_line = record_run.command_line(words)
    record_run.prepare(folder, overwrite=overwrite, add=add)
    launch = functools.partial(record_run.to_its_end, quiet=as_json)
    before = record_run.cpu_seconds()
    status = record_run.run(command_line, folder, partitioner or "", launch)
    seconds = (record_run.cpu_seconds() - before) * _SHARE
    remarks: tuple[Remark, ...] = ()
    try:
        recording, run = record_run.finish(folder)
        if propagate or (propagate is None and seconds > record_run.STARTING):
            remarks = _kept(folder, recording, None if propagate else seconds)
            recording, run = record_run.finish(folder)
    except SdyscopeError as error:
        if status == 0:
            raise
        tell(f"error: {error}", whole=f"error: {error.position}")
        return _exit_status(status)
    if propagate:
        recording = replace(recording, problems=(*recording.problems, *remarks))
    messages = output.messages()
    shown = list(record.summary(recording, str(folder), run))
    if verbose:
        shown += record.processes(recording)
    paragraphs.print_paragraphs(shown, messages)
    if as_json:
        from sdyscope.terminal import document  # which takes longer than all else here

        output.answers().write_bytes(document.encode(recording))
    return _exit_status(status)


def _kept(folder: Path, recording: Record, seconds: float | None) -> tuple[Remark, ...]:
    """Keeps what propagation decides; what it says of that. A run is whole without."""
    from sdyscope.commands import record_propagation  # which takes long to import

    try:
        return record_propagation.keep(folder, recording, seconds)
    except SdyscopeError as error:
        tell(f"note: What propagation decides is not kept: {error}")
        return ()


def _exit_status(status: int) -> int:
    return status if status >= 0 else 128 - status
