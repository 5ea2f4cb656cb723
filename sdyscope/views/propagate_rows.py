"""The values of a program after propagation, a row each, and the steps that led there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from sdyscope.analysis.diff.propagated import call_placements
from sdyscope.analysis.naming.globs import glob
from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.naming.resolve import ssa_name
from sdyscope.analysis.propagation.replay import Replay
from sdyscope.annotations import Annotation
from sdyscope.facts.program import Partitioner, RequestedTensor
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.facts.sharded import byte_count
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.graph import OpGraph
from sdyscope.values.convert import to_placement, unspecified_dims
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import TensorSharding, TensorShardingPerValue
from sdyscope.values.source import SourceLocation
from sdyscope.views.propagated import (
    Describer,
    PropagatedDocument,
    static_shape,
)
from sdyscope.words.mesh import axis_text
from sdyscope.words.places import op_text, scope_of, shown_name, source_text
from sdyscope.words.propagation import tensor_text
from sdyscope.words.sharding import ShardingDocument, requested_document

Section: TypeAlias = Literal["argument", "result", "constraint", "inside"]
"""``constraint``: constraints and shard_map boundaries; ``inside``: any value inside."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value after propagation.

    Attributes:
      section: argument, result, constraint (or `shard_map` boundary), or a value inside.
      name: pytree path, or scope without the program's own name.
      kind: what it is: argument, result, constraint, `shard_map input`, ... or the operation.
      primitive: what JAX calls the operation; empty where it has no name for it.
      ssa: its SSA name, after its function's unless that is main; empty for a dropped argument.
      shape: shape of the whole tensor; null where it is dynamic, or no tensor.
      dtype: MLIR element type.
      bytes: bytes of the whole tensor; null where they are not known.
      source: line of user code.
      written: whether a sharding is written on it in the lowered module.
      requested: what was asked for; null where it was left to the compiler, or is not known.
      propagated: what each partitioner decided; one is absent where its module has no such value.
      as_requested: whether that is what was requested, by partitioner; empty without a request.
      same: whether all partitioners put every block on the same device; null with one of them.
    """

    section: Section
    name: str
    kind: str
    primitive: str
    ssa: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int | None
    source: SourceLocation | None
    written: bool
    requested: ShardingDocument | None
    propagated: dict[Partitioner, PropagatedDocument]
    as_requested: dict[Partitioner, bool]
    same: bool | None


@dataclass(frozen=True, slots=True)
class Step:
    """One move of one axis.

    Attributes:
      number: Shardy's number of the step; several axes can move in one.
      axis: the axis or sub-axis.
      op: the operation that it moved through.
      scope: its scope without the program's own name.
      primitive: what JAX calls it.
      ssa: its SSA name in the lowered module; empty where it has no result.
      source: its line of user code.
      from_: where the axis came from: `dim 1 of the left operand`.
      to: where it went.
      priority: the user priority that was being propagated, from 0.
    """

    number: int
    axis: str
    op: str
    scope: str
    primitive: str
    ssa: str
    source: SourceLocation | None
    from_: str
    to: tuple[str, ...]
    priority: int


@dataclass(frozen=True)
class Side:
    """One partitioner's propagation.

    Attributes:
      found: it.
      graph: op graph of the lowered module.
      describer: what makes documents of its values.
      at: how each value was sharded after some step; None for the end.
    """

    found: Propagated
    graph: OpGraph
    describer: Describer
    at: Mapping[ValueId, TensorSharding | None] | None = None

    def described(
        self,
        value: ValueId,
        boundary: TensorSharding | None = None,
    ) -> _Described | None:
        """What was decided for a value.

        Args:
          value: which.
          boundary: its sharding as an input of a `shard_map`, where that is meant.
        """
        found = self.found.values.get(value)
        if found is None:
            return None
        type_ = self.graph.ops[value[0]].types[value[1]]
        sharding = boundary
        if boundary is None and self.at is not None:
            sharding = self.at.get(value)
        place = self.describer.placement(found, type_, sharding)
        calls = call_placements(found, len(type_.shape or ()), self.describer.devices)
        return _Described(self.describer.value(found, type_, sharding), place, calls)

    def boundary(self, there: Annotation) -> TensorSharding | None:
        """The sharding of an input of a `shard_map` after propagation, under Shardy."""
        found = self.found.values.get((there.op, 0))
        index = there.index or 0
        if found is not None and found.node is not None:
            after = self.found.graph.ops[found.node].attributes.get("in_shardings")
            if isinstance(after, TensorShardingPerValue) and index < len(after.shardings):
                return after.shardings[index]
        return there.sharding if isinstance(there.sharding, TensorSharding) else None


class _Described(NamedTuple):
    document: PropagatedDocument
    place: Placement | None
    calls: tuple[Placement, ...]


class _Meant(NamedTuple):
    """A value of a lowered module, and as what it is meant; see `Side.described`."""

    value: ValueId
    boundary: TensorSharding | None = None


#: The value of each partitioner's lowered module that a row is about.
_Ids: TypeAlias = dict[Partitioner, _Meant]

#: Tensors that are one with a value, which has no other row.
_OWN_ROW = ("argument", "result", "constraint", "shard_map output")


def value_rows(table: TensorTable, sides: Mapping[Partitioner, Side]) -> Iterator[Value]:
    """Arguments, results and constraints, then every other value of the first side's module.

    Args:
      table: the program's tensors.
      sides: the propagations; those after the first are put beside it.
    """
    first = next(iter(sides))
    for tensor, ids in _listed(table, sides):
        if tensor is None:
            yield _inside_row(ids[first].value, ids, sides)
        else:
            yield _tensor_row(tensor, ids, sides)


def row_values(
    table: TensorTable, sides: Mapping[Partitioner, Side], partitioner: Partitioner
) -> Iterator[ValueId | None]:
    """The value of one partitioner's lowered module that each row of `value_rows` is about.

    SSA names do not tell it: the regions of an op can have the same ones. None where the module has
    no such value, and for an input of a `shard_map`, which is not the value that it is made of.
    """
    for tensor, ids in _listed(table, sides):
        found = ids.get(partitioner)
        is_boundary = tensor is not None and tensor.kind == "shard_map input"
        yield None if found is None or is_boundary else found.value


def _listed(
    table: TensorTable, sides: Mapping[Partitioner, Side]
) -> Iterator[tuple[Tensor | None, _Ids]]:
    """What each row is about: a tensor of the table or none, and its values."""
    first, side = next(iter(sides.items()))
    taken: set[ValueId] = set()
    for tensor in table.tensors:
        if tensor.kind in ("op", "inner argument", "inner result"):
            continue  # Values inside, as any other.
        ids: _Ids = {}
        for partitioner, other in sides.items():
            found = _value_of(tensor, partitioner, other)
            if found is not None:
                ids[partitioner] = found
        if first in ids and tensor.kind in _OWN_ROW:
            taken.add(ids[first].value)
        yield tensor, ids
    pairs = {
        partitioner: value_pairs(side.graph, other.graph)
        for partitioner, other in sides.items()
        if partitioner != first
    }
    for value in side.found.values:
        if value not in taken:
            ids = {first: _Meant(value)}
            for partitioner, paired in pairs.items():
                if value in paired:
                    ids[partitioner] = _Meant(paired[value])
            yield None, ids


def _value_of(tensor: Tensor, partitioner: Partitioner, side: Side) -> _Meant | None:
    """The value that a tensor of the table is."""
    there = tensor.lowered.get(partitioner)
    if there is None:
        return None
    match there.kind:
        case "result":
            results = side.graph.results()
            return None if there.index is None else _Meant((results[there.index].id, 0))
        case "shard_map input":
            operands = side.graph.operands(there.op)
            # GSPMD has an op for each input, Shardy one for all.
            index = (there.index or 0) if partitioner == "shardy" else 0
            if index >= len(operands):
                return None
            producer, edge = operands[index]
            boundary = side.boundary(there) if partitioner == "shardy" else None
            return _Meant((producer.id, edge.result), boundary)
        case "shard_map output" if partitioner == "shardy":
            return _Meant((there.op, there.index or 0))
    return _Meant((there.op, 0))


def _tensor_row(tensor: Tensor, ids: _Ids, sides: Mapping[Partitioner, Side]) -> Value:
    asked = tensor.requested
    decided = _decided(ids, sides)
    section: Section = "constraint"
    if tensor.kind in ("argument", "result"):
        section = "argument" if tensor.kind == "argument" else "result"
    ssa = next((ssa_name(sides[p].graph, value) for p, (value, *_) in ids.items()), "")
    return Value(
        section,
        tensor.name if section != "constraint" else shown_name(tensor.name, tensor.kind),
        tensor.kind,
        "",
        ssa,
        tensor.shape,
        tensor.dtype,
        byte_count(tensor.shape, tensor.dtype),
        tensor.source,
        any(there.sharding is not None for there in tensor.lowered.values()),
        None if asked is None else requested_document(asked),
        {partitioner: one.document for partitioner, one in decided.items()},
        {}
        if asked is None or asked.sharding is None
        else {p: _is_as_requested(asked, one.place) for p, one in decided.items()},
        _same(decided),
    )


def _inside_row(value: ValueId, ids: _Ids, sides: Mapping[Partitioner, Side]) -> Value:
    graph = sides[next(iter(ids))].graph
    op = graph.ops[value[0]]
    type_ = op.types[value[1]]
    scope, primitive = scope_of(op)
    decided = _decided(ids, sides)
    shape = static_shape(type_)
    return Value(
        "inside",
        scope,
        op.kind,
        primitive,
        ssa_name(graph, value),
        shape,
        type_.dtype,
        byte_count(shape, type_.dtype),
        op.source,
        op.shardings[value[1]] is not None,
        None,
        {partitioner: one.document for partitioner, one in decided.items()},
        {},
        _same(decided),
    )


def _decided(ids: _Ids, sides: Mapping[Partitioner, Side]) -> dict[Partitioner, _Described]:
    found = {p: sides[p].described(*meant) for p, meant in ids.items()}
    return {partitioner: one for partitioner, one in found.items() if one is not None}


def _same(decided: Mapping[Partitioner, _Described]) -> bool | None:
    """Whether all agree; None where fewer than two have put it anywhere."""
    places = [one.place for one in decided.values() if one.place is not None]
    if len(places) < 2 or len(places) < len(decided):
        return None
    first, *others = (place.without_manual for place in places)
    calls, *further = (one.calls for one in decided.values())
    return all(other == first for other in others) and all(other == calls for other in further)


def _is_as_requested(asked: RequestedTensor, place: Placement | None) -> bool:
    """Whether a value is where it was asked for, but for what was left to the compiler."""
    assert asked.sharding is not None
    rank = len(asked.shape)
    wanted = to_placement(asked.sharding, rank)
    if place is None:
        return False
    opened = unspecified_dims(asked.sharding, rank)
    if not opened:
        return wanted == place.without_manual
    return all(wanted.dims[k] == place.dims[k] for k in range(rank) if k not in opened)


def matches(row: Value, match: str) -> bool:
    """Whether a glob matches the path, the scope with or without the op, or the source line."""
    pattern = glob(match)
    names = (row.name, f"{row.name}/{row.primitive or op_text(row.kind)}", source_text(row.source))
    return any(pattern.fullmatch(name) for name in names)


def step_rows(replay: Replay, match: str | None) -> Iterator[Step]:
    """The steps in order, or those through ops whose scope or source line a glob matches."""
    pattern = None if match is None else glob(match)
    for moved in replay.steps():
        scope, primitive = scope_of(moved.op)
        kind = op_text(moved.op.kind)
        names = (scope, f"{scope}/{primitive or kind}", source_text(moved.op.source))
        if pattern is not None and not any(pattern.fullmatch(name) for name in names):
            continue
        yield Step(
            moved.number,
            axis_text(str(moved.axis)),
            moved.op.kind,
            scope,
            primitive,
            moved.op.name if moved.op.types else "",
            moved.op.source,
            tensor_text(moved.source),
            tuple(map(tensor_text, moved.targets)),
            moved.priority,
        )
