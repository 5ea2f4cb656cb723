"""What two compiled programs differ in, by what makes the difference, as a document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.totals import Collectives, Tally
from sdyscope.analysis.diff import sides as comparisons
from sdyscope.analysis.diff.collectives import CollectiveDifference as Difference
from sdyscope.analysis.diff.collectives import Communicated
from sdyscope.analysis.diff.compiled import CompiledDiff as Found
from sdyscope.analysis.diff.compiled import CompiledSide as Side
from sdyscope.analysis.diff.entries import Entries
from sdyscope.analysis.diff.lowered import Difference as Annotated
from sdyscope.analysis.diff.memory import MemoryRow
from sdyscope.analysis.diff.propagated import Group, PropagatedSide
from sdyscope.analysis.memory.memory import Held
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.errors import CompilerError
from sdyscope.hardware.names import Hardware
from sdyscope.inspection import Inspection
from sdyscope.terminal.table import shape
from sdyscope.values.mesh import AxisRef, Mesh, only_mesh
from sdyscope.views.compiled_diff_parts import (
    Cause,
    CollectiveDifference,
    CommunicatedTensors,
    CompiledSide,
    KindAxesDifference,
    LoneConstraint,
)
from sdyscope.views.propagated_diff import Documents
from sdyscope.words.counts import counted
from sdyscope.words.mesh import mesh_document
from sdyscope.words.origins import origin_text, spec_text
from sdyscope.words.places import shown_name
from sdyscope.words.sharding import open_text, placement_text
from sdyscope.words.types import type_text

#: How many arguments or results are named that were not compared; `--json` has all.
_NAMED = 4

#: The index that tells the arrays of layers apart: `params['layers'][3]`.
_INDEX = re.compile(r"\[\d+\]")

Across: TypeAlias = Literal["partitioners", "hardware", "programs"]
"""What two sides are: one program under two partitioners or on two kinds of hardware, or two
programs."""


@dataclass(frozen=True, slots=True)
class CompiledDiff:
    """Two compiled programs.

    Attributes:
      name: what is compared: the program's name, or the first module's.
      across: whether they are one program under two partitioners, one on two kinds of hardware, or
        two programs.
      same: whether a device sends the same and holds the same in both.
      a: the first side.
      b: the second side.
      by_kind_and_axes: totals that differ, by kind and axes.
      memory: bytes a device on both sides, alike or not; none where one side does not know them.
      entries: arguments and results that are sharded differently, and those that were not compared;
        null where one side does not know them.
      causes: where the differences begin, the most bytes first.
      collectives: what differs, the most bytes first.
      moved: how many tensors both communicate alike, for ops of other scopes.
      notes: what else there is to know.
    """

    name: str
    across: Across
    same: bool
    a: CompiledSide
    b: CompiledSide
    by_kind_and_axes: tuple[KindAxesDifference, ...]
    memory: tuple[MemoryRow, ...]
    entries: Entries | None
    causes: tuple[Cause, ...]
    collectives: tuple[CollectiveDifference, ...]
    moved: int
    notes: tuple[str, ...]


def compared(
    one: Inspection,
    two: Inspection | None,
    on: Hardware | None = None,
    other_on: Hardware | None = None,
) -> CompiledDiff:
    """One program under two partitioners or on two kinds of hardware, or two programs.

    A side that the compiler refuses is told as such; the other one is then not compared.

    Args:
      one: the first program, which may have been compiled already.
      two: the second; None for the first alone.
      on: what to compile for.
      other_on: what to compile the second side for; by default the same.

    Raises:
      CompilerError: both sides are refused.
      TargetError: there is nothing to compare with, or no such hardware.
    """
    across: Across = "partitioners" if other_on is None else "hardware"
    if two is not None:
        across = "programs"
    ends = comparisons.compiled_ends(one, two, None, on, other_on)
    a, b = comparisons.compiled_sides(ends)
    if isinstance(a, CompilerError) or isinstance(b, CompilerError):
        first, second = (
            _failed(end.label, side.message) if isinstance(side, CompilerError) else _side(side)
            for end, side in zip(ends, (a, b), strict=True)
        )
        return CompiledDiff(one.name, across, False, first, second, (), (), None, (), (), 0, ())
    found = comparisons.compiled(ends, (a, b))
    describers = None
    if found.propagated is not None:
        modules = comparisons.lowered_as(ends, (a, b))
        describers = (
            Decisions.of(modules[0], found.propagated[0].propagated),
            Decisions.of(modules[1], found.propagated[1].propagated),
        )
    return program(one.name, across, found, describers)


def program(
    name: str,
    across: Across,
    found: Found,
    describers: tuple[Decisions, Decisions] | None = None,
) -> CompiledDiff:
    """The document of one comparison.

    Args:
      name: what to call what is compared.
      across: what the two sides are.
      found: the differences.
      describers: of the two propagations, where there are any.
    """
    meshes = found.a.collectives.mesh, found.b.collectives.mesh
    causes, numbers = _causes(found, describers)
    return CompiledDiff(
        name=name,
        across=across,
        same=found.is_same,
        a=_side(found.a),
        b=_side(found.b),
        by_kind_and_axes=tuple(_totals(found, meshes)),
        memory=found.memory,
        entries=found.entries,
        causes=causes,
        collectives=tuple(_difference(one, meshes, numbers) for one in found.collectives),
        moved=found.moved,
        notes=found.notes,
    )


def _causes(
    found: Found, describers: tuple[Decisions, Decisions] | None
) -> tuple[tuple[Cause, ...], dict[int, int]]:
    """What collectives differ because of, the most bytes first; and its number by our own."""
    due: dict[int, list[Difference]] = {}
    for one in found.collectives:
        if one.cause is not None:
            due.setdefault(one.cause, []).append(one)
    if found.propagated is None or describers is None:
        return (), {}
    documents = Documents.of(found.propagated, describers)
    ordered = sorted(due, key=lambda number: -sum(abs(one.sent) for one in due[number]))
    causes = []
    for number in ordered:
        places = found.causes[number].places
        first, groups = places[0], [place for place in places if isinstance(place, Group)]
        causes.append(
            Cause(
                documents.value(first.begins) if isinstance(first, Group) else None,
                None if isinstance(first, Group) else _constraint(first, found.propagated),
                len(places),
                sum(group.count for group in groups),
                sum(one.sent for one in due[number]),
                len(due[number]),
                _annotations([one.a for one in due[number]]),
                _annotations([one.b for one in due[number]]),
            )
        )
    return tuple(causes), {number: index for index, number in enumerate(ordered)}


def _annotations(found: Sequence[Communicated]) -> tuple[str, ...]:
    """Annotations behind collectives, by the bytes that are sent for what comes from them."""
    sent: Counter[str] = Counter()
    for communicated in found:
        for collective, part in communicated.parts:
            annotations = part.origin.annotations if part.origin is not None else ()
            named = (f"{one.name} {spec_text(one.spec)}" for one in annotations)
            for words in {_INDEX.sub("[*]", text) for text in named}:
                sent[words] += collective.count * part.sent
    return tuple(words for words, _ in sent.most_common())


def _constraint(cause: Annotated, sides: tuple[PropagatedSide, PropagatedSide]) -> LoneConstraint:
    own, side = (cause.a, sides[0]) if cause.b is None else (cause.b, sides[1])
    assert own is not None
    meshes = side.graph.meshes
    return LoneConstraint(
        shown_name(cause.tensor, cause.kind),
        own.source,
        side.label,
        f"{type_text(own.shape, own.dtype)} "
        f"{open_text(own.sharded(meshes, only_mesh(meshes.values())))}",
    )


def _failed(label: str, reason: str) -> CompiledSide:
    return CompiledSide(label, None, None, None, None, None, None, {}, 0, reason, ())


def _side(side: Side) -> CompiledSide:
    made, mesh = side.compiled, side.collectives.mesh
    unread = side.collectives.not_understood_count
    notes = list(side.notes)
    if unread:
        notes.append(f"{unread:,} lines of the compiled program could not be read.")
    return CompiledSide(
        label=side.label,
        partitioner=None if made is None else made.partitioner,
        hardware=None if made is None or made.hardware is None else str(made.hardware),
        device_kind=None if made is None else made.device_kind or None,
        devices=side.collectives.devices,
        mesh=None if mesh is None else mesh_document("", mesh),
        total=side.collectives.total,
        dtypes=_dtypes(side.collectives),
        rematerializations=0 if made is None else len(made.rematerializations),
        failure="",
        notes=tuple(notes),
    )


def _dtypes(found: Collectives) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for one in found.collectives:
        for part in one.parts:
            counts["/".join(sorted({leaf.dtype for leaf in part.shape.leaves}))] += one.count
    return dict(counts.most_common())


def _totals(found: Found, meshes: Sequence[Mesh | None]) -> list[KindAxesDifference]:
    named = None not in meshes
    sides = [
        side.collectives.tallied(
            lambda one, _: (
                one.kind,
                one.axes if named else None,
                one.group_size if one.axes is None or not named else None,
            )
        )
        for side in (found.a, found.b)
    ]
    return sorted(
        (
            KindAxesDifference(
                kind,
                over_words(axes, size, meshes),
                sides[0].get((kind, axes, size), Tally()),
                sides[1].get((kind, axes, size), Tally()),
            )
            for kind, axes, size in {**sides[0], **sides[1]}
            if sides[0].get((kind, axes, size)) != sides[1].get((kind, axes, size))
        ),
        key=lambda one: -max(one.a.sent, one.b.sent),
    )


def _difference(
    one: Difference, meshes: Sequence[Mesh | None], numbers: dict[int, int]
) -> CollectiveDifference:
    key = one.key
    lines = {part.source: None for side in (one.a, one.b) for _, part in side.parts if part.source}
    places = sorted({(line.file, line.line): line for line in lines}.items())
    return CollectiveDifference(
        change=one.change,
        phase=key.phase,
        scope=key.scope,
        scopes=one.scopes,
        primitive=key.primitive,
        kind=key.kind,
        axes=None if key.axes is None else tuple(axis.name for axis in key.axes),
        over=over_words(key.axes, key.group_size, meshes),
        sources=tuple(line for _, line in places if line is not None),
        a=_communicated(one.a),
        b=_communicated(one.b),
        sent=one.sent,
        cause=None if one.cause is None else numbers.get(one.cause),
    )


def _communicated(found: Communicated) -> CommunicatedTensors:
    origins = {
        origin_text(part.origin): None
        for _, part in found.parts
        if part.origin is not None and part.origin.is_known
    }
    return CommunicatedTensors(
        found.tensors, found.bytes, found.sent, found.received, found.shapes, tuple(origins)
    )


def entry_text(held: Held | None) -> str:
    """How an argument or result is sharded on one side: `P('data') in blocks f32[4,128]`."""
    if held is None:
        return "not there"
    if held.sharding is not None:
        words = str(held.sharding)
    else:
        words = "not known" if held.placement is None else placement_text(held.placement)
    return f"{words} in blocks {shape(held.stored.shape, held.stored.dtype)}"


def not_compared_texts(entries: Entries, labels: tuple[str, str] = ("A", "B")) -> Iterator[str]:
    """A clause for each group of arguments and results that were not compared."""
    for one in entries.not_compared:
        count = counted(len(one.names), one.kind)
        who = {"a": f"{labels[0]} does", "b": f"{labels[1]} does", "": "both sides do"}[one.side]
        verb = "is" if len(one.names) == 1 else "are"
        names = ", ".join(one.names[:_NAMED]) + (", ..." if len(one.names) > _NAMED else "")
        yield f"{count} {verb} not compared: {who} not say how {names} {verb} sharded"


def over_words(
    axes: Sequence[AxisRef] | None, group_size: int | None, meshes: Sequence[Mesh | None]
) -> str:
    """`fsdp=4 x model=2`; `fsdp` where the meshes differ in it; of no axes the size of groups."""
    if axes is None:
        return "no single axis" if group_size is None else f"groups of {group_size:,}"
    if not axes:
        return "one device alone"
    return " x ".join(_axis_words(axis, meshes) for axis in axes)


def _axis_words(axis: AxisRef, meshes: Sequence[Mesh | None]) -> str:
    if axis.sub_axis_info is not None:
        return f"{axis.name}:({axis.sub_axis_info.pre_size}){axis.sub_axis_info.size}"
    sizes = {
        mesh.shape[axis.name] for mesh in meshes if mesh is not None and axis.name in mesh.shape
    }
    return f"{axis.name}={sizes.pop()}" if len(sizes) == 1 else axis.name
