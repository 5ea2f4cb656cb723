"""What two propagations differ in, by where it begins."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.facts.differences import Divergence, PropagatedDiff
from sdyscope.facts.propagated import NamedValue
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Tone
from sdyscope.words.counts import counted
from sdyscope.words.differences import (
    extent_text,
    inputs_text,
    not_compared_text,
    propagated_verdict,
    retyped_text,
)
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.places import source_text
from sdyscope.words.remarks import propagation_source_clause, remark_texts
from sdyscope.words.sharding import short, short_and_placed, told_apart
from sdyscope.words.types import value_type_text

#: How many beginnings are shown, and how many values that follow, unless all are asked for.
LISTED = 10


def total(diff: PropagatedDiff) -> Paragraph:
    """The first line."""
    tone: Tone = "good" if diff.same else "bad"
    name = diff.name
    if diff.across == "annotations":
        name += f" under {partitioner_name(diff.propagation_b.partitioner)}"
    return Paragraph(f"{name}: {propagated_verdict(diff)}", tone)


def provenance(diff: PropagatedDiff) -> Iterator[Paragraph]:
    """How much each side is worth."""
    for label, side in ((diff.a, diff.propagation_a), (diff.b, diff.propagation_b)):
        named = partitioner_name(side.partitioner)
        named = named if label == side.partitioner else f"{label} under {named}"
        tone: Tone = "muted" if side.exactness == "exact" else "warning"
        source = propagation_source_clause(side.source)
        yield Paragraph(f"{named}: {side.exactness}, {source}", tone)


def details(diff: PropagatedDiff, *, everything: bool = False) -> Iterator[Paragraph]:
    """Each beginning, and what follows from it; then what could not be compared, and notes.

    Beginnings of which the same is said are told once.
    """
    alike: dict[tuple[Paragraph, ...], list[Divergence]] = {}
    for beginning in diff.beginnings:
        said = tuple(_beginning(diff, beginning, everything=everything))
        alike.setdefault(said, []).append(beginning)
    listed = list(alike.items())
    shown = listed if everything else listed[:LISTED]
    for number, (said, several) in enumerate(shown, 1):
        times = f" (×{len(several):,})" if several[1:] else ""
        yield Paragraph("")
        heading, *about = said
        yield Paragraph(f"{number}. {heading.text}{times}", "heading")
        yield from about
    rest = [beginning for _, several in listed[len(shown) :] for beginning in several]
    if rest:
        values = sum(beginning.values for beginning in rest)
        yield Paragraph("")
        yield Paragraph(
            f"and {counted(len(rest), 'more place')}, with {counted(values, 'value')}: "
            "--all lists everything",
            "muted",
        )
    yield from _remarks(diff)


def _remarks(diff: PropagatedDiff) -> Iterator[Paragraph]:
    notes = [
        f"{partitioner_name(label)}: {note}"
        for label, side in ((diff.a, diff.propagation_a), (diff.b, diff.propagation_b))
        for note in remark_texts((*side.doubts, *side.notes))
    ]
    not_compared = [not_compared_text(each, diff.across) for each in diff.not_compared]
    if not_compared or notes:
        yield Paragraph("")
    for text in (*not_compared, *notes):
        yield Paragraph(text, "muted")


def _beginning(
    diff: PropagatedDiff, beginning: Divergence, *, everything: bool
) -> Iterator[Paragraph]:
    first = beginning.begins
    yield Paragraph(title(first.value), "heading")
    width = max(len(diff.a), len(diff.b))
    said_a, said_b = told_apart(short_and_placed, first.a, first.b)
    for label, said in ((diff.a, said_a), (diff.b, retyped_text(first) + said_b)):
        yield Paragraph(f"{partitioner_name(label):<{width}}  {said}", indent=3, hang=width + 2)
    if sources := inputs_text((source.name, source.sharding) for source in beginning.inputs):
        yield Paragraph(sources, "muted", indent=3)
    yield Paragraph(extent_text(beginning, diff), indent=3)
    for follows in beginning.follows if everything else ():
        words = f"{title(follows.value)}: {short(follows.a)} | {short(follows.b)}"
        yield Paragraph(words, indent=5)


def title(value: NamedValue) -> str:
    """What a value is called: its name, type and line."""
    what = value_type_text(value.shape, value.dtype)
    where = "" if value.kind == "argument" else f" at {source_text(value.source)}"
    return f"{value.name} {what}{where if value.source else ''}"
