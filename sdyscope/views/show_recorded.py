"""The table that `show` prints of a recorded run, and the words around it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import sep

from sdyscope.analysis.show import Show, ShownProgram
from sdyscope.facts.recompiles import Recompile
from sdyscope.facts.recorded import Line, Record, RecordedProgram
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, fitted, number
from sdyscope.views.record import ended, totals
from sdyscope.words.counts import counted, few, from_cache, size
from sdyscope.words.mesh import mesh_texts
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.paths import file_text, shortened
from sdyscope.words.places import source_text
from sdyscope.words.recompiles import advice, cause
from sdyscope.words.remarks import remark_texts
from sdyscope.words.sharding import NONE

#: How many programs, and how many lines that call one, are listed.
_LISTED = 6


@fitted
def overview(brief: bool, show: Show, record: Record, *, everything: bool = False) -> Table:
    """A row a program, and what was recorded of each.

    Args:
        brief: whether the table is wider than the line.
        show: the document of its modules.
        record: what was recorded.
        everything: whether to list JAX's own functions as well.
    """
    shown = {program.name: program for program in show.programs}
    groups = [("", record.own)]
    if everything or not record.own:
        by_jax = tuple(program for program in record.programs if program.by_jax)
        groups.append(("functions of JAX", by_jax))
    name_line = _brief_lines(record) if brief else source_text
    rows: list[Row] = []
    for title, group in groups:
        if title and group and record.own:
            rows.append(Heading(f"{title} ({len(group):,})"))
        listed = [program for program in group if program.label in shown]
        eager = [program for program in listed if program.is_eager and not everything]
        folded = eager if len(eager) > 1 else []
        rows += [
            _row(program, shown[program.label], name_line, brief=brief)
            for program in listed
            if program not in folded
        ]
        if folded:
            rows.append(_eager_row(folded, shown, name_line, brief=brief))
    return Table(
        title=f"{show.target}: {totals(record)}",
        columns=(
            Column("program"),
            Column("line"),
            Column("for"),
            Column("mesh"),
            number("compiled" if not brief else "comp."),
            number("seconds" if not brief else "s"),
            number("ops"),
            number("shardings" if not brief else "sh."),
            number("bytes"),
        ),
        rows=tuple(rows),
    )


def _brief_lines(record: Record) -> Callable[[Line | None], str]:
    """Names lines by their files' names, with as many folders as tell the record's files apart."""
    lines = [
        line for program in record.programs for line in (program.line, *program.called) if line
    ]
    files = {file_text(line.file) for line in lines}

    def name(line: Line | None) -> str:
        text = source_text(line)
        if line is None or (file := file_text(line.file)) not in files:
            return text
        parts = file.split(sep)
        for count in range(1, len(parts)):
            tail = sep.join(parts[-count:])
            if sum(other == tail or other.endswith(sep + tail) for other in files) == 1:
                return f"{tail}:{line.line}"
        return text

    return name


def _row(
    program: RecordedProgram,
    shown: ShownProgram,
    name_line: Callable[[Line | None], str],
    *,
    brief: bool,
) -> tuple[Cell | str, ...]:
    first = next(iter(program.modules))
    # Each partitioner's module has the same ones.
    meshes = dict.fromkeys(mesh_texts(shown.meshes, brief=brief))
    annotated = sum(bool(t.lowered[first].text) for t in shown.tensors if first in t.lowered)
    compiled = _often(program)
    return (
        program.label,
        name_line(program.line),
        ", ".join(map(partitioner_name, program.modules)),
        "; ".join(meshes) or Cell(NONE, "muted"),
        Cell(f"{compiled} refused", "bad") if program.refused else compiled,
        f"{program.compile_seconds:,.2f}",
        f"{shown.ops.get(first, 0):,}",
        f"{annotated:,}",
        size(shown.arguments.bytes_per_device),
    )


def _eager_row(
    programs: Sequence[RecordedProgram],
    shown: Mapping[str, ShownProgram],
    name_line: Callable[[Line | None], str],
    *,
    brief: bool,
) -> tuple[Cell | str, ...]:
    """One row for the ops of shard_maps outside of jit, each of which JAX compiles alone."""
    rows = [shown[program.label] for program in programs]
    pairs = zip(programs, rows, strict=True)
    ops = sum(row.ops.get(next(iter(program.modules)), 0) for program, row in pairs)
    meshes = dict.fromkeys(text for row in rows for text in mesh_texts(row.meshes, brief=brief))
    lines = dict.fromkeys(name_line(line) for program in programs for line in program.called)
    return (
        f"{programs[0].name} ({len(programs):,} ops of shard_maps outside of jit)",
        ", ".join(lines) if len(lines) <= _LISTED else f"{len(lines):,} lines",
        ", ".join(
            dict.fromkeys(
                partitioner_name(name) for program in programs for name in program.modules
            )
        ),
        "; ".join(meshes) or Cell(NONE, "muted"),
        _often(*programs),
        f"{sum(program.compile_seconds for program in programs):,.2f}",
        f"{ops:,}",
        "",
        "",
    )


def _often(*programs: RecordedProgram) -> str:
    compiles = sum(program.compiles for program in programs)
    cached = sum(program.cached for program in programs)
    read = "" if not cached else " (read)" if cached == compiles else f" ({cached:,} read)"
    return f"{compiles:,}{read}"


def overview_footer(show: Show, record: Record, *, everything: bool) -> Iterator[Paragraph]:
    """The runs, what was compiled again and why, and what the table does not say."""
    for run in record.runs:
        yield Paragraph(f"recorded: {shortened(shlex.join(run.command))}", "muted")
        if sentence := ended(run):
            yield Paragraph(sentence, "warning")
    if len(record.processes) > 1:
        versions = ", ".join(sorted({process.jax for process in record.processes}))
        yield Paragraph(f"in {len(record.processes)} processes, by JAX {versions}", "muted")
    elif record.processes:
        yield Paragraph(f"by JAX {record.processes[0].jax}", "muted")
    is_read = any(program.cached for program in record.programs)
    read = " (read: from JAX's compilation cache)" if is_read else ""
    yield Paragraph(
        f"compiled (comp.): how often{read}; seconds (s): all compilations together; shardings "
        "(sh.): annotations in the module; bytes: what a device holds of the arguments",
        "muted",
    )
    hidden = len(record.programs) - len(record.own)
    if hidden and record.own and not everything:
        yield Paragraph(
            f"{counted(hidden, 'function')} of JAX not listed: --all lists them", "muted"
        )
    again = list(_compiled_again(show.recompiles))
    if again:
        yield Paragraph("")
        yield from again
    for program in record.programs:
        for reason in program.refused:
            yield Paragraph(f"{program.label} was not compiled: {reason}", "bad")
        for partitioner, why in program.failures.items():
            yield Paragraph(
                f"{program.label}: nothing under {partitioner_name(partitioner)}: {why}",
                "warning",
            )
    yield from (Paragraph(problem, "bad") for problem in remark_texts(record.problems))
    for unread in show.unread:
        yield Paragraph(f"could not be read: {unread.error}", "bad")


def _compiled_again(recompiles: Sequence[Recompile]) -> Iterator[Paragraph]:
    """Each function that was compiled more than once: when, for how long, why, what to do."""
    functions: dict[tuple[str, Line | None], list[Recompile]] = {}
    for recompile in recompiles:
        functions.setdefault((recompile.name, recompile.defined), []).append(recompile)
    for (name, defined), function in functions.items():
        where = f" at {source_text(defined)}" if defined else ""
        times = sum(recompile.times for recompile in function)
        again = "once" if times == 1 else f"{times:,} times"
        seconds = sum(recompile.compile_seconds for recompile in function)
        read = from_cache(sum(each.times for each in function if each.cached), times)
        called = dict.fromkeys(
            source_text(line) for recompile in function for line in recompile.called
        )
        by = f", called from {few(list(called), _LISTED)}" if called else ""
        yield Paragraph(
            f"{name}{where} was compiled again {again} in {seconds:,.2f} s{read}{by}",
            "warning",
        )
        groups: dict[object, list[Recompile]] = {}
        for recompile in function:
            groups.setdefault(recompile.cause, []).append(recompile)
        for alike in groups.values():
            labels = few([recompile.program for recompile in alike], _LISTED)
            yield Paragraph(f"{labels}: {cause(alike)}", "plain", 2)
            yield Paragraph(advice(alike[0]), "muted", 4, 0)
