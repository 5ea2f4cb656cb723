"""Why values are sharded as they are, as it is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import shape
from sdyscope.views.explain import Annotated, Explain, ExplainedValue, Place, Why, WhyNot
from sdyscope.views.propagate_table import provenance
from sdyscope.views.propagated import PropagatedDocument
from sdyscope.words.mesh import mesh_words
from sdyscope.words.places import source_text
from sdyscope.words.propagation import WAYS, stopped_alike
from sdyscope.words.sharding import MANUAL, REPLICATED

#: How many values are explained unless all are asked for.
LISTED = 8

#: How many moves are shown at either end of a long chain, unless all are asked for.
ENDS = 6


def heading(found: Explain) -> Iterator[Paragraph]:
    """How much this is worth; then the program and its meshes."""
    yield from provenance(found.propagations, found.failures)
    yield Paragraph("; ".join([found.name, *map(mesh_words, found.meshes)]), hang=2)
    for change in found.changes:
        yield Paragraph(f"with {change}", hang=2)


def details(found: Explain, *, everything: bool = False) -> Iterator[Paragraph]:
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


def _value(value: ExplainedValue, everything: bool) -> Iterator[Paragraph]:
    type_ = value.dtype if value.shape is None else shape(value.shape, value.dtype)
    place = source_text(value.source)
    parts = [value.name, type_, f"({value.ssa})", f"at {place}" if place else ""]
    yield Paragraph(" ".join(part for part in parts if part), "heading", hang=2)
    for partitioner, one in value.propagated.items():
        label = f"{partitioner}: " if len(value.propagated) > 1 else ""
        yield Paragraph(f"{label}{_decided(one)}", indent=2, hang=2)
        before = value.before.get(partitioner)
        if before is not None and before.text != one.text:
            yield Paragraph(f"before: {_decided(before)}", "warning", indent=4, hang=2)
        elif before is not None:
            yield Paragraph("as before", "muted", indent=4, hang=2)
    for why in value.why:
        yield from _why(why, everything)
    for why_not in value.why_not:
        yield from _why_not(why_not, value.why, everything)
    for note in value.notes:
        yield Paragraph(note, "muted", indent=2, hang=2)


def _decided(one: PropagatedDocument) -> str:
    if one.fate == "folded":
        return "folded away"
    if one.fate == "not partitioned":
        return "not partitioned"
    if one.short == MANUAL:
        return f"{MANUAL}: each device has its own, as the shard_map makes it"
    if one.placement is None or one.short == REPLICATED:
        return f"{REPLICATED} on every device"
    return f"{one.short}: {one.placement.words}"


def _why(why: Why, everything: bool, indent: int = 2) -> Iterator[Paragraph]:
    where = f"dim {why.dimension} on {why.axis}"
    if why.annotated is None:
        yield Paragraph(f"{where}: no annotation was found", "warning", indent, 2)
    else:
        yield Paragraph(f"{where}: from {_annotation(why.annotated)}", "good", indent, 2)
    between = 0 if everything else len(why.moves) - 2 * ENDS
    for position, move in enumerate(why.moves):
        if between > 1 and ENDS <= position < ENDS + between:
            if position == ENDS:
                yield Paragraph(f"{between:,} moves more: --all lists them", "muted", indent + 2)
            continue
        number = "" if move.step is None else f"step {move.step}, "
        yield Paragraph(
            f"{number}{WAYS[move.direction]} {_at(move.through)}: {move.rule}",
            indent=indent + 2,
            hang=2,
        )


def _annotation(one: Annotated) -> str:
    line = source_text(one.source)
    priority = f", priority {one.priority}" if one.priority is not None else ""
    return f"{one.words}{priority}" + (f" at {line}" if line else "")


def _at(place: Place) -> str:
    line = source_text(place.source)
    return f"{place.name} at {line}" if line else place.name


def _why_not(one: WhyNot, said: Sequence[Why], everything: bool) -> Iterator[Paragraph]:
    where = "" if one.dimension is None else f"dim {one.dimension} "
    words = f"{one.words} {stopped_alike(one.repeated)}".rstrip()
    yield Paragraph(f"{where}not on {one.axis}: {words}", "warning", 2, 2)
    if one.rival is not None and one.rival not in said:
        yield from _why(one.rival, everything, indent=4)
