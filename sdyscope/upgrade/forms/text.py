"""What other versions of JAX, or other commits, change: figures side by side, then what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from sdyscope.analysis.diff.requested import RequestedDiff
from sdyscope.analysis.diff.stages import ComparedStages
from sdyscope.analysis.figures import DECISIVE, FIGURES, unit_of
from sdyscope.facts.memory import MemoryPart
from sdyscope.snapshots.differences import DiffDocument
from sdyscope.terminal.answer import account_paragraphs
from sdyscope.terminal.findings import finding_paragraphs
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Note, Row, Table, Tone, number
from sdyscope.upgrade.bisected import Bisection, VersionAccount
from sdyscope.upgrade.document import Step, Upgrade, UpgradeSide
from sdyscope.views import compiled_diff, diff, propagated_diff
from sdyscope.words.counts import counted, listed, size
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.recompiles import advice, cause
from sdyscope.words.remarks import remark_text, remark_texts
from sdyscope.words.sharding import NONE, short
from sdyscope.words.upgrade import (
    amount_text,
    bisection_text,
    change_text,
    evaluation_text,
    figure_clause,
    packages_text,
    unpaired_text,
)

_Part: TypeAlias = Paragraph | Table

#: How many lines of a commit, and notes of a release, are listed unless all are asked for.
LISTED = 12

#: The figures that are shown though they are the same.
_ALWAYS = ("comms.bytes", "memory.total")


def upgraded(upgrade: Upgrade, *, everything: bool = False) -> Iterator[_Part]:
    """The total, the versions, their figures, what differs, and where it began."""
    yield from summary(upgrade)
    table = figures(upgrade)
    if table is not None:
        yield Paragraph("")
        yield table
    yield from _budgets(upgrade)
    # Of several versions each step is told in a line, as every one may be asked for alone.
    for step in upgrade.steps if len(upgrade.steps) == 1 or everything else ():
        yield from details(upgrade, step, everything=everything)
    if len(upgrade.steps) > 1 and not everything:
        differ = [step for step in upgrade.steps if not step.same]
        if differ:
            yield Paragraph("")
            yield Paragraph(
                f"--all lists what differs; or compare two: --from "
                f"{differ[-1].a.removeprefix('JAX ')} --to {differ[-1].b.removeprefix('JAX ')}",
                "muted",
            )
    yield from accounts(upgrade.accounts)
    if upgrade.bisection is not None:
        yield Paragraph("")
        yield from bisected(upgrade.bisection, everything=everything)


def accounts(known: Sequence[VersionAccount]) -> Iterator[Paragraph]:
    """What is not known of the programs of each version."""
    several = len({each.program for each in known}) > 1
    for each in known:
        versions = listed(list(each.versions))
        where = f"{each.program} in {versions}" if several else versions
        yield from account_paragraphs(each.account, of=where)


def summary(upgrade: Upgrade) -> Iterator[Paragraph]:
    """What each version changes, in a line; what failed; and what the versions are."""
    for step in upgrade.steps:
        yield headline(upgrade.target, step)
    for side in upgrade.sides:
        if side.failure:
            yield Paragraph(side.failure, "bad")
        for problem in remark_texts(side.problems):
            yield Paragraph(f"{side.label}: {problem}", "warning")
    if upgrade.bisection_missing:
        yield Paragraph(f"not bisected: {upgrade.bisection_missing}", "bad")
    yield Paragraph(versions_text(upgrade.sides), "muted")


def headline(target: str, step: Step) -> Paragraph:
    """What a version changes, in a line: worse, better or the same."""
    clauses = _clauses(step, "worse")
    better = _clauses(step, "better")
    where = f"{target}, from {step.a} to {step.b}"
    if step.failed:
        clauses.insert(0, f"fails in {step.b}")
    if step.recompiles > 0:
        clauses.append(
            counted(
                step.recompiles, "more function compiled again", "more functions compiled again"
            )
        )
    if step.worse:
        text = f"{where}: worse: {', '.join(clauses)}"
        text += f"; better: {', '.join(better)}" if better else ""
        return Paragraph(text, "bad")
    if step.same:
        return Paragraph(f"{where}: no differences", "good")
    text = f"{where}: nothing got worse"
    if clauses:
        text += f" beyond its budgets: {', '.join(clauses)}"
    text += f"; better: {', '.join(better)}" if better else ""
    return Paragraph(text, "good")


def _clauses(step: Step, verdict: str) -> list[str]:
    several = len(step.programs) > 1
    clauses = []
    for program in step.programs:
        of = f" ({program.name})" if several else ""
        for change in program.changes:
            if change.verdict == verdict and change.a is not None and change.b is not None:
                clause = figure_clause(change.figure, unit_of(change.figure), change.a, change.b)
                clauses.append(clause + of)
        if verdict == "worse" and program.fails_now:
            clauses.append(f"no longer compiled{of}")
    return clauses


def versions_text(sides: Sequence[UpgradeSide]) -> str:
    """What each environment has."""
    texts = []
    for side in sides:
        if side.versions is not None:
            plugins = [f"{name} {version}" for name, version in side.plugins.items()]
            parts = [f"jaxlib {side.versions.jaxlib}", *plugins, f"Python {side.python}"]
            texts.append(f"{side.label}: {', '.join(parts)}")
    return "; ".join(texts)


def figures(upgrade: Upgrade) -> Table | None:
    """A row a figure, by program; a column a version."""
    labels = [side.label for side in upgrade.sides if side.programs]
    programs = list(_programs(upgrade))
    rows: list[Row] = []
    for name, by_side in programs:
        known = [by_side.get(label, {}) for label in labels]
        own = list(_figure_rows(known))
        if own and len(programs) > 1:
            rows.append(Heading(name))
        rows += own
    if not rows:
        return None
    changes = (number("change"),) if len(labels) > 1 else ()
    columns = (Column("per device and step", fold=False), *map(number, labels), *changes)
    return Table(columns, tuple(rows))


def row_texts(table: Table) -> Iterator[list[str]]:
    """The texts of a table's rows, a heading and a note in the first column."""
    for row in table.rows:
        if isinstance(row, Heading | Note):
            yield [row.text, *[""] * (len(table.columns) - 1)]
        else:
            yield [cell if isinstance(cell, str) else cell.text for cell in row]


def _figure_rows(known: Sequence[Mapping[str, float]]) -> Iterator[Row]:
    for figure in FIGURES:
        amounts = [figures.get(figure) for figures in known]
        differs = len(set(amounts)) > 1
        if all(amount is None for amount in amounts) or not (differs or figure in _ALWAYS):
            continue
        unit = unit_of(figure)
        cells: list[Cell | str] = [figure, *(amount_text(unit, number) for number in amounts)]
        if len(amounts) > 1:
            change = change_text(unit, amounts[0], amounts[-1])
            cells.append(Cell(change, _tone(figure, amounts)))
        yield tuple(cells)


def _tone(figure: str, amounts: Sequence[float | None]) -> Tone:
    before, after = amounts[0], amounts[-1]
    if figure not in DECISIVE or before is None or after is None or before == after:
        return "muted"
    return "bad" if after > before else "good"


def _programs(upgrade: Upgrade) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """The figures of each program by version: of programs that are the same one in all steps."""
    names: list[dict[str, str]] = []
    for step in upgrade.steps:
        for program in step.programs:
            before = next(
                (known for known in names if known.get(step.a) == program.name_before), None
            )
            if before is None:
                before = {step.a: program.name_before}
                names.append(before)
            before[step.b] = program.name
    figures = {
        (side.label, program.name): dict(program.figures)
        for side in upgrade.sides
        for program in side.programs
    }
    if not upgrade.steps:  # One version alone.
        for (label, name), own in figures.items():
            yield name, {label: own}
    for known in names:
        last = list(known.values())[-1]
        yield last, {label: figures[label, name] for label, name in known.items()}


def _budgets(upgrade: Upgrade) -> Iterator[Paragraph]:
    """Whether the last version keeps the budgets."""
    if not upgrade.sides:
        return
    last = upgrade.sides[-1]
    for program in last.programs:
        if program.budgets:
            over = sum(finding.severity == "error" for finding in program.over)
            count = counted(len(program.budgets), "budget")
            kept = f"{over:,} of {count} exceeded" if over else f"{count} kept"
            yield Paragraph("")
            text = f"{program.name}: {kept} in {last.label}"
            yield Paragraph(text, "bad" if over else "good")
            yield from finding_paragraphs(list(program.over))


# --- a version and the one before it --------------------------------------------------------------


def details(upgrade: Upgrade, step: Step, *, everything: bool = False) -> Iterator[_Part]:
    """What a version and the one before it differ in, program by program."""
    several = len(step.programs) > 1
    for program in step.programs:
        if not (program.has_details or everything):
            continue
        if several:
            yield Paragraph("")
            yield Paragraph(program.name, "heading")
        yield from _program(program, everything=everything)
    same = [program for program in step.programs if not program.has_details]
    if same:
        yield Paragraph("")
        yield Paragraph(_alike(same, several=several), "good")
    for side, other in ((step.a, step.b), (step.b, step.a)):
        names = [program.name for program in step.unpaired if program.side == side]
        if names:
            yield Paragraph("")
            yield Paragraph(unpaired_text(names, side, other), "warning")
    if step.recompiles > 0:
        yield Paragraph("")
        yield Paragraph(f"compiled again in {step.b}", "warning")
        for recompile in next(side for side in upgrade.sides if side.label == step.b).recompiles:
            yield Paragraph(f"{recompile.program}: {cause([recompile])}", "plain", 2, 2)
            yield Paragraph(advice(recompile), "muted", 4)
    notes = list(_notes(step))
    if notes:
        yield Paragraph("")
        yield from (Paragraph(note, "muted") for note in notes)


def _alike(programs: Sequence[ComparedStages], *, several: bool) -> str:
    """That nothing differs but figures that do not decide."""
    of = f" of {listed([program.name for program in programs])}" if several else ""
    a, b = programs[0].lowered.a, programs[0].lowered.b
    return f"shardings, collectives and memory{of}: no differences between {a} and {b}"


def _program(program: ComparedStages, *, everything: bool) -> Iterator[_Part]:
    if program.requested is not None and program.requested.different:
        yield Paragraph("")
        yield _requested(program.requested, program)
    lowered = program.lowered
    shown = lowered if everything else replace(lowered, ops=())
    if shown.tensors or shown.meshes or shown.ops:
        yield from diff.details(DiffDocument(at="lowered", programs=(shown,)))
    propagated = program.propagated
    if propagated is not None and propagated.beginnings:
        yield Paragraph("")
        yield propagated_diff.total(propagated)
        sides = propagated.propagation_a, propagated.propagation_b
        if any(side.exactness != "exact" for side in sides):
            yield from propagated_diff.provenance(propagated)
        yield from propagated_diff.details(propagated, everything=everything)
    yield Paragraph("")
    yield compiled_diff.total(program.compiled)
    yield from compiled_diff.details(program.compiled, everything=everything)


def _requested(requested: RequestedDiff, program: ComparedStages) -> Table:
    rows: list[Row] = [Heading(f"requested differently ({len(requested.different):,})")]
    for request in requested.different:
        name = f"{shown_name(request.tensor, request.kind)} {source_text(request.source)}".strip()
        cells = [
            Cell(short(side)) if side is not None else Cell(NONE, "muted")
            for side in (request.a, request.b)
        ]
        rows.append((name, *cells))
    lowered = program.lowered
    return Table((Column("tensor"), Column(lowered.a), Column(lowered.b)), tuple(rows))


def _notes(step: Step) -> Iterator[str]:
    """What was not compared; what is alike of several programs is told once."""
    known: dict[str, list[str]] = {}
    for program in step.programs:
        for note in _notes_of(program):
            known.setdefault(note, []).append(program.name)
    for note, names in known.items():
        everywhere = len(names) == len(step.programs)
        yield note if everywhere else f"{listed(names)}: {note}"
    if step.packages:
        yield packages_text(step.packages)


def _notes_of(program: ComparedStages) -> Iterator[str]:
    propagated, lowered = program.propagated, program.lowered
    if propagated is not None and not propagated.beginnings:
        text = f"propagated: {counted(propagated.same_values, 'value')} sharded the same way"
        if propagated.only_a or propagated.only_b:
            text += (
                f"; {propagated.only_a:,} only in {propagated.a} and {propagated.only_b:,} only in "
                f"{propagated.b}, not compared"
            )
        yield text
    if lowered.ops:
        ops = sum(op.size for op in lowered.ops)
        places = counted(len(lowered.ops), "scope")
        yield f"lowered: {counted(ops, 'op')} in {places} differ, which --all lists"
    code = [row for row in program.compiled.memory if row.name is MemoryPart.CODE]
    if any(row.a or row.b for row in code):
        sizes = (f"{size(row.a)} in {lowered.a}, {size(row.b)} in {lowered.b}" for row in code)
        yield f"memory.total leaves out the program's code: {listed(list(sizes))}"
    for stage, why in program.missing.items():
        yield f"{stage}: not compared: {remark_text(why)}"
    yield from map(remark_text, program.notes)


# --- where it began -------------------------------------------------------------------------------


def bisected(bisection: Bisection, *, everything: bool = False) -> Iterator[_Part]:
    """What a search came to, what was judged on the way, and what differs there."""
    tone: Tone = "good" if bisection.unchanged else "warning" if bisection.first is None else "bad"
    yield Paragraph(bisection_text(bisection), tone)
    if bisection.subject and bisection.first is not None:
        yield Paragraph(f"{bisection.author}, {bisection.date[:10]}", "muted", indent=2)
    for note in bisection.notes:
        yield Paragraph("")
        if note.lines:
            yield Paragraph(f"The notes of JAX {note.release} on sharding:", "heading")
        for line in note.lines if everything else note.lines[:LISTED]:
            yield Paragraph(f"- {line}", indent=2)
        rest = len(note.lines) - LISTED
        if rest > 0 and not everything:
            yield Paragraph(f"and {rest:,} more: --all lists them", "muted", indent=2)
        if note.missing:
            yield Paragraph(
                f"The notes of JAX {note.release} can't be shown: {note.missing}", "muted"
            )
        elif not note.lines:
            yield Paragraph(f"The notes of JAX {note.release} say nothing of sharding.", "muted")
        yield Paragraph(note.link, "muted", indent=2)
    yield from _lines(bisection, everything)
    for program in bisection.comparison:
        yield from _program(program, everything=everything)
    yield Paragraph("")
    judged = f"judged {len(bisection.evaluations):,} of {bisection.between:,} between them"
    compiled = (
        f"; {counted(bisection.compiles, 'compile')}" if bisection.across == "commits" else ""
    )
    colon = ":" if bisection.evaluations else ""
    yield Paragraph(f"{bisection.good.label}: good; {judged}{compiled}{colon}", "muted")
    for evaluated in bisection.evaluations:
        yield Paragraph(evaluation_text(evaluated), "muted", 2, 2)


def _lines(bisection: Bisection, everything: bool) -> Iterator[_Part]:
    if not bisection.lines:
        return
    yield Paragraph("")
    shown = bisection.lines if everything else bisection.lines[:LISTED]
    rows = tuple(
        (
            source_text(line.source),
            Cell(line.text.strip(), "heading" if line.begins else "plain"),
            listed(list(line.tensors)) or Cell(NONE, "muted"),
        )
        for line in shown
    )
    yield Table((Column("changed line"), Column("now"), Column("differs there")), rows)
    rest = len(bisection.lines) - len(shown)
    if rest > 0:
        yield Paragraph(f"and {counted(rest, 'more line')}: --all lists them", "muted")
