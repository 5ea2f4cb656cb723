"""Why values are sharded as they are, in paragraphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.propagation.explain import ExplainDocument, Explanation
from sdyscope.annotations import op_name
from sdyscope.facts.moves import Absence, Beginning, Chain
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.views.propagate import provenance
from sdyscope.words.mesh import axis_text, mesh_words_of
from sdyscope.words.places import source_text
from sdyscope.words.propagation import (
    WAYS,
    absence_text,
    allowed_text,
    beginning_text,
    decided_text,
    note_text,
    stopped_alike,
)
from sdyscope.words.remarks import remark_texts
from sdyscope.words.types import type_text

__all__ = ["details", "footer", "heading"]

#: How many values are explained unless all are asked for.
LISTED = 8

#: How many moves are shown at either end of a long chain, unless all are asked for.
ENDS = 6


def heading(found: ExplainDocument) -> Iterator[Paragraph]:
    """How much this is worth; then the program and its meshes."""
    yield from provenance(found.propagations, found.failures)
    yield Paragraph("; ".join([found.name, *mesh_words_of(found.meshes)]), hang=2)
    for change in found.changes:
        yield Paragraph(f"with {change}", hang=2)


def details(found: ExplainDocument, *, everything: bool = False) -> Iterator[Paragraph]:
    """Each value, with an empty line before it."""
    shown = found.values if everything else found.values[:LISTED]
    for value in shown:
        yield Paragraph("")
        yield from _value(value, everything)
    rest = len(found.values) - len(shown)
    if rest:
        yield Paragraph("")
        yield Paragraph(
            f"and {rest:,} more {'value' if rest == 1 else 'values'} that {found.value} names: "
            "--all explains them",
            "muted",
        )


def footer(found: ExplainDocument) -> Iterator[Paragraph]:
    """Why a propagation is approximate, and what is not known of its origins and steps."""
    notes = [note for one in found.propagations for note in (*one.doubts, *one.debug_info.notes)]
    if notes:
        yield Paragraph("")
    for note in remark_texts(notes):
        yield Paragraph(note, "muted", hang=2)


def _value(found: Explanation, everything: bool) -> Iterator[Paragraph]:
    value = found.value
    type_ = value.dtype if value.shape is None else type_text(value.shape, value.dtype)
    parts = [value.name, type_, f"({value.ssa})", _at(source_text(value.source))]
    yield Paragraph(" ".join(part for part in parts if part), "heading", hang=2)
    for partitioner, decided in found.decided.items():
        label = f"{partitioner}: " if len(found.decided) > 1 else ""
        yield Paragraph(f"{label}{decided_text(decided)}", indent=2, hang=2)
        before = found.before.get(partitioner)
        if before is not None and before.sharding.text != decided.sharding.text:
            yield Paragraph(f"before: {decided_text(before)}", "warning", indent=4, hang=2)
        elif before is not None:
            yield Paragraph("as before", "muted", indent=4, hang=2)
    for chain in found.chains:
        yield from _chain(chain, everything)
    for absence in found.absences:
        yield from _absence(absence, found.chains, everything)
    for note in found.notes:
        yield Paragraph(note_text(note), "muted", indent=2, hang=2)


def _at(line: str) -> str:
    return f"at {line}" if line else ""


def _chain(chain: Chain, everything: bool, indent: int = 2) -> Iterator[Paragraph]:
    where = f"dim {chain.dimension} on {axis_text(chain.axis)}"
    if chain.beginning is None:
        yield Paragraph(f"{where}: no annotation was found", "warning", indent, 2)
    else:
        yield Paragraph(f"{where}: from {_beginning(chain.beginning)}", "good", indent, 2)
    between = 0 if everything else len(chain.moves) - 2 * ENDS
    for position, move in enumerate(chain.moves):
        if between > 1 and ENDS <= position < ENDS + between:
            if position == ENDS:
                yield Paragraph(f"{between:,} moves more: --all lists them", "muted", indent + 2)
            continue
        number = "" if move.step is None else f"step {move.step}, "
        through = f"{op_name(move.through)} {_at(source_text(move.through.source))}".rstrip()
        yield Paragraph(
            f"{number}{WAYS[move.direction]} {through}: {allowed_text(move.rule)}",
            indent=indent + 2,
            hang=2,
        )


def _beginning(one: Beginning) -> str:
    priority = f", priority {one.priority}" if one.priority is not None else ""
    return f"{beginning_text(one)}{priority} {_at(source_text(one.source))}".rstrip()


def _absence(one: Absence, said: Sequence[Chain], everything: bool) -> Iterator[Paragraph]:
    where = "" if one.dimension is None else f"dim {one.dimension} "
    words = f"{absence_text(one)} {stopped_alike(one.repeated)}".rstrip()
    yield Paragraph(f"{where}not on {axis_text(one.axis)}: {words}", "warning", 2, 2)
    if one.rival is not None and one.rival not in said:
        yield from _chain(one.rival, everything, indent=4)
