"""A recorded run in words."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator, Sequence

from sdyscope.facts.recorded import Record, RecordedProgram, Run
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.words.counts import counted


def totals(record: Record) -> str:
    """How many programs there are and what compiling them took, in a sentence."""
    by_jax = [program for program in record.programs if program.by_jax]
    parts = []
    if record.own:
        parts.append(f"{counted(len(record.own), 'program')}, {_compiled(record.own)}")
    if by_jax:
        parts.append(f"{counted(len(by_jax), 'function')} of JAX, {_compiled(by_jax)}")
    return "; ".join(parts)


def ended(run: Run) -> str:
    """How a run ended, where that is worth a sentence."""
    if run.status is None:
        return "It has not ended, or its recording was killed."
    if run.status < 0:
        return f"The script was ended by {signal_name(-run.status)}."
    return f"The script ended with exit status {run.status}." if run.status else ""


def signal_name(number: int) -> str:
    """`SIGTERM`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def summary(record: Record, folder: str, run: Run) -> Iterator[Paragraph]:
    """What a run that was just recorded left, for its end."""
    if sentence := ended(run):
        yield Paragraph(sentence, "warning")
    if record.programs:
        yield Paragraph(f"{folder}: {totals(record)}; sdyscope show {folder} lists them", hang=2)
    else:
        yield Paragraph(
            f"{folder}: JAX compiled nothing in a process that was recorded. Python processes that "
            "are started with -I, -E or -S, or without PYTHONPATH, are not.",
            "warning",
            hang=2,
        )
    for problem in record.problems:
        yield Paragraph(problem, "warning", hang=2)


def processes(record: Record) -> Iterator[Paragraph]:
    """A line a process."""
    for process in record.processes:
        own = [program for program in record.programs if process.name in program.processes]
        index = "" if process.index is None else f", process {process.index} of its program"
        yield Paragraph(
            f"{process.name}: {counted(len(own), 'program')}, JAX {process.jax}{index}; "
            f"{shlex.join(process.arguments)}",
            "muted",
            hang=2,
        )


def _compiled(programs: Sequence[RecordedProgram]) -> str:
    times = sum(program.compiles for program in programs)
    seconds = sum(program.compile_seconds for program in programs)
    return f"compiled {'once' if times == 1 else f'{times:,} times'} in {seconds:.1f} s"
