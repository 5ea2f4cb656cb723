"""An argument or a result as a device holds it: where it is, who says so, and its bytes there."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from sdyscope.annotations import Annotation
from sdyscope.errors import ConversionError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.memory import Held, HeldKind, Origin
from sdyscope.facts.program import Partitioner
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.values.convert import to_named_sharding, to_placement
from sdyscope.values.dtypes import hlo_dtype, num_bytes
from sdyscope.values.entry_layout import EntryLayout, StoredArray
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import UNCONSTRAINED, NamedSharding

#: Each tree that a function takes as `*args` is an argument of its own.
_ARGUMENT_GROUP = re.compile(r"args\[\d+\](?=[\[.(])|[^\[.(]+")
_RESULT_GROUP = re.compile(r"[^\[.(]*(?:\[[^\]]*\])?")


def held(
    row: Tensor,
    kind: HeldKind,
    number: int,
    layout: EntryLayout,
    compiled: Compiled,
    mesh: Mesh | None,
) -> Held:
    """What a device holds of one tensor; what could be sharded further is not looked for.

    Args:
        row: the tensor.
        kind: what it is.
        number: its number in the compiled module.
        layout: how that module stores its arguments and results.
        compiled: the compiled program.
        mesh: what shardings are named on where they do not name a mesh themselves.
    """
    stored = (layout.parameters if kind == "argument" else layout.results)[number]
    assert compiled.partitioner is not None
    annotation = row.lowered[compiled.partitioner]
    shape = row.shape if row.shape is not None else stored.shape
    by_compiler = compiled.placement(kind, number, len(shape), mesh)
    placed = _placed(row, annotation, ("compiled", by_compiler), mesh)
    return _held(row, kind, number, stored, by_compiler, placed)


def held_propagated(
    row: Tensor,
    kind: HeldKind,
    number: int,
    partitioner: Partitioner,
    propagated: Placement | None,
    memory_space: int,
    mesh: Mesh | None,
) -> Held:
    """What a device holds of one tensor where propagation puts it, as if no tile were padded.

    Args:
        row: the tensor.
        kind: what it is.
        number: its number in the module.
        partitioner: whose propagation.
        propagated: where that puts it; None where it does not say.
        memory_space: where it is stored, as in ``StoredArray``.
        mesh: what shardings are named on where they do not name a mesh themselves.
    """
    placed = _placed(row, row.lowered[partitioner], ("propagated", propagated), mesh)
    shape = row.shape or ()
    local = tuple(shape) if placed[1] is None else placed[1].local_shape(shape)
    stored = StoredArray(hlo_dtype(row.dtype), local, "", _bytes(local, row.dtype), memory_space)
    return _held(row, kind, number, stored, propagated, placed)


def _held(
    row: Tensor,
    kind: HeldKind,
    number: int,
    stored: StoredArray,
    last: Placement | None,
    placed: tuple[Origin, Placement | None, NamedSharding | None],
) -> Held:
    """Of one tensor that is placed so; ``last`` is where it is in the end."""
    origin, place, sharding = placed
    shape = row.shape if row.shape is not None else stored.shape
    whole = _bytes(shape, row.dtype)
    local = stored.shape if place is None else place.local_shape(shape)
    return Held(
        name=row.name or f"{kind} {number}",
        kind=kind,
        group=group_of(row.name, kind),
        number=number,
        shape=shape,
        dtype=row.dtype,
        origin=origin,
        sharding=sharding,
        replicas=None if place is None else place.replication,
        bytes=whole,
        bytes_per_device=_bytes(local, row.dtype),
        stored=stored,
        donated=row.is_donated,
        placement=last or place,
        key_dims=row.key_dims,
    )


def rows_held(table: TensorTable, partitioner: Partitioner) -> list[tuple[HeldKind, int, Tensor]]:
    """Arguments and results of a module in order, each with its number there."""
    rows: list[tuple[HeldKind, int, Tensor]] = []
    for row in table.tensors:
        there = row.lowered.get(partitioner)
        if there is None or there.index is None:
            continue
        if row.kind == "argument" or row.kind == "result":
            rows.append((row.kind, there.index, row))
    return sorted(rows, key=lambda entry: entry[:2])


def held_block(
    kind: HeldKind, number: int, name: str, stored: StoredArray, compiled: Compiled
) -> Held:
    """What a device holds of an argument or result of which only the block is known.

    Args:
        kind: what it is.
        number: its number in the module.
        name: its pytree path; empty where the text has none.
        stored: how the module stores the block.
        compiled: the compiled program.
    """
    place = compiled.placement(kind, number, len(stored.shape), compiled.mesh)
    rank = len(stored.shape)
    return Held(
        name=name or f"{kind} {number}",
        kind=kind,
        group=group_of(name, kind) if name else f"{kind}s",
        number=number,
        shape=None,
        dtype=stored.dtype,
        origin="unknown" if place is None else "compiled",
        sharding=None if place is None else _named(place, rank, compiled.mesh),
        replicas=None if place is None else place.replication,
        bytes=None,
        bytes_per_device=_bytes(stored.shape, stored.dtype),
        stored=stored,
        placement=place,
    )


def _bytes(shape: Sequence[int], dtype: str) -> int:
    return num_bytes(math.prod(shape), dtype)


def group_of(name: str, kind: str) -> str:
    """The argument or result that a pytree path belongs to: `params`, `args[0]`, `result[0]`."""
    group = (_ARGUMENT_GROUP if kind == "argument" else _RESULT_GROUP).match(name)
    return group[0] if group and group[0] else kind


def _placed(
    row: Tensor,
    annotation: Annotation,
    last: tuple[Origin, Placement | None],
    mesh: Mesh | None,
) -> tuple[Origin, Placement | None, NamedSharding | None]:
    """Where a tensor is, who says so, and that as a PartitionSpec.

    Args:
        row: the tensor.
        annotation: what is written of it in the lowered module.
        last: who decides what those leave open, and how.
        mesh: what shardings are named on where they do not name a mesh themselves.
    """
    rank = len(row.shape or ())
    asked = row.asked
    if asked is not None and UNCONSTRAINED not in asked.spec.entries:
        return "requested", to_placement(asked, rank), asked
    if annotation.placement is not None and not annotation.open_dims:
        return "lowered", annotation.placement, _named(annotation.placement, rank, mesh)
    who, place = last
    if place is None:
        return "unknown", None, None
    return who, place, _named(place, rank, mesh)


def _named(place: Placement, rank: int, mesh: Mesh | None) -> NamedSharding | None:
    if mesh is None:
        return None
    try:
        return to_named_sharding(place, rank, mesh)
    except ConversionError:
        return None  # no PartitionSpec can say it
