"""Why values are sharded as they are, in paragraphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.analysis.propagation.explain import ExplainDocument, Explanation
from sdyscope.annotations import op_name
from sdyscope.facts.counterfactuals import Counterfactual
from sdyscope.facts.moves import Absence, Beginning, Chain
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.views.propagate import provenance
from sdyscope.words.counts import counted, size
from sdyscope.words.edits import cause_text, causes_texts, edit_text
from sdyscope.words.mesh import axis_text, mesh_words_of
from sdyscope.words.origins import origin_text
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

#: How many values are explained unless all are asked for.
LISTED = 8

#: How many moves are shown at either end of a long chain, unless all are asked for.
ENDS = 6


def heading(document: ExplainDocument) -> Iterator[Paragraph]:
    """How much this is worth; then the program and its meshes."""
    yield from provenance(document.propagations, document.failures)
    yield Paragraph("; ".join([document.name, *mesh_words_of(document.meshes)]), hang=2)
    for change in document.changes:
        yield Paragraph(f"with {change}", hang=2)


def details(document: ExplainDocument, *, everything: bool = False) -> Iterator[Paragraph]:
    """Each value, with an empty line before it."""
    shown = document.values if everything else document.values[:LISTED]
    for value in shown:
        yield Paragraph("")
        yield from _value(value, everything)
    rest = len(document.values) - len(shown)
    if rest:
        yield Paragraph("")
        yield Paragraph(
            f"and {rest:,} more {'value' if rest == 1 else 'values'} that {document.value} names: "
            "--all explains them",
            "muted",
        )


def footer(document: ExplainDocument) -> Iterator[Paragraph]:
    """Why a propagation is approximate, and what is not known of its origins and steps."""
    notes = [
        note
        for propagation in document.propagations
        for note in (*propagation.doubts, *propagation.debug_info.notes)
    ]
    if notes:
        yield Paragraph("")
    for note in remark_texts(notes):
        yield Paragraph(note, "muted", hang=2)


def collectives(document: ExplainDocument) -> Iterator[Paragraph]:
    """Each collective: why it is there, what it needs, and the fewest edits without it."""
    for collective in document.collectives:
        yield Paragraph("")
        over = " x ".join(collective.axes) or "no single axis"
        at = _at(source_text(collective.source))
        yield Paragraph(
            f"{collective.name} over {over}, {size(collective.sent)} per step {at}".rstrip(),
            "heading",
            hang=2,
        )
        if collective.origin is not None:
            yield Paragraph(f"because {origin_text(collective.origin)}", indent=2, hang=2)
        if not collective.is_found:
            yield Paragraph(
                "right behind partitioning it has another name, so nothing was tried",
                "warning",
                indent=2,
                hang=2,
            )
            continue
        for tried in collective.causes:
            what = {
                True: "is necessary: without it the collective is gone",
                False: "is not necessary: without it the collective stays",
                None: "could not be removed: XLA refuses the program without it",
            }[tried.necessary]
            yield Paragraph(f"{cause_text(tried.cause)} {what}", indent=2, hang=2)
        for remedy in collective.remedies:
            yield Paragraph(
                f"gone, fewest edits, partitioned again: a device then sends {size(remedy.sent)} "
                f"per step, and {size(collective.sent_now)} now",
                "good" if remedy.sent < collective.sent_now else "warning",
                indent=2,
                hang=2,
            )
            for edit in remedy.edits:
                line = f" ({source_text(edit.source)})" if edit.source is not None else ""
                yield Paragraph(f"{edit_text(edit)}{line}", indent=4, hang=2)
        if collective.causes and not collective.remedies:
            yield Paragraph(
                "no set of these annotations that was tried removes it", "warning", 2, 2
            )
        times = counted(collective.partitioned, "time")
        yield Paragraph(f"known from partitioning the program {times}", "muted", 2)


def _value(explanation: Explanation, everything: bool) -> Iterator[Paragraph]:
    value = explanation.value
    type_ = value.dtype if value.shape is None else type_text(value.shape, value.dtype)
    parts = [value.name, type_, f"({value.ssa})", _at(source_text(value.source))]
    yield Paragraph(" ".join(part for part in parts if part), "heading", hang=2)
    for partitioner, decided in explanation.decided.items():
        label = f"{partitioner}: " if len(explanation.decided) > 1 else ""
        yield Paragraph(f"{label}{decided_text(decided)}", indent=2, hang=2)
        before = explanation.before.get(partitioner)
        if before is not None and before.sharding.text != decided.sharding.text:
            yield Paragraph(f"before: {decided_text(before)}", "warning", indent=4, hang=2)
        elif before is not None:
            yield Paragraph("as before", "muted", indent=4, hang=2)
    for chain in explanation.chains:
        yield from _chain(chain, everything)
    for absence in explanation.absences:
        yield from _absence(absence, explanation.chains, everything)
    for note in explanation.notes:
        yield Paragraph(note_text(note), "muted", indent=2, hang=2)
    if explanation.counterfactual is not None:
        yield from _counterfactual(explanation.counterfactual)
    if explanation.unanswered:
        yield Paragraph(explanation.unanswered, "warning", indent=2, hang=2)


def _counterfactual(counterfactual: Counterfactual) -> Iterator[Paragraph]:
    for causes in counterfactual.causes:
        for text in causes_texts(causes):
            yield Paragraph(text, indent=2, hang=2)
    what = (
        f"without {counterfactual.removed}"
        if counterfactual.removed
        else f"as {counterfactual.wanted}"
    )
    for checked in counterfactual.remedies:
        how = "fewest edits" if checked.smallest else "edits, none of which can be left out"
        yield Paragraph(f"{what}, {how}, propagated again:", "good", indent=2, hang=2)
        for edit in checked.edits:
            line = f" ({source_text(edit.source)})" if edit.source is not None else ""
            yield Paragraph(f"{edit_text(edit)}{line}", indent=4, hang=2)
        yield Paragraph(f"then it is {checked.after}", "muted", indent=4, hang=2)
    if not counterfactual.remedies:
        tried = "no set" if counterfactual.complete else "no set that was tried"
        yield Paragraph(f"{what}: {tried} of annotations does that", "warning", indent=2, hang=2)
    if counterfactual.constraint is not None:
        edit = counterfactual.constraint.edits[0]
        yield Paragraph(
            f"{what}, by one more constraint: {edit_text(edit)}", "good", indent=2, hang=2
        )
    yield Paragraph(
        f"known from {counted(counterfactual.propagations, 'propagation')}", "muted", indent=2
    )


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
                yield Paragraph(
                    f"{counted(between, 'more move')}: --all lists them", "muted", indent + 2
                )
            continue
        number = "" if move.step is None else f"step {move.step}, "
        through = f"{op_name(move.through)} {_at(source_text(move.through.source))}".rstrip()
        yield Paragraph(
            f"{number}{WAYS[move.direction]} {through}: {allowed_text(move.rule)}",
            indent=indent + 2,
            hang=2,
        )


def _beginning(beginning: Beginning) -> str:
    priority = f", priority {beginning.priority}" if beginning.priority is not None else ""
    return f"{beginning_text(beginning)}{priority} {_at(source_text(beginning.source))}".rstrip()


def _absence(absence: Absence, chains: Sequence[Chain], everything: bool) -> Iterator[Paragraph]:
    where = "" if absence.dimension is None else f"dim {absence.dimension} "
    words = f"{absence_text(absence)} {stopped_alike(absence.repeated)}".rstrip()
    yield Paragraph(f"{where}not on {axis_text(absence.axis)}: {words}", "warning", 2, 2)
    if absence.rival is not None and absence.rival not in chains:
        yield from _chain(absence.rival, everything, indent=4)
