"""What two compiled programs differ in, by what makes the difference, as a document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.totals import Collectives, Tally
from sdyscope.analysis.diff.collectives import CollectiveDifference as Difference
from sdyscope.analysis.diff.collectives import Communicated
from sdyscope.analysis.diff.compiled import CompiledDiff as Found
from sdyscope.analysis.diff.compiled import CompiledSide as Side
from sdyscope.analysis.diff.lowered import Difference as Annotated
from sdyscope.analysis.diff.memory import MemoryRow
from sdyscope.analysis.diff.propagated import Group
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.views.compiled_diff_parts import (
    Cause,
    CollectiveDifference,
    CommunicatedTensors,
    CompiledSide,
    KindAxesDifference,
    LoneConstraint,
)
from sdyscope.views.propagated import Describer
from sdyscope.views.propagated_diff import Documents
from sdyscope.words.mesh import mesh_document
from sdyscope.words.places import shown_name

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
    causes: tuple[Cause, ...]
    collectives: tuple[CollectiveDifference, ...]
    moved: int
    notes: tuple[str, ...]


def program(
    name: str,
    across: Across,
    found: Found,
    describers: tuple[Describer, Describer] | None = None,
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
        causes=causes,
        collectives=tuple(_difference(one, meshes, numbers) for one in found.collectives),
        moved=found.moved,
        notes=found.notes,
    )


def _causes(
    found: Found, describers: tuple[Describer, Describer] | None
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
                None if isinstance(first, Group) else _constraint(first, found),
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
            for words in {_INDEX.sub("[*]", f"{one.name} {one.spec}") for one in annotations}:
                sent[words] += collective.count * part.sent
    return tuple(words for words, _ in sent.most_common())


def _constraint(cause: Annotated, found: Found) -> LoneConstraint:
    own = cause.a or cause.b
    return LoneConstraint(
        shown_name(cause.tensor, cause.kind),
        None if own is None else own.source,
        (found.b if cause.a is None else found.a).label,
        cause.words_a or cause.words_b,
    )


def one_sided(
    name: str,
    across: Across,
    labels: tuple[str, str],
    sides: tuple[Side | str, Side | str],
) -> CompiledDiff:
    """The document where one side could not be compiled: of that side the reason is given."""
    one, two = (
        _failed(label, side) if isinstance(side, str) else _side(side)
        for label, side in zip(labels, sides, strict=True)
    )
    return CompiledDiff(name, across, False, one, two, (), (), (), (), 0, ())


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
        hardware=None if made is None else str(made.hardware),
        device_kind=None if made is None else made.device_kind,
        devices=side.collectives.num_devices,
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
        part.origin.words: None
        for _, part in found.parts
        if part.origin is not None and part.origin.is_known
    }
    return CommunicatedTensors(
        found.tensors, found.bytes, found.sent, found.received, found.shapes, tuple(origins)
    )


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
