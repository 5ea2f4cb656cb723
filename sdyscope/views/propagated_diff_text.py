"""What two propagations differ in, by where it begins, as it is printed."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.analysis.diff.value_differences import Beginning, DifferingValue, PropagatedDiff
from sdyscope.facts.propagated import Propagated
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Tone, shape
from sdyscope.words.counts import counted
from sdyscope.words.differences import extent_text, inputs_text
from sdyscope.words.places import source_text
from sdyscope.words.sharding import REPLICATED

#: How many beginnings are shown, and how many values that follow, unless all are asked for.
LISTED = 10


def total(one: PropagatedDiff) -> Paragraph:
    """The first line."""
    every = counted(one.same_values + one.different_values, "value")
    sides = f"{one.under_a} and {one.b}"
    if one.different_values:
        verb = "is" if one.different_values == 1 else "are"
        text = (
            f"{one.name}: {one.different_values:,} of {every} {verb} sharded differently {sides}, "
            f"from {counted(len(one.beginnings), 'place')} on"
        )
    else:
        text = f"{one.name}: {every}, sharded alike {sides}"
    for only, label in ((one.only_a, one.a), (one.only_b, one.b)):
        if only:
            text += f"; {counted(only, 'value')} only in {label}"
    return Paragraph(text, "good" if one.same else "bad", hang=2)


def provenance(one: PropagatedDiff) -> Iterator[Paragraph]:
    """How much each side is worth."""
    for label, side in ((one.a, one.propagation_a), (one.b, one.propagation_b)):
        named = label if label == side.partitioner else f"{label} under {side.partitioner}"
        tone: Tone = "muted" if side.exactness == "exact" else "warning"
        yield Paragraph(f"{named}: {side.exactness}, {source_words(side)}", tone, hang=2)


def source_words(side: Propagated) -> str:
    """What a propagation was taken from, to go on a sentence with; the name of a dump left out."""
    return side.source.rstrip(".").partition(": ")[0]


def details(one: PropagatedDiff, *, everything: bool = False) -> Iterator[Paragraph]:
    """Each beginning, and what follows from it; then what could not be compared, and notes."""
    shown = one.beginnings if everything else one.beginnings[:LISTED]
    for number, beginning in enumerate(shown, 1):
        yield Paragraph("")
        yield from _beginning(one, number, beginning, everything=everything)
    rest = one.beginnings[len(shown) :]
    if rest:
        values = sum(beginning.values for beginning in rest)
        yield Paragraph("")
        yield Paragraph(
            f"and {counted(len(rest), 'place')} more, with {counted(values, 'value')}: "
            "--all lists everything",
            "muted",
        )
    yield from remarks(one)


def remarks(one: PropagatedDiff) -> Iterator[Paragraph]:
    """What could not be compared, and notes of both sides."""
    notes = [
        f"{label}: {note}"
        for label, side in ((one.a, one.propagation_a), (one.b, one.propagation_b))
        for note in side.remarks
    ]
    if one.not_comparable or notes:
        yield Paragraph("")
    for reason, count in one.not_comparable.items():
        yield Paragraph(f"{counted(count, 'value')} not compared: {reason}", "muted", hang=2)
    for note in notes:
        yield Paragraph(note, "muted", hang=2)


def _beginning(
    one: PropagatedDiff, number: int, beginning: Beginning, *, everything: bool
) -> Iterator[Paragraph]:
    first = beginning.begins
    yield Paragraph(f"{number}. {title(first)}", "heading", hang=3)
    width = max(len(one.a), len(one.b))
    for label, text, words in (
        (one.a, first.a, first.words_a),
        (one.b, first.b, first.words_b),
    ):
        said = words if text in (words, REPLICATED) else f"{text}: {words}"
        yield Paragraph(f"{label:<{width}}  {said}", indent=3, hang=width + 2)
    if sources := inputs_text((source.name, source.a) for source in beginning.inputs):
        yield Paragraph(sources, "muted", indent=3, hang=2)
    held = (beginning.bytes_a, beginning.bytes_b)
    extent = extent_text(beginning.values, beginning.bytes, held, (one.under_a, one.under_b))
    yield Paragraph(extent, indent=3, hang=2)
    if everything:
        for value in beginning.follows:
            yield Paragraph(f"{title(value)}: {value.a} | {value.b}", indent=5, hang=2)


def title(value: DifferingValue) -> str:
    """What a value is called: its name, type and line."""
    what = shape(value.shape, value.dtype) if value.shape is not None else value.dtype
    where = "" if value.kind == "argument" else f" at {source_text(value.source)}"
    return f"{value.name} {what}{where if value.source else ''}"
