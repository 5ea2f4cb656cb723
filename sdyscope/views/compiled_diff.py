"""What two compiled programs differ in: the total, then what makes the difference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from sdyscope.facts.differences import (
    Cause,
    CollectiveDifference,
    Communicated,
    CompiledDiff,
)
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Cell, Column, Heading, Row, Table, Tone, number
from sdyscope.views.propagated_diff import title
from sdyscope.words.counts import counted, size
from sdyscope.words.differences import (
    OTHERWISE,
    across_text,
    behind_texts,
    compared_over_text,
    compiled_notes,
    compiled_remarks,
    compiled_verdict,
    entry_texts,
    follows_text,
    not_compared_entries_text,
    without_cause_text,
)
from sdyscope.words.hardware import hardware_text
from sdyscope.words.memory import part_text
from sdyscope.words.mesh import mesh_words_of
from sdyscope.words.origins import origin_text
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.paths import shortened
from sdyscope.words.places import shown_name, source_text
from sdyscope.words.sharding import NONE, open_text, short
from sdyscope.words.types import type_text

#: How many differences in collectives are shown unless all are asked for.
LISTED = 12

_NUMBER = re.compile(r"\d+")

_Part: TypeAlias = Paragraph | Table


def total(diff: CompiledDiff) -> Paragraph:
    """The first line: the same, or how much more or less is sent and needed."""
    tone: Tone = "good" if diff.same else "bad"
    return Paragraph(f"{diff.name}: {compiled_verdict(diff)}", tone)


def details(diff: CompiledDiff, *, everything: bool = False) -> Iterator[_Part]:
    """What was compared, the totals, then the collectives that differ under what causes them."""
    yield Paragraph(_compiled(diff), "muted")
    for side in (diff.a, diff.b):
        if side.failure:
            yield Paragraph("")
            yield Paragraph(f"{partitioner_name(side.label)}: {side.failure}", "bad")
    if diff.a.total is not None and diff.b.total is not None and not diff.is_alike:
        yield Paragraph("")
        yield _totals(diff)
        if diff.by_kind_and_axes:
            yield Paragraph("")
            yield _by_kind(diff)
        if diff.entries is not None and diff.entries.different:
            yield Paragraph("")
            yield _entries(diff, None if everything else LISTED)
            rest = len(diff.entries.different) - LISTED
            if rest > 0 and not everything:
                yield Paragraph(f"and {rest:,} more: --all lists them", "muted")
        yield from _causes(diff, everything)
    yield from _remarks(diff)


def _compiled(diff: CompiledDiff) -> str:
    parts: list[str] = []
    if _short_labels(diff) == ("A", "B"):
        parts.append(f"A: {diff.a.label}; B: {diff.b.label}")
    meshes = [side.mesh for side in (diff.a, diff.b) if side.mesh is not None]
    parts += dict.fromkeys(words for mesh in meshes for words in mesh_words_of({"": mesh}))
    if not meshes:
        counts = [f"{side.devices:,} devices" for side in (diff.a, diff.b) if side.devices]
        parts += dict.fromkeys(counts)
    return "; ".join([*parts, *_hardware(diff)])


def _hardware(diff: CompiledDiff) -> Iterator[str]:
    """What the sides were compiled for, and under which partitioner where that is the same."""
    every = (diff.a, diff.b)
    texts = [hardware_text(side.hardware, side.device_kind) for side in every]
    sides = [side for side, text in zip(every, texts, strict=True) if text]
    partitioners = {side.partitioner for side in sides}
    under = "" if len(partitioners) != 1 or diff.across == "partitioners" else " under "
    under += partitioner_name(sides[0].partitioner) if under else ""
    if len(sides) == 2 and texts[0] != texts[1]:
        yield f"compiled{under} for {' and '.join(texts)}"
    elif sides:
        is_both = len(sides) == 2 or diff.a.failure or diff.b.failure
        label = "" if is_both else f"{partitioner_name(sides[0].label)} "
        yield f"{label}compiled{under} for {next(filter(None, texts))}"
    if len(partitioners) > 1 and diff.across != "partitioners":
        yield ", ".join(
            f"{side.label} under {partitioner_name(side.partitioner)}" for side in sides
        )


def _causes(diff: CompiledDiff, everything: bool) -> Iterator[_Part]:
    listed = diff.collectives if everything else diff.collectives[:LISTED]
    for index, cause in enumerate(diff.causes):
        yield Paragraph("")
        yield from _beginning(diff, index + 1, cause)
        yield from _due(diff, index, listed, everything)
    rest = [difference for difference in diff.collectives if difference.cause is None]
    if rest:
        yield Paragraph("")
        yield Paragraph(without_cause_text(diff, len(rest)))
        yield from _due(diff, None, listed, everything)


def _due(
    diff: CompiledDiff,
    cause: int | None,
    listed: Sequence[CollectiveDifference],
    everything: bool,
) -> Iterator[_Part]:
    """What follows from one cause, as far as it is listed."""
    shown = [difference for difference in listed if difference.cause == cause]
    hidden = [
        difference for difference in diff.collectives[len(listed) :] if difference.cause == cause
    ]
    if shown:
        yield Paragraph("")
        yield _collectives(diff, shown)
        yield from _origins(diff, shown, everything)
    yield from _hidden(hidden)


def _hidden(rest: Sequence[CollectiveDifference]) -> Iterator[Paragraph]:
    if rest:
        sent = sum(abs(difference.sent) for difference in rest)
        words = counted(len(rest), "more difference")
        yield Paragraph(f"and {words}, of {size(sent)}: --all lists everything", "muted")


def _beginning(diff: CompiledDiff, index: int, cause: Cause) -> Iterator[Paragraph]:
    more_layers = cause.layers - 1
    layers = f", and {counted(more_layers, 'more layer')}" if more_layers else ""
    if cause.begins is not None:
        first = cause.begins
        yield Paragraph(f"{index}. {title(first.value)}{layers}", "heading", hang=3)
        width = max(len(diff.a.label), len(diff.b.label))
        for side, sharding in ((diff.a, first.a), (diff.b, first.b)):
            text = f"{partitioner_name(side.label):<{width}}  {short(sharding)}"
            yield Paragraph(text, indent=3, hang=width + 2)
    if cause.constraint is not None:
        lone = cause.constraint
        own, which = lone.own
        only = partitioner_name((diff.a if which == "a" else diff.b).label)
        where = f" at {source_text(own.source)}" if own.source else ""
        name = f"the constraint in {shown_name(lone.tensor, lone.kind)}"
        heading = f"{index}. {name}{where}{layers}: only in {only}"
        yield Paragraph(heading, "heading", hang=3)
        words = f"{type_text(own.shape, own.dtype)} {open_text(own.sharding)}"
        yield Paragraph(words, indent=3)
    where = across_text(diff.across, diff.b.label)
    words = follows_text(cause.values, cause.differences, cause.sent, where)
    yield Paragraph(words, indent=3)
    yield from (Paragraph(text, "muted", 3, 2) for text in behind_texts(cause, diff))


def _origins(
    diff: CompiledDiff, shown: Sequence[CollectiveDifference], everything: bool
) -> Iterator[Paragraph]:
    """Why each side communicates: the annotations behind it, where all is asked for."""
    for difference in shown if everything else ():
        sides = [
            (partitioner_name(side.label), communicated.origins)
            for side, communicated in ((diff.a, difference.a), (diff.b, difference.b))
            if communicated.origins
        ]
        if not sides:
            continue
        yield Paragraph("")
        yield Paragraph(f"{difference.key.kind} for {_op_words(difference)}")
        for label, origins in sides:
            # Of tensors that only differ in a number, such as those of layers, the first.
            texts = map(origin_text, reversed(origins))
            alike = {_NUMBER.sub("*", words): words for words in texts}
            for words in reversed(alike.values()):
                yield Paragraph(f"{label}: {shortened(words)}", "muted", indent=2)


def _remarks(diff: CompiledDiff) -> Iterator[Paragraph]:
    words = []
    if diff.collectives:
        words.append(
            "the columns of both sides: tensors per step; change: in bytes each device sends "
            "per step, counted from the program, not measured"
        )
    words += compiled_remarks(diff)
    if diff.entries is not None:
        labels = diff.a.label, diff.b.label
        unknown = [not_compared_entries_text(each, labels) for each in diff.entries.not_compared]
        if unknown:
            yield Paragraph("")
            yield from (Paragraph(text, "warning") for text in unknown)
    for side in (diff.a, diff.b):
        words += [f"{partitioner_name(side.label)}: {note}" for note in compiled_notes(side)]
    if words:
        yield Paragraph("")
        yield from (Paragraph(text, "muted") for text in words)


# --- tables ---------------------------------------------------------------------------------------

#: Names of sides that are longer are not used above columns.
_LONGEST = 14


def _short_labels(diff: CompiledDiff) -> tuple[str, str]:
    """What the sides are called above columns: no longer than the numbers there."""
    labels = partitioner_name(diff.a.label), partitioner_name(diff.b.label)
    return labels if max(map(len, labels)) <= _LONGEST else ("A", "B")


def _totals(diff: CompiledDiff) -> Table:
    """What a device sends and needs on both sides; of memory only what is not the same."""
    assert diff.a.total is not None
    assert diff.b.total is not None
    a, b = diff.a.total, diff.b.total
    rows: list[Row] = [
        Heading("collectives"),
        _counts("collectives per step", a.count, b.count),
        _counts("tensors", a.tensors, b.tensors),
    ]
    if diff.a.dtypes != diff.b.dtypes:
        names = {**diff.a.dtypes, **diff.b.dtypes}
        rows += [
            _counts(f"  of {name}", diff.a.dtypes.get(name, 0), diff.b.dtypes.get(name, 0))
            for name in names
        ]
    rows.append(_sizes("sent", a.sent, b.sent))
    if (a.sent, b.sent) != (a.received, b.received):
        rows.append(_sizes("received", a.received, b.received))
    remade = diff.a.rematerializations, diff.b.rematerializations
    if any(remade):
        rows.append(_counts("full rematerializations", *remade))
    differs = [row for row in diff.memory if row.differs]
    if differs:
        rows.append(Heading("memory"))
        donated = diff.aliases
        rows += [_sizes(part_text(row.name, donated), row.a, row.b) for row in differs]
    columns = (
        Column("per device", fold=False),
        *map(number, _short_labels(diff)),
        number("change"),
    )
    return Table(columns, tuple(rows))


def _counts(what: str, a: int, b: int) -> Row:
    change = Cell(f"{b - a:+,}") if b != a else Cell(NONE, "muted")
    return (what, f"{a:,}", f"{b:,}", change)


def _sizes(what: str, a: int | None, b: int | None) -> Row:
    return (what, size(a), size(b), _change((b or 0) - (a or 0)))


def _change(count: int) -> Cell:
    if not count:
        return Cell(NONE, "muted")
    return Cell(f"{'+' if count > 0 else '-'}{size(abs(count))}")


def _by_kind(diff: CompiledDiff) -> Table:
    """A row a kind of collective and axes that do not come to the same."""
    rows: list[Row] = []
    for entry in diff.by_kind_and_axes:
        over = compared_over_text(entry.axes, entry.group_size, (diff.a.mesh, diff.b.mesh))
        cells: list[Cell | str] = [entry.kind, over]
        for tally in (entry.a, entry.b):
            if tally.tensors:
                cells += [f"{tally.count:,}", size(tally.sent)]
            else:
                cells += [Cell(NONE, "muted"), Cell(NONE, "muted")]
        rows.append((*cells, _change(entry.b.sent - entry.a.sent)))
    return Table(
        (
            Column("collective", fold=False),
            Column("over"),
            number(_short_labels(diff)[0]),
            number("sent"),
            number(_short_labels(diff)[1]),
            number("sent"),
            number("change"),
        ),
        tuple(rows),
    )


def _collectives(diff: CompiledDiff, shown: Sequence[CollectiveDifference]) -> Table:
    """A row a difference: how many tensors either side communicates, and for which op."""
    files: dict[str, list[CollectiveDifference]] = {}
    for difference in shown:
        files.setdefault(_file(difference), []).append(difference)
    rows: list[Row] = []
    for file, members in files.items():
        if file or len(files) > 1:
            rows.append(Heading(f"in {file}" if file else "without a source line"))
        rows += [_difference(member, diff) for member in members]
    columns = (
        Column("collective"),
        Column("over"),
        *map(number, _short_labels(diff)),
        number("change"),
        Column("for"),
        number("line"),
    )
    return Table(columns, tuple(rows))


def _entries(diff: CompiledDiff, limit: int | None) -> Table:
    """A row an argument or result that is not the same on both sides."""
    assert diff.entries is not None
    rows: list[Row] = [
        (
            entry.name,
            entry.change,
            *entry_texts(entry.a, entry.b, (diff.a.mesh, diff.b.mesh), entry.change),
        )
        for entry in diff.entries.different[:limit]
    ]
    labels = _short_labels(diff)
    return Table(
        (Column("argument or result"), Column("differs"), Column(labels[0]), Column(labels[1])),
        tuple(rows),
    )


def _op_words(difference: CollectiveDifference) -> str:
    """The op that tensors are communicated for, and how many there are like it."""
    where = "/".join(filter(None, (difference.key.scope, difference.key.primitive)))
    return f"{where} ({len(difference.scopes):,})" if len(difference.scopes) > 1 else where


def _difference(difference: CollectiveDifference, of: CompiledDiff) -> Row:
    key = difference.key
    return (
        key.kind,
        compared_over_text(key.axes, key.group_size, (of.a.mesh, of.b.mesh)),
        _tensors(difference.a),
        _tensors(difference.b),
        OTHERWISE.get(difference.otherwise) or _change(difference.sent),
        _op_words(difference) or Cell(NONE, "muted"),
        _lines(difference) or Cell(NONE, "muted"),
    )


def _tensors(communicated: Communicated) -> Cell:
    return Cell(f"{communicated.tensors:,}") if communicated.tensors else Cell(NONE, "muted")


def _file(difference: CollectiveDifference) -> str:
    return source_text(difference.sources[0]).rpartition(":")[0] if difference.sources else ""


def _lines(difference: CollectiveDifference) -> str:
    # Two versions of a file have most lines in one place.
    every = (text.rpartition(":")[2] for text in map(source_text, difference.sources))
    lines = [*dict.fromkeys(every)]
    return ", ".join(lines[:2]) + (", ..." if len(lines) > 2 else "")
