"""What a run that was just recorded left, in words.

Nothing else may be imported here than what these need: it costs every recorded run.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from sdyscope.facts.recorded import Record, RecordedProgram, RecordedRun
from sdyscope.process.compiler_log import signal_name
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.words.counts import counted, from_cache
from sdyscope.words.remarks import remark_texts


def totals(record: Record) -> str:
    """How many programs there are and what compiling them took, in a sentence."""
    by_jax = [program for program in record.programs if program.by_jax]
    parts = []
    if record.own:
        parts.append(f"{counted(len(record.own), 'program')}, {_compiled(record.own)}")
    if by_jax:
        parts.append(f"{counted(len(by_jax), 'function')} of JAX, {_compiled(by_jax)}")
    return "; ".join(parts)


def ended(run: RecordedRun) -> str:
    """How a run ended, where that is worth a sentence."""
    if run.status is None:
        return "It has not ended, or its recording was killed."
    if run.status < 0:
        return f"The script was ended by {signal_name(-run.status)}."
    return f"The script ended with exit status {run.status}." if run.status else ""


def summary(record: Record, folder: str, run: RecordedRun) -> Iterator[Paragraph]:
    """What a run that was just recorded left, for its end."""
    if sentence := ended(run):
        yield Paragraph(sentence, "warning")
    if record.programs:
        yield Paragraph(f"{folder}: {totals(record)}; sdyscope show {folder} lists them")
        kept = sum(program.propagated is not None for program in record.own)
        if kept:
            of = f"{kept:,} of {counted(len(record.own), 'program')}"
            yield Paragraph(f"What propagation decides is kept of {of}.", "muted")
    else:
        said = [f"{folder}: JAX compiled nothing in the processes that were recorded."]
        if not run.status:  # else that is why
            if Path(run.command[0]).name.startswith("python"):
                said.append("A script alone, as in -- train.py, runs under sdyscope's own Python.")
            said.append(
                "Python processes started with -I, -E or -S or without PYTHONPATH are not recorded."
            )
        yield Paragraph(" ".join(said), "warning")
    for problem in remark_texts(record.problems):
        yield Paragraph(problem, "warning")


def processes(record: Record) -> Iterator[Paragraph]:
    """A line a process."""
    for process in record.processes:
        own = [program for program in record.programs if process.name in program.processes]
        index = "" if process.index is None else f", process {process.index} of its program"
        yield Paragraph(
            f"{process.name}: {counted(len(own), 'program')}, JAX {process.jax}{index}; "
            f"{shlex.join(process.arguments)}",
            "muted",
        )


def _compiled(programs: Sequence[RecordedProgram]) -> str:
    times = sum(program.compiles for program in programs)
    seconds = sum(program.compile_seconds for program in programs)
    cached = sum(program.cached for program in programs)
    often = "once" if times == 1 else f"{times:,} times"
    return f"compiled {often} in {seconds:.1f} s{from_cache(cached, times)}"
