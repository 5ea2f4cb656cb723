"""The collectives of a program, as tables, and the words around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.collectives.comms import CommsDocument
from sdyscope.analysis.collectives.groups import CollectiveGroup, collective_groups
from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.traffic import Tally
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Note, Row, Table, fitted, number
from sdyscope.words.counts import WITH_LOOPS_ONCE, bound_text, counted, size
from sdyscope.words.hardware import compiled_text
from sdyscope.words.mesh import NO_MESH, mesh_words_of, over_text
from sdyscope.words.origins import OP_FOLLOWED, UNCERTAIN, annotation_text, causes_text
from sdyscope.words.partitioners import partitioner_name, partitioner_names, sent_clause
from sdyscope.words.paths import in_file
from sdyscope.words.places import common_file, source_text
from sdyscope.words.remarks import remark_texts
from sdyscope.words.rematerializations import rematerialization_text, resharding_text
from sdyscope.words.sharding import NONE
from sdyscope.words.types import largest_text

#: How many collectives, or scopes, are shown unless all are asked for.
LISTED = 12

#: Likewise annotations.
ANNOTATIONS = 6


def heading(document: CommsDocument) -> Iterator[Paragraph]:
    """The program, the hardware and the mesh; then what each partitioner's collectives come to."""
    parts = [in_file(document.name, document.file)]
    meshes = {program.mesh for program in document.programs if program.mesh is not None}
    if meshes:
        parts += sorted(words for mesh in meshes for words in mesh_words_of({"": mesh}))
    else:
        devices = document.programs[0].devices
        parts.append(f"{counted(devices, 'device')}, {NO_MESH}")
    compiled = compiled_text(document.hardware, document.device_kind, by=document.compiled_by)
    if compiled:
        parts.append(compiled)
    if any(program.predicted for program in document.programs):
        parts.append("predicted from Shardy's reshards for TPUs and GPUs, not compiled")
    yield Paragraph("; ".join(parts))
    totals = [_total_words(program) for program in document.programs]
    if len(totals) > 1 and len(set(totals)) == 1:
        both = partitioner_names(program.partitioner for program in document.programs)
        yield Paragraph(f"{both}: {totals[0]}", "heading")
    else:
        for program, words in zip(document.programs, totals, strict=True):
            name = (
                f"{partitioner_name(program.partitioner)}{', predicted' * program.predicted}: "
                if program.partitioner
                else ""
            )
            yield Paragraph(f"{name}{words}", "heading")


def _total_words(collectives: Collectives) -> str:
    total = collectives.total
    if not total.count:
        if collectives.is_partly_predicted:
            return "no collectives of Shardy's own; XLA may send more"
        return "no collectives, nothing is sent"
    loops = collectives.counted_once
    count = counted(total.count, "collective")
    words = f"{bound_text(loops=loops, at_most=collectives.in_branches)}{count} per step"
    if total.tensors != total.count:
        words += f" for {counted(total.tensors, 'tensor')}"
    bound = bound_text(loops=loops, at_most=collectives.at_most)
    words += f"; a device sends {bound}{size(total.sent)}"
    if total.received != total.sent:
        words += f" and receives {size(total.received)}"
    if collectives.differentiated and [*collectives.by_phase] != ["other"]:
        phases = [f"{phase} {size(tally.sent)}" for phase, tally in collectives.by_phase.items()]
        words += f" ({', '.join(phases)})"
    return words + WITH_LOOPS_ONCE * loops


def tables(
    document: CommsDocument, *, everything: bool, by_scope: bool, columns: int | None
) -> Sequence[Table]:
    """The tables: by kind and axes, then the largest collectives or scopes; none without any."""
    if not any(program.collectives for program in document.programs):
        return ()
    if by_scope:
        return by_kind(document), scopes(document, everything=everything)
    origins = by_annotation(columns, document, everything=everything)
    return (
        by_kind(document),
        *([origins] if origins.rows else []),
        largest(columns, document, everything=everything),
    )


def by_kind(document: CommsDocument) -> Table:
    """A row a kind and axes; for each partitioner how many there are and what they send."""
    programs = distinct(document)
    several = len(programs) > 1
    keys: dict[tuple[str, str], dict[int, Tally]] = {}
    for index, program in enumerate(programs):
        for entry in program.by_kind_and_axes:
            over = over_text(entry.axes, program.mesh)
            keys.setdefault((entry.kind, over), {})[index] = entry.tally
    ordered = sorted(keys.items(), key=lambda item: -max(t.sent for t in item[1].values()))
    columns = [Column("collective", fold=False)]
    named = any(over for _, over in keys)
    if named:
        columns.append(Column("over"))
    for program in programs:
        if several:
            columns.append(number(partitioner_name(program.partitioner)))
        else:
            columns += [number("count"), number("tensors"), number("size")]
        columns.append(number("sent"))
    rows: list[Row] = []
    for (kind, over), tallies in ordered:
        cells: list[Cell | str] = [kind, over] if named else [kind]
        for index in range(len(programs)):
            cells += _tally_cells(tallies.get(index), several)
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))


def _tally_cells(tally: Tally | None, several: bool) -> list[Cell | str]:
    if tally is None:
        return [Cell(NONE, "muted"), Cell(NONE, "muted")]
    if several:
        return [f"{tally.count:,}", size(tally.sent)]
    return [f"{tally.count:,}", f"{tally.tensors:,}", size(tally.bytes), size(tally.sent)]


@fitted
def largest(brief: bool, document: CommsDocument, *, everything: bool = False) -> Table:
    """The collectives that send most, of each partitioner; what looks the same is one row.

    Args:
        brief: whether the table is wider than the line: a file that all lines are in is
            only named once.
        document: the document.
        everything: whether to list all.
    """
    shown = []
    for program in distinct(document):
        every = collective_groups(program)
        shown.append((program, every, every if everything else every[:LISTED]))
    sources = (group.first.largest.source for _, _, listed in shown for group in listed)
    file = common_file(sources) if brief else ""
    rows: list[Row] = []
    for program, every, listed in shown:
        kind = "predicted collective" if program.predicted else "collective"
        # Those of a loop as often as it runs, as in the line above all tables.
        count = counted(program.total.count, kind)
        which = _which(count, len(listed) == len(every))
        rows.append(Heading(_label(document, program) + which + (f" in {file}" if file else "")))
        for group in listed:
            rows.append(_group_row(group, program, file))
            if cause := causes_text(group.origins, file, group.callers):
                rows.append(Note(cause))
    columns = (
        Column("collective"),
        Column("over"),
        number("x"),
        Column("tensor"),
        number("sent"),
        Column("scope"),
        number("line") if file else Column("source"),
    )
    return Table(columns, tuple(rows))


def _group_row(group: CollectiveGroup, program: Collectives, file: str) -> tuple[Cell | str, ...]:
    collective = group.first
    mark = "+" if collective.unknown_trips else "?" if collective.conditional else ""
    times = f"{group.count:,}{mark}"
    source = source_text(collective.largest.source)
    if file:
        source = source.rpartition(":")[2]
    return (
        f"{collective.kind} (async)" if collective.asynchronous else collective.kind,
        over_text(collective.axes, program.mesh, collective.group_size),
        times,
        largest_text(collective.largest.shapes, len(collective.parts)),
        sent_text(group),
        group.scope or Cell(NONE, "muted"),
        source or Cell(NONE, "muted"),
    )


def sent_text(group: CollectiveGroup) -> str:
    """What a device sends for a group; with a mark where that is an upper bound."""
    return ("≤ " if group.first.at_most else "") + size(group.sent)


@fitted
def by_annotation(brief: bool, document: CommsDocument, *, everything: bool = False) -> Table:
    """The annotations that most comes from, of each partitioner.

    Args:
        brief: whether the table is wider than the line: a file that all lines are in is
            only named once.
        document: the document.
        everything: whether to list all.
    """
    shown = [
        (program, program.by_annotation if everything else program.by_annotation[:ANNOTATIONS])
        for program in distinct(document)
    ]
    written = [entry.annotation for _, listed in shown for entry in listed]
    sources = (
        annotation.source
        for annotation in written
        if annotation.kind not in ("argument", "result") and annotation.source is not None
    )
    file = common_file(sources) if brief else ""
    rows: list[Row] = []
    for program, listed in shown:
        count = f"{counted(len(program.by_annotation), 'annotation')} that collectives come from"
        which = _which(count, len(program.by_annotation) == len(listed))
        if not listed:
            continue
        rows.append(Heading(_label(document, program) + which + (f", in {file}" if file else "")))
        for entry in listed:
            tally = entry.tally
            name = annotation_text(entry.annotation, file)
            rows.append((name, f"{tally.count:,}", size(tally.bytes), size(tally.sent)))
    columns = (Column("annotation"), number("collectives"), number("size"), number("sent"))
    return Table(columns, tuple(rows))


def _which(count: str, every: bool) -> str:
    """`all 12 scopes`, `1 scope`, `the largest of 40 scopes`."""
    if not every:
        return f"the largest of {count}"
    return count if count.startswith("1 ") else f"all {count}"


def scopes(document: CommsDocument, *, everything: bool = False) -> Table:
    """The scopes whose collectives send most, of each partitioner."""
    rows: list[Row] = []
    for program in distinct(document):
        shown = list(program.by_scope.items())[: None if everything else LISTED]
        which = _which(counted(len(program.by_scope), "scope"), len(shown) == len(program.by_scope))
        rows.append(Heading(_label(document, program) + which))
        for scope, tally in shown:
            name = scope or Cell("no scope", "muted")
            rows.append((name, f"{tally.tensors:,}", size(tally.bytes), size(tally.sent)))
    columns = (Column("scope"), number("tensors"), number("size"), number("sent"))
    return Table(columns, tuple(rows))


def distinct(document: CommsDocument) -> Sequence[Collectives]:
    """The partitioners' programs; the first alone where all look the same."""
    rows = [
        [_group_row(group, program, "") for group in collective_groups(program)]
        for program in document.programs
    ]
    alike = len(rows) > 1 and all(row == rows[0] for row in rows)
    return document.programs[:1] if alike else document.programs


def _label(document: CommsDocument, collectives: Collectives) -> str:
    """Whose collectives these are, where it need be said."""
    if len(document.programs) < 2:
        return ""
    names = [collectives.partitioner]
    if len(distinct(document)) < len(document.programs):
        names = [other.partitioner for other in document.programs]
    return f"{partitioner_names(names)}: "


def _said(document: CommsDocument, everything: bool) -> Iterator[CollectiveOrigin]:
    """The causes that the largest collectives are listed with."""
    for program in distinct(document):
        groups = collective_groups(program)
        yield from (
            group.origins[0]
            for group in (groups if everything else groups[:LISTED])
            if group.origins
        )


def footer(
    document: CommsDocument, *, everything: bool = False, by_scope: bool = False
) -> Iterator[Paragraph]:
    """What the columns mean, and what is not certain or not known."""
    yield from _remade(document)
    if any(program.total.count for program in document.programs):
        some_idle = any(program.some_idle for program in document.programs)
        yield Paragraph(f"{sent_clause(some_idle=some_idle)}. x: times per step", "muted")
    if any(program.predicted for program in document.programs):
        yield Paragraph(
            "predicted: what Shardy's own passes insert; XLA's partitioner may choose others "
            "and combines several into one. Without --predicted the program is compiled",
            "warning",
        )
    if any(
        program.predicted and "reduce-scatter" in program.by_kind for program in document.programs
    ):
        yield Paragraph(
            "reduce-scatter: XLA's partitioner emits an all-reduce and a slice; TPUs and GPUs "
            "fuse the two, CPUs do not",
            "muted",
        )
    if len(distinct(document)) < len(document.programs) and document.programs[0].by_annotation:
        yield Paragraph(
            "because: as Shardy recorded it; --partitioner gspmd shows what can be followed "
            "under GSPMD, which records nothing",
            "muted",
        )
    origins = [] if by_scope else list(_said(document, everything))
    if any(origin.uncertain for origin in origins):
        yield Paragraph(
            f"{UNCERTAIN}: that value is the nearest one sharded over these axes, but what is sent "
            "does not match its blocks, or leads elsewhere; another value may be the cause",
            "muted",
        )
    if any(origin.followed for origin in origins):
        yield Paragraph(
            f"{OP_FOLLOWED}: XLA names the collective after what makes the value, or not at all; "
            "the op that needs it was found along the value in the compiled program",
            "muted",
        )
    said: dict[str, list[str]] = {}
    for program in document.programs:
        for words in remark_texts(program.remarks):
            said.setdefault(words, []).append(partitioner_name(program.partitioner))
    for words, names in said.items():
        name = "" if len(names) == len(document.programs) > 1 else names[0]
        yield Paragraph(f"{name}: {words}" if name else words, "warning")
    hidden = any(len(collective_groups(program)) > LISTED for program in document.programs)
    if hidden and not everything:
        yield Paragraph("--all lists every collective", "muted")


def _remade(document: CommsDocument) -> Iterator[Paragraph]:
    said: dict[tuple[str, str], list[str]] = {}
    for program in document.programs:
        for remade in program.rematerializations:
            key = rematerialization_text(remade), resharding_text(remade)
            said.setdefault(key, []).append(partitioner_name(program.partitioner))
    for (words, change), names in said.items():
        label = " and ".join(filter(None, names))
        yield Paragraph(f"{label}: {words}" if label else words, "bad")
        if change:
            yield Paragraph(change, indent=4)
