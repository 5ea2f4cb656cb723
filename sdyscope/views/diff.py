"""What two modules differ in, as a document and as tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.diff import Change, Side
from sdyscope.analysis.diff import Diff as Differences
from sdyscope.analysis.diff import Difference as TensorDiff
from sdyscope.analysis.diff import OpDifference as OpDiff
from sdyscope.annotations import Annotation
from sdyscope.inspection import PARTITIONERS
from sdyscope.mesh import Mesh
from sdyscope.views import partitioned_diff_table, propagated_diff, snapshot_text
from sdyscope.views.paragraphs import Paragraph
from sdyscope.views.partitioned_diff import PartitionedDiff
from sdyscope.views.propagated_diff import PropagatedDiff
from sdyscope.views.shardings import (
    ShardingDocument,
    SourceDocument,
    mesh_of,
    shown_name,
    source_document,
    source_text,
    written_document,
)
from sdyscope.views.snapshot import ComparisonDocument
from sdyscope.views.table import Cell, Column, Heading, Row, Table, shape
from sdyscope.words import counted, listed

Stage: TypeAlias = Literal["lowered", "propagated", "partitioned", "snapshot"]
"""At which a comparison is made; ``snapshot``: at all that two snapshot files have."""

#: How many kinds of differing ops are listed unless all are asked for.
LISTED_OPS = 20


@dataclass(frozen=True, slots=True)
class TensorSide:
    """A tensor on one side.

    Attributes:
      shape: shape of the whole tensor; null where it is dynamic.
      dtype: MLIR element type.
      source: line of user code.
      sharding: what is written on it.
    """

    shape: tuple[int, ...] | None
    dtype: str
    source: SourceDocument | None
    sharding: ShardingDocument


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor that is not the same on both sides.

    Attributes:
      tensor: its path or scope.
      kind: what it is.
      change: what happened to it.
      what: which of type, placement, open dimensions and manual axes changed.
      a: the tensor on the first side; null where only the second has it.
      b: the tensor on the second side; null where only the first has it.
    """

    tensor: str
    kind: str
    change: Change
    what: tuple[str, ...]
    a: TensorSide | None
    b: TensorSide | None


@dataclass(frozen=True, slots=True)
class OpDifference:
    """Ops of one kind in one scope that are not the same on both sides.

    Attributes:
      scope: their scope, without the program's own name.
      kind: name of the operation.
      count_a: how many the first side has.
      count_b: how many the second side has.
      types_a: result types that the first side has more ops with, and how many more.
      types_b: result types that the second side has more ops with, and how many more.
    """

    scope: str
    kind: str
    count_a: int
    count_b: int
    types_a: dict[str, int]
    types_b: dict[str, int]


@dataclass(frozen=True, slots=True)
class ProgramDiff:
    """Two modules.

    Attributes:
      name: what is compared: the program's name, or the first module's.
      a: what to call the first side.
      b: what to call the second side.
      same: whether there is no difference.
      same_tensors: how many tensors are the same.
      meshes: how the meshes differ, in sentences.
      tensors: the tensors that differ.
      ops: the ops that differ, the most first; none where ops were not compared.
      notes: what was left out of the comparison, and why.
    """

    name: str
    a: str
    b: str
    same: bool
    same_tensors: int
    meshes: tuple[str, ...]
    tensors: tuple[TensorDifference, ...]
    ops: tuple[OpDifference, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """The document of `sdyscope diff --json`.

    Attributes:
      schema: name and version of this form.
      at: the stage at which they were compared.
      same: whether there is no difference at all.
      programs: one comparison, or one for each program that two directories both have; none where
        they were compared at a later stage.
      propagated: the same for the values after propagation.
      partitioned: the same for what one device runs, sends and holds.
      snapshots: comparisons of two snapshot files, at every stage that both have.
      only_a: programs that only the first directory has.
      only_b: programs that only the second directory has.
      unread: sentences on files that could not be read.
      notes: sentences on programs that were left out.
    """

    schema: Literal["sdyscope.diff/1"] = "sdyscope.diff/1"
    at: Stage = "lowered"
    same: bool
    programs: tuple[ProgramDiff, ...] = ()
    propagated: tuple[PropagatedDiff, ...] = ()
    partitioned: tuple[PartitionedDiff, ...] = ()
    snapshots: tuple[ComparisonDocument, ...] = ()
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def program(
    name: str,
    found: Differences,
    a: Side,
    b: Side,
    meshes: Sequence[Mesh | None],
    notes: Sequence[str] = (),
) -> ProgramDiff:
    """The document of one comparison.

    Args:
      name: what to call it.
      found: the differences.
      a: the first side.
      b: the second side.
      meshes: the mesh of each side, to name axes by; None where it is not known.
      notes: what else there is to say.
    """
    # A GSPMD module names no mesh: its axes are those of the other side's.
    meshes = [meshes[0] or meshes[1], meshes[1] or meshes[0]]
    return ProgramDiff(
        name=name,
        a=found.label_a,
        b=found.label_b,
        same=found.is_same,
        same_tensors=found.same,
        meshes=found.meshes,
        tensors=tuple(_tensor(one, a, b, meshes) for one in found.tensors),
        ops=tuple(map(_op, found.ops)),
        notes=(*found.notes, *notes),
    )


def document(
    programs: Sequence[ProgramDiff] = (),
    only_a: Sequence[str] = (),
    only_b: Sequence[str] = (),
    unread: Sequence[str] = (),
    notes: Sequence[str] = (),
    *,
    propagated: Sequence[PropagatedDiff] = (),
    partitioned: Sequence[PartitionedDiff] = (),
    snapshots: Sequence[ComparisonDocument] = (),
    at: Stage | None = None,
) -> Diff:
    """The document of all comparisons.

    Args:
      programs: comparisons of what was lowered.
      only_a: programs that only the first directory has.
      only_b: programs that only the second has.
      unread: sentences on files that could not be read.
      notes: sentences on programs that were left out.
      propagated: comparisons after propagation.
      partitioned: comparisons of what was compiled.
      snapshots: comparisons of snapshot files.
      at: the stage; by default that of the comparisons.
    """
    every: list[_Compared] = [*programs, *propagated, *partitioned]
    return Diff(
        at=at or ("propagated" if propagated else "partitioned" if partitioned else "lowered"),
        same=all(one.same for one in every)
        and all(map(snapshot_text.is_same, snapshots))
        and not (only_a or only_b or unread),
        programs=tuple(programs),
        propagated=tuple(propagated),
        partitioned=tuple(partitioned),
        snapshots=tuple(snapshots),
        only_a=tuple(only_a),
        only_b=tuple(only_b),
        unread=tuple(unread),
        notes=tuple(notes),
    )


_Compared: TypeAlias = ProgramDiff | PropagatedDiff | PartitionedDiff


def _tensor(found: TensorDiff, a: Side, b: Side, meshes: Sequence[Mesh | None]) -> TensorDifference:
    return TensorDifference(
        found.tensor,
        found.kind,
        found.change,
        found.what,
        _side(found.a, a, meshes[0]),
        _side(found.b, b, meshes[1]),
    )


def _side(annotation: Annotation | None, side: Side, mesh: Mesh | None) -> TensorSide | None:
    if annotation is None:
        return None
    return TensorSide(
        annotation.shape,
        annotation.dtype,
        source_document(annotation.source),
        written_document(annotation, mesh_of(annotation, side.graph, mesh)),
    )


def _op(found: OpDiff) -> OpDifference:
    return OpDifference(
        found.scope,
        found.kind,
        found.count_a,
        found.count_b,
        dict(found.types_a),
        dict(found.types_b),
    )


# --- as it is printed -----------------------------------------------------------------------------


def summary(diff: Diff) -> Iterator[Paragraph]:
    """The total, first of all."""
    every: tuple[_Compared, ...] = (*diff.programs, *diff.propagated, *diff.partitioned)
    yield from snapshot_text.comparisons(diff.snapshots, snapshot_text.OF_TWO)
    if diff.snapshots:
        pass  # Each is told in whole.
    elif len(every) == 1 and not (diff.only_a or diff.only_b):
        yield from map(_total, diff.programs)
        yield from map(propagated_diff.total, diff.propagated)
        yield from map(partitioned_diff_table.total, diff.partitioned)
    else:
        differ = sum(not one.same for one in every)
        text = f"{counted(len(every), 'program')} in both"
        if differ:
            text += f": {differ:,} {'differs' if differ == 1 else 'differ'}"
        elif every:
            text += ": all the same"
        yield Paragraph(text, "good" if diff.same else "bad", hang=2)
    for label, only in (("first", diff.only_a), ("second", diff.only_b)):
        if only:
            yield Paragraph(f"only in the {label}: {', '.join(only)}", "bad", hang=2)
    for sentence in diff.unread:
        yield Paragraph(sentence, "bad", hang=2)


def _total(one: ProgramDiff) -> Paragraph:
    every = counted(one.same_tensors + len(one.tensors), "tensor")
    sides = f"{one.a} and {one.b}"
    if one.same:
        where = "under" if one.a in PARTITIONERS else "in"
        return Paragraph(f"{one.name}: {every}, the same {where} {sides}", "good", hang=2)
    differ = [f"{len(one.tensors):,} of {every}"] if one.tensors else []
    if one.meshes:
        differ.append("the meshes")
    if one.ops:
        ops = sum(max(sum(op.types_a.values()), sum(op.types_b.values())) for op in one.ops)
        differ.append(f"{counted(ops, 'op')} in {counted(len(one.ops), 'place')}")
    verb = "differs" if len(differ) == 1 and len(one.tensors) == 1 else "differ"
    return Paragraph(f"{one.name}: {listed(differ)} {verb} between {sides}", "bad", hang=2)


def details(diff: Diff, *, everything: bool = False) -> Iterator[Paragraph | Table]:
    """What differs, program by program, with an empty line between the parts."""
    count = len(diff.programs) + len(diff.propagated) + len(diff.partitioned)
    several = count > 1 or bool(diff.only_a or diff.only_b)
    for made in diff.partitioned:
        if several and not made.same:
            yield Paragraph("")
            yield partitioned_diff_table.total(made)
        if not (several and made.same):
            yield from partitioned_diff_table.details(made, everything=everything)
    for found in diff.propagated:
        if several and not found.same:
            yield Paragraph("")
            yield propagated_diff.total(found)
        if not (several and found.same):
            yield from propagated_diff.provenance(found)
            yield from propagated_diff.details(found, everything=everything)
    for one in diff.programs:
        if one.same and several:
            continue
        if several:
            yield Paragraph("")
            yield _total(one)
        if one.meshes:
            yield Paragraph("")
            yield from (Paragraph(sentence, hang=2) for sentence in one.meshes)
        if one.tensors:
            yield Paragraph("")
            yield tensors_table(one)
        if one.ops:
            yield Paragraph("")
            yield ops_table(one, None if everything else LISTED_OPS)
            rest = 0 if everything else len(one.ops) - LISTED_OPS
            if rest > 0:
                yield Paragraph(f"and {counted(rest, 'place')} more: --all lists them", "muted")
        if one.notes:
            yield Paragraph("")
            yield from (Paragraph(note, "muted", hang=2) for note in one.notes)
    if diff.notes:
        yield Paragraph("")
        yield from (Paragraph(note, "muted", hang=2) for note in diff.notes)


def tensors_table(one: ProgramDiff) -> Table:
    """The tensors that differ, side by side."""
    rows: list[Row] = []
    groups: dict[str, list[TensorDifference]] = {}
    for tensor in one.tensors:
        groups.setdefault(tensor.kind, []).append(tensor)
    for kind, group in groups.items():
        rows.append(Heading(f"{kind}s ({len(group):,})"))
        rows += [_tensor_row(tensor) for tensor in group]
    return Table((Column("tensor"), Column(one.a), Column(one.b)), tuple(rows))


def _tensor_row(tensor: TensorDifference) -> tuple[Cell | str, ...]:
    side = tensor.a or tensor.b
    shown = shown_name(tensor.tensor, tensor.kind)
    name = f"{shown} {source_text(side.source if side else None)}".strip()
    if tensor.a is None or tensor.b is None:
        absent = Cell("not there", "bad")
        a = absent if tensor.a is None else _text(tensor.a, tensor.a.sharding.short)
        b = absent if tensor.b is None else _text(tensor.b, tensor.b.sharding.short)
        return name, a, b
    one, two = tensor.a.sharding, tensor.b.sharding
    texts = [(one.short, two.short), (_words(one), _words(two)), (one.text, two.text)]
    # Shortest first; what says the same of both says nothing.
    told = next((pair for pair in texts if pair[0] != pair[1]), texts[0])
    if "type" in tensor.what:
        return name, _text(tensor.a, told[0]), _text(tensor.b, told[1])
    return name, told[0], told[1]


def _text(side: TensorSide, sharding: str) -> str:
    kind = f"{side.dtype}[?]" if side.shape is None else shape(side.shape, side.dtype)
    return f"{kind} {sharding}"


def _words(sharding: ShardingDocument) -> str:
    words = sharding.text if sharding.placement is None else sharding.placement.words
    if sharding.open_dims:
        words += f"; open: {', '.join(map(str, sharding.open_dims))}"
    return words


def ops_table(one: ProgramDiff, limit: int | None) -> Table:
    """The ops that differ, by scope; the biggest differences first."""
    chosen = one.ops if limit is None else one.ops[:limit]
    groups: dict[str, list[OpDifference]] = {}
    for op in chosen:
        groups.setdefault(op.scope, []).append(op)
    rows: list[Row] = []
    for scope, group in groups.items():
        rows.append(Heading(scope or "without a scope"))
        rows += [
            (op.kind, f"{op.count_a:,}", f"{op.count_b:,}", Cell(_types(op), "muted"))
            for op in group
        ]
    columns = (
        Column("op", fold=False),
        Column(one.a, align="right"),
        Column(one.b, align="right"),
        Column("result types"),
    )
    return Table(columns, tuple(rows))


def _types(op: OpDifference) -> str:
    shown = [
        f"{sign}{f'{count} x ' if count > 1 else ''}{_short_types(text)}"
        for sign, types in (("-", op.types_a), ("+", op.types_b))
        for text, count in list(types.items())[:2]
    ]
    hidden = len(op.types_a) + len(op.types_b) - len(shown)
    return ", ".join(shown) + (f", {hidden} more" if hidden > 0 else "")


#: A tensor's type as MLIR writes it, when its shape is known and its elements are simple.
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(\w+)>")


def _short_types(text: str) -> str:
    """`f32[16,128]` for `tensor<16x128xf32>`."""
    sizes = _TENSOR.sub(lambda t: shape(tuple(map(int, t[1].split("x")[:-1])), t[2]), text)
    return sizes or "no result"
