"""What two compiled programs differ in, as it is printed: the total, then what causes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Table
from sdyscope.views.compiled_diff import CompiledDiff, not_compared_texts
from sdyscope.views.compiled_diff_parts import Cause, CollectiveDifference, CompiledSide
from sdyscope.views.compiled_diff_table import (
    by_kind,
    collectives,
    entries,
    op_words,
    short_labels,
    totals,
)
from sdyscope.views.propagated_diff_text import title
from sdyscope.words.counts import counted, size
from sdyscope.words.differences import across_text, behind_text, follows_text
from sdyscope.words.mesh import mesh_words
from sdyscope.words.places import shortened, source_text

#: How many differences of collectives are shown unless all are asked for.
LISTED = 12


_NUMBER = re.compile(r"\d+")

_Part: TypeAlias = Paragraph | Table


def total(one: CompiledDiff) -> Paragraph:
    """The first line: the same, or how much more or less is sent and needed."""
    failed = [side for side in (one.a, one.b) if side.failure]
    if failed:
        other = one.b if failed[0] is one.a else one.a
        where = across_text(one.across, failed[0].label)
        text = f"{one.name}: compiles {across_text(one.across, other.label)}, and not {where}"
        return Paragraph(text, "bad", hang=2)
    sides = f"{across_text(one.across, one.a.label)} and {one.b.label}"
    if one.same:
        return Paragraph(f"{one.name}: {_the_same(one)} {sides}", "good", hang=2)
    words = []
    assert one.a.total is not None
    assert one.b.total is not None
    if one.a.total != one.b.total or one.collectives:
        words.append(_changed("sends", one.a.total.sent, one.b.total.sent))
    if any(row.differs for row in one.memory):
        before, after = next(
            ((row.a or 0, row.b or 0) for row in one.memory if row.kind == "total"), (0, 0)
        )
        words.append(_changed("holds" if _is_text(one) else "needs", before, after))
    differ = 0 if one.entries is None else len(one.entries.different)
    which = counted(differ, "argument or result is", "arguments and results are")
    sharded = f"{which} sharded differently"
    if not words:
        return Paragraph(f"{one.name}: {sharded} in {one.a.label} and {one.b.label}", "bad", hang=2)
    text = f"{one.name}: {across_text(one.across, one.b.label)} a device {' and '.join(words)}"
    text += f" than {across_text(one.across, one.a.label)}" + (f"; {sharded}" if differ else "")
    return Paragraph(text, "bad", hang=2)


def _the_same(one: CompiledDiff) -> str:
    total = one.a.total
    assert total is not None
    sent = f"{counted(total.count, 'collective')} a step" if total.count else "no collectives"
    if total.count:
        sent += f" that send {size(total.sent)}"
    needed = next((row.a for row in one.memory if row.kind == "total"), None)
    held = (
        ""
        if needed is None
        else f", and {size(needed)} that a device {'holds' if _is_text(one) else 'needs'}"
    )
    return f"{sent}{held}, the same"


def _is_text(one: CompiledDiff) -> bool:
    """Whether one side is the text of a compiled program, which says less."""
    return any(side.hardware is None and not side.failure for side in (one.a, one.b))


def _changed(verb: str, before: int, after: int) -> str:
    if before == after:
        return f"{verb} as much ({size(after)}), but not the same"
    more = "more" if after > before else "less"
    return f"{verb} {size(abs(after - before))} {more} ({size(after)}, not {size(before)})"


def details(one: CompiledDiff, *, everything: bool = False) -> Iterator[_Part]:
    """What was compared, the totals, then the collectives that differ under what causes them."""
    yield Paragraph(_compiled(one), "muted", hang=2)
    for side in (one.a, one.b):
        if side.failure:
            yield Paragraph("")
            yield Paragraph(f"{side.label}: {side.failure}", "bad", hang=2)
    if one.a.total is not None and one.b.total is not None and not one.same:
        yield Paragraph("")
        yield totals(one)
        if one.by_kind_and_axes:
            yield Paragraph("")
            yield by_kind(one)
        if one.entries is not None and one.entries.different:
            yield Paragraph("")
            yield entries(one, None if everything else LISTED)
            rest = len(one.entries.different) - LISTED
            if rest > 0 and not everything:
                yield Paragraph(f"and {counted(rest, 'more')}: --all lists them", "muted", hang=2)
        yield from _causes(one, everything)
    yield from _remarks(one, everything)


def _compiled(one: CompiledDiff) -> str:
    parts: list[str] = []
    if short_labels(one) != (one.a.label, one.b.label):
        parts.append(f"A: {one.a.label}; B: {one.b.label}")
    meshes = [mesh_words(side.mesh) for side in (one.a, one.b) if side.mesh is not None]
    parts += dict.fromkeys(meshes)
    if not meshes:
        counts = [f"{side.devices:,} devices" for side in (one.a, one.b) if side.devices]
        parts += dict.fromkeys(counts)
    return "; ".join([*parts, *_hardware(one)])


def _hardware(one: CompiledDiff) -> Iterator[str]:
    """What the sides were compiled for, and under which partitioner where that is the same."""
    made = [side for side in (one.a, one.b) if side.hardware is not None]
    partitioners = {side.partitioner for side in made}
    under = "" if len(partitioners) != 1 or one.across == "partitioners" else " under "
    under += (made[0].partitioner or "") if under else ""
    if len(made) == 2 and len({side.hardware for side in made}) == 2:
        yield f"compiled{under} for {_device(one.a)} and {_device(one.b)}"
    elif made:
        label = "" if len(made) == 2 or one.a.failure or one.b.failure else f"{made[0].label} "
        yield f"{label}compiled{under} for {_device(made[0])}"
    if len(partitioners) > 1 and one.across != "partitioners":
        yield ", ".join(f"{side.label} under {side.partitioner}" for side in made)


def _device(side: CompiledSide) -> str:
    kind, hardware = side.device_kind or "", side.hardware or ""
    return hardware if kind.lower() in ("", hardware.partition(":")[0]) else f"{hardware} ({kind})"


def _causes(one: CompiledDiff, everything: bool) -> Iterator[_Part]:
    listed = one.collectives if everything else one.collectives[:LISTED]
    for index, cause in enumerate(one.causes):
        yield Paragraph("")
        yield from _beginning(one, index + 1, cause)
        yield from _due(one, index, listed, everything)
    rest = [difference for difference in one.collectives if difference.cause is None]
    if rest:
        yield Paragraph("")
        yield Paragraph(_without_cause(one, len(rest)), hang=2)
        yield from _due(one, None, listed, everything)


def _due(
    one: CompiledDiff,
    cause: int | None,
    listed: Sequence[CollectiveDifference],
    everything: bool,
) -> Iterator[_Part]:
    """What follows from one cause, as far as it is listed."""
    shown = [difference for difference in listed if difference.cause == cause]
    hidden = [
        difference for difference in one.collectives[len(listed) :] if difference.cause == cause
    ]
    if shown:
        yield Paragraph("")
        yield collectives(one, shown)
        yield from _origins(one, shown, everything)
    yield from _hidden(hidden)


def _hidden(rest: Sequence[CollectiveDifference]) -> Iterator[Paragraph]:
    if rest:
        sent = sum(abs(one.sent) for one in rest)
        words = counted(len(rest), "more difference")
        yield Paragraph(f"and {words}, of {size(sent)}: --all lists everything", "muted", hang=2)


def _beginning(one: CompiledDiff, index: int, cause: Cause) -> Iterator[Paragraph]:
    more_layers = cause.layers - 1
    layers = f", and {counted(more_layers, 'layer')} more" if more_layers else ""
    if cause.begins is not None:
        first = cause.begins
        yield Paragraph(f"{index}. {title(first)}{layers}", "heading", hang=3)
        width = max(len(one.a.label), len(one.b.label))
        for side, text in ((one.a, first.a), (one.b, first.b)):
            yield Paragraph(f"{side.label:<{width}}  {text}", indent=3, hang=width + 2)
    if cause.constraint is not None:
        lone = cause.constraint
        where = f" at {source_text(lone.source)}" if lone.source else ""
        heading = f"{index}. the constraint in {lone.name}{where}{layers}: only in {lone.only}"
        yield Paragraph(heading, "heading", hang=3)
        yield Paragraph(lone.sharding, indent=3, hang=2)
    where = across_text(one.across, one.b.label)
    words = follows_text(cause.values, cause.differences, cause.sent, where)
    yield Paragraph(words, indent=3, hang=2)
    for side, behind in ((one.a, cause.annotations_a), (one.b, cause.annotations_b)):
        if behind:
            text = behind_text(across_text(one.across, side.label), behind)
            yield Paragraph(text, "muted", 3, 2)


def _without_cause(one: CompiledDiff, count: int) -> str:
    if one.across == "hardware":
        return (
            "The shardings are the same on both: what differs is what the compilers make of them."
        )
    if _is_text(one):
        return f"{counted(count, 'difference')}; of a text it is not known where they begin:"
    if one.causes:
        return (
            f"{counted(count, 'difference')} where the tensors of the op are sharded alike, or are "
            "not in both modules:"
        )
    return f"{counted(count, 'difference')} that could not be traced to a sharding:"


def _origins(
    one: CompiledDiff, shown: Sequence[CollectiveDifference], everything: bool
) -> Iterator[Paragraph]:
    """Why each side communicates: the annotations behind it, where all is asked for."""
    for difference in shown if everything else ():
        sides = [
            (side.label, found.origins)
            for side, found in ((one.a, difference.a), (one.b, difference.b))
            if found.origins
        ]
        if not sides:
            continue
        yield Paragraph("")
        yield Paragraph(f"{difference.kind} for {op_words(difference)}", hang=2)
        for label, origins in sides:
            # Of tensors that only differ in a number, such as those of layers, the first.
            alike = {_NUMBER.sub("*", words): words for words in reversed(origins)}
            for words in reversed(alike.values()):
                yield Paragraph(f"{label}: {shortened(words)}", "muted", indent=2, hang=2)


def _remarks(one: CompiledDiff, everything: bool) -> Iterator[Paragraph]:
    words = []
    if one.moved:
        verb = "is" if one.moved == 1 else "are"
        words.append(
            f"{counted(one.moved, 'tensor')} {verb} communicated for ops of other scopes, from the "
            "same lines and otherwise alike"
        )
    if one.collectives:
        words.append(
            "the columns of both sides: tensors a step; change: of the bytes that a device sends "
            "in a step, counted from the program, not measured"
        )
    if not one.memory and not (one.a.failure or one.b.failure):
        words.append("memory is not compared: a text does not say how it stores its parameters")
    if one.memory and _is_text(one):
        words.append("memory: arguments and results, which is all that a text says of it")
    if one.entries is not None:
        labels = one.a.label, one.b.label
        unknown = [Paragraph(t, "warning", hang=2) for t in not_compared_texts(one.entries, labels)]
        if unknown:
            yield Paragraph("")
            yield from unknown
    words += one.notes
    for side in (one.a, one.b):
        words += [f"{side.label}: {note}" for note in side.notes]
    if words:
        yield Paragraph("")
        yield from (Paragraph(text, "muted", hang=2) for text in words)
