"""The author's lines, each with what it does in its margin and below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sdyscope.analysis.source.lines import SourceFile, SourceLine
from sdyscope.facts.program import CompiledUnder
from sdyscope.lint.source import SourceDocument
from sdyscope.terminal.findings import TONES
from sdyscope.terminal.listing import Listed, Listing, ListingNote
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.values.mesh import Mesh
from sdyscope.views.propagate import provenance
from sdyscope.words.counts import counted, few, size
from sdyscope.words.findings import Finding
from sdyscope.words.hardware import compiled_text
from sdyscope.words.mesh import mesh_axes, mesh_words_of
from sdyscope.words.origins import causes_text
from sdyscope.words.partitioners import partitioner_name, sent_clause
from sdyscope.words.paths import file_text, in_file
from sdyscope.words.source import (
    AS_LOWERED,
    AS_NOW,
    BLOCK,
    NO_VALUES,
    collectives_text,
    finding_text,
    no_collectives_text,
    sent_without_line_text,
    told_once,
    unread_text,
    values_text,
    way_text,
    without_line_text,
)

#: How many kinds of values of a line are shown unless all are asked for.
LISTED = 3


def heading(document: SourceDocument) -> Iterator[Paragraph]:
    """The program, its meshes and what it was compiled for; then how much this is worth."""
    parts = [in_file(document.name, document.file), *mesh_words_of(document.meshes)]
    compiled = compiled_text(document.hardware, document.device_kind, by=document.compiled_by)
    if compiled:
        parts.append(compiled)
    yield Paragraph("; ".join(parts))
    yield from provenance(document.propagations, document.failures)
    if not document.propagations:
        yield Paragraph(NO_VALUES if document.is_text else AS_LOWERED, "warning")


def listings(
    document: SourceDocument, *, everything: bool = False, stacks: bool = False
) -> Iterator[Listing]:
    """A listing for each file; those of libraries too where there are no others.

    Args:
        document: the document.
        everything: whether to show every value, and the files of libraries.
        stacks: whether to show the frames between a line and its ops, and those that call it.
    """
    axes = mesh_axes(document.meshes)
    sides = _sides(document)
    for file in _shown(document, everything):
        title = file_text(file.file)
        if file.unread is not None:
            title += f" ({unread_text(file.unread)})"
        elif file.cut:
            title += " (changed since the program was traced: it has fewer lines)"
        yield Listing(
            title,
            (
                *(_sent_header(side, sides) for side in sides),
                *(() if document.is_text else ("block",)),
                "line",
            ),
            tuple(_lines(file, document, sides, everything=everything, stacks=stacks)),
            axes,
        )


def _shown(document: SourceDocument, everything: bool) -> Sequence[SourceFile]:
    own = [file for file in document.files if not file.library]
    return document.files if everything or not own else own


def _sides(document: SourceDocument) -> tuple[tuple[CompiledUnder, ...], ...]:
    """The partitioners that have a column of bytes sent: one for all where they send the same."""
    names = tuple(document.collective_meshes)
    lines = [line.sent for file in document.files for line in file.lines]
    if not any(lines):
        return ()
    alike = all(len({sent.get(name, 0) for name in names}) == 1 for sent in lines)
    return (names,) if alike else tuple((name,) for name in names)


def _sent_header(side: Sequence[CompiledUnder], sides: Sequence[object]) -> str:
    return "sent" if len(sides) == 1 else f"sent {partitioner_name(side[0])}"


def _lines(
    file: SourceFile,
    document: SourceDocument,
    sides: Sequence[Sequence[CompiledUnder]],
    *,
    everything: bool,
    stacks: bool,
) -> Iterator[Listed]:
    findings = document.findings_by_line
    gap = Listed(("",) * (len(sides) + 2 - document.is_text), None)
    before = None
    for line in file.lines:
        if before is not None and line.line != before + 1 and file.unread is None:
            yield gap
        before = line.line
        sent, block = line.sent, line.block
        margin = [size(sent[side[0]]) if sent.get(side[0]) else "" for side in sides]
        largest = max(block.values(), default=0)
        margin += [] if document.is_text else [size(largest) if largest else ""]
        margin.append(f"{line.line}")
        notes = (
            *_values(line, everything),
            *_collectives(
                line,
                file_text(file.file),
                [name for side in sides for name in side],
                document.collective_meshes,
            ),
            *_findings(findings.get((file.file, line.line), ())),
            *_stacks(line, stacks),
        )
        # Of a file that can't be read each line still says which function it is in.
        text = line.text if line.text is not None else f"({line.function or 'no text'})"
        yield Listed(tuple(margin), text, notes)


def _values(line: SourceLine, everything: bool) -> Iterator[ListingNote]:
    """The largest values, and those before all at which partitioners differ."""
    chosen = sorted(line.values, key=lambda values: (not values.begins, values.same is not False))
    shown = [values for values in line.values if everything or values in chosen[:LISTED]]
    for values in shown:
        yield ListingNote(values_text(values), "warning" if values.same is False else "plain")
    rest = [values for values in line.values if values not in shown]
    if rest:
        differ = sum(values.count for values in rest if values.same is False)
        words = f"and {counted(sum(values.count for values in rest), 'more value')}"
        if differ:
            words += f", {differ:,} of them placed differently"
        yield ListingNote(words, "warning" if differ else "muted")


def _collectives(
    line: SourceLine,
    file: str,
    partitioners: Sequence[CompiledUnder],
    meshes: Mapping[CompiledUnder, Mesh | None],
) -> Iterator[ListingNote]:
    """Those of all partitioners once where they send the same, with the first one's causes."""
    for of_all in told_once(line.collectives, meshes).values():
        names = [collectives.partitioner for collectives in of_all]
        under = names if len(names) < len(partitioners) else ()
        words = collectives_text(of_all[0], meshes[names[0]], under)
        cause = causes_text(of_all[0].origins, file)
        yield ListingNote(f"{words}, {cause}" if cause else words)


def _findings(findings: Sequence[Finding]) -> Iterator[ListingNote]:
    """The first of each rule and severity, errors first, with the number of the others."""
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.rule, finding.severity), []).append(finding)
    for of_rule in alike.values():
        yield ListingNote(finding_text(of_rule), TONES[of_rule[0].severity])


def _stacks(line: SourceLine, everything: bool) -> Iterator[ListingNote]:
    ways = dict.fromkeys(way_text(way if everything else way[:1]) for way in line.through)
    if ways and not everything:
        first, *others = ways
        more = f" and {counted(len(others), 'other call')}" if others else ""
        yield ListingNote(f"through {first}{more}", "muted")
        return
    for way in ways:
        yield ListingNote(f"through {way}", "muted")
    for way in dict.fromkeys(map(way_text, line.callers)) if everything else ():
        yield ListingNote(f"called by {way}", "muted")


def footer(document: SourceDocument, *, everything: bool = False) -> Iterator[Paragraph]:
    """What the columns are, what has no line, and what is not shown or not known."""
    shown = _shown(document, everything)
    if _sides(document):
        yield Paragraph(
            sent_clause(some_idle=any(each.some_idle for each in document.collectives)), "muted"
        )
    if not document.is_text:
        yield Paragraph(BLOCK, "muted")
    if document.not_compiled:
        yield Paragraph(no_collectives_text(document.not_compiled), "warning")
    hidden = [file for file in document.files if file not in shown]
    if hidden:
        lines = sum(len([line for line in file.lines if line.function]) for file in hidden)
        names = few([file_text(file.file) for file in hidden], LISTED)
        yield Paragraph(
            f"{counted(lines, 'line')} of libraries left out, of {names}: --all shows them",
            "muted",
        )
    if document.without_line:
        yield Paragraph(without_line_text(document.without_line), "muted")
    for partitioner, sent in document.sent_without_line.items():
        if sent:
            yield Paragraph(sent_without_line_text(partitioner, sent), "warning")
    elsewhere = sum(finding.source is None for finding in document.findings)
    if elsewhere:
        yield Paragraph(
            f"{counted(elsewhere, 'finding')} without a line: sdyscope lint lists all", "muted"
        )
    if document.file is not None:
        yield Paragraph(AS_NOW, "muted")
