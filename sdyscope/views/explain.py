"""Why values are sharded as they are, in paragraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sdyscope.analysis.propagation.explain import ExplainDocument, Explanation
from sdyscope.annotations import op_name
from sdyscope.facts.counterfactuals import Counterfactual, Removals, TriedEdits
from sdyscope.facts.edits import SourceEdit
from sdyscope.facts.moves import Absence, Beginning, Chain
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.views.propagate import provenance
from sdyscope.views.propagated_diff import title
from sdyscope.words.counts import WITH_LOOPS_ONCE, counted, size
from sdyscope.words.edits import (
    aim_text,
    causes_texts,
    checked_edits_text,
    edits_text,
    no_edits_text,
    no_removal_text,
    not_identified_text,
    removal_texts,
    removal_trials_text,
    then_text,
    trials_texts,
    tried_edits_text,
)
from sdyscope.words.mesh import axis_text, mesh_words_of, names_text
from sdyscope.words.origins import origin_text
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.places import callers_text, common_file, source_text
from sdyscope.words.propagation import (
    WAYS,
    allowed_text,
    beginning_text,
    closed_texts,
    decided_text,
    note_text,
    stop_text,
)
from sdyscope.words.remarks import remark_texts
from sdyscope.words.rematerializations import rematerialization_text, resharding_text
from sdyscope.words.sharding import short_and_placed
from sdyscope.words.types import value_type_text

#: How many values are explained unless all are asked for.
LISTED = 8

#: How many moves are shown at either end of a long chain, unless all are asked for.
ENDS = 6


def heading(document: ExplainDocument) -> Iterator[Paragraph]:
    """How much this is worth; then the program and its meshes."""
    yield from provenance(document.propagations, document.failures)
    yield Paragraph("; ".join([document.name, *mesh_words_of(document.meshes)]))
    for change in document.changes:
        yield Paragraph(f"with {change}")


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
        yield Paragraph(note, "muted")


def removals(document: ExplainDocument) -> Iterator[Paragraph]:
    """What the compiler makes: why it is there, what it needs, and what ends it."""
    for collective in document.collectives:
        yield Paragraph("")
        over = names_text(collective.over or collective.axes)
        at = _at(source_text(collective.source))
        once = WITH_LOOPS_ONCE * collective.counted_once
        yield Paragraph(
            f"{collective.name} over {over}, {size(collective.sent)} per step{once} {at}".rstrip(),
            "heading",
        )
        if collective.origin is not None:
            yield Paragraph(f"because {origin_text(collective.origin)}", indent=2)
        tried = collective.removals
        over = f" over {tried.removed}" if tried.removed else ""
        yield from _removals(tried, f"the collective{over}")
    for causes in document.rematerializations:
        yield Paragraph("")
        yield Paragraph(rematerialization_text(causes.rematerialization), "heading")
        change = resharding_text(causes.rematerialization)
        if change:
            yield Paragraph(change, indent=2)
        yield from _removals(causes.removals, "the rematerialization")
    for difference in document.differences:
        yield Paragraph("")
        yield Paragraph(title(difference.begins.value), "heading")
        sides = {difference.a: difference.begins.a, difference.b: difference.begins.b}
        for name, sharded in sides.items():
            yield Paragraph(f"{partitioner_name(name)}: {short_and_placed(sharded)}", indent=2)
        if difference.values > 1:
            more = counted(difference.values - 1, "more value")
            yield Paragraph(f"{more} sharded differently from here on", "muted", 2, 2)
        yield from _removals(difference.removals, "the difference")


def _removals(tried: Removals, what: str) -> Iterator[Paragraph]:
    """What becomes of something without annotations."""
    for remedy in tried.constraints:
        yield from _remedy(remedy, tried, adds=True)
    if not tried.is_found:
        yield Paragraph(not_identified_text(what), "warning", indent=2)
        return
    for text in removal_texts(tried, what):
        yield Paragraph(text, indent=2)
    for remedy in tried.remedies:
        yield from _remedy(remedy, tried)
    if not tried.remedies and not tried.is_kept:
        yield Paragraph(no_removal_text(tried), "warning", 2, 2)
    if tried.tried:
        yield Paragraph(removal_trials_text(tried), "muted", 2)


def _remedy(remedy: TriedEdits, tried: Removals, *, adds: bool = False) -> Iterator[Paragraph]:
    """Edits with which it is gone, and what the program then does."""
    words, is_better = tried_edits_text(remedy, tried, adds=adds)
    yield Paragraph(f"{words}:", "good" if is_better else "warning", indent=2)
    yield from _edits(remedy.edits)


def _edits(edits: Iterable[SourceEdit]) -> Iterator[Paragraph]:
    for edit in edits:
        yield Paragraph(edits_text([edit]), indent=4)


def _value(explanation: Explanation, everything: bool) -> Iterator[Paragraph]:
    value = explanation.value
    type_ = value_type_text(value.shape, value.dtype)
    at = _at(source_text(value.source))
    if explanation.callers:
        at += f", called at {callers_text(explanation.callers, common_file([value.source]))}"
    parts = [value.name, type_, f"({value.ssa})", at]
    yield Paragraph(" ".join(part for part in parts if part), "heading")
    for partitioner, decided in explanation.decided.items():
        label = f"{partitioner_name(partitioner)}: " if len(explanation.decided) > 1 else ""
        yield Paragraph(f"{label}{decided_text(decided)}", indent=2)
        before = explanation.before.get(partitioner)
        if before is not None and before.sharding.text != decided.sharding.text:
            yield Paragraph(f"before: {decided_text(before)}", "warning", indent=4)
        elif before is not None:
            yield Paragraph("as before", "muted", indent=4)
    for chain in explanation.chains:
        yield from _chain(chain, everything)
    for absence in explanation.absences:
        yield from _absence(absence, explanation.chains, everything)
    for text in closed_texts(explanation.closed, explanation.absences):
        yield Paragraph(text, "plain", 2, 2)
    for note in explanation.notes:
        yield Paragraph(note_text(note), "muted", indent=2)
    if explanation.counterfactual is not None:
        yield from _counterfactual(explanation.counterfactual)
    if explanation.unanswered:
        yield Paragraph(explanation.unanswered, "warning", indent=2)


def _counterfactual(counterfactual: Counterfactual) -> Iterator[Paragraph]:
    for causes in counterfactual.causes:
        for text in causes_texts(causes):
            yield Paragraph(text, indent=2)
    for checked in counterfactual.remedies:
        yield Paragraph(f"{checked_edits_text(counterfactual, checked)}:", "good", 2, 2)
        yield from _edits(checked.edits)
        yield Paragraph(then_text(checked), "muted", indent=4)
    if not counterfactual.remedies:
        yield Paragraph(no_edits_text(counterfactual), "warning", indent=2)
    if counterfactual.constraint is not None:
        edits = edits_text(counterfactual.constraint.edits)
        text = f"{aim_text(counterfactual)} with one more constraint: {edits}"
        yield Paragraph(text, "good", indent=2)
    known, *warnings = trials_texts(counterfactual)
    yield Paragraph(known, "muted", indent=2)
    for warning in warnings:
        yield Paragraph(warning, "warning", indent=2)


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
        )


def _beginning(beginning: Beginning) -> str:
    priority = f", priority {beginning.priority}" if beginning.priority is not None else ""
    return f"{beginning_text(beginning)}{priority} {_at(source_text(beginning.source))}".rstrip()


def _absence(absence: Absence, chains: Sequence[Chain], everything: bool) -> Iterator[Paragraph]:
    where = "" if absence.dimension is None else f"dim {absence.dimension} "
    words = f"{where}not on {axis_text(absence.axis)}: {stop_text(absence)}"
    yield Paragraph(words, "warning", 2, 2)
    if absence.rival is not None and absence.rival not in chains:
        yield from _chain(absence.rival, everything, indent=4)
