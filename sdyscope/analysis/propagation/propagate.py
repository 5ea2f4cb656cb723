"""Every value of a program after propagation, and the steps that led there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from sdyscope.analysis.account import account_of
from sdyscope.analysis.naming.globs import matches
from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.naming.resolve import ssa_name
from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.analysis.propagation.explain import propagations
from sdyscope.analysis.propagation.replay import Moved, Replay
from sdyscope.annotations import (
    Annotation,
    AnnotationKind,
    annotated_value,
    scope_of,
    shown_name,
)
from sdyscope.errors import TargetError
from sdyscope.facts.account import Account
from sdyscope.facts.decided import DecidedValue
from sdyscope.facts.differences import PropagatedDiff
from sdyscope.facts.failures import Failure, failures
from sdyscope.facts.program import Partitioner, RequestedTensor
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.facts.sharded import Sharded, byte_count, requested_open_dims, requested_sharding
from sdyscope.facts.tensors import Tensor, TensorTable
from sdyscope.formatters import in_place
from sdyscope.staged import Staged
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import FilePath, SourceLocation

Section: TypeAlias = Literal["argument", "result", "constraint", "by JAX", "inside"]
"""``constraint``: constraints and shard_map boundaries; ``by JAX``: constraints that JAX wrote on
its own, such as for types on Explicit axes; ``inside``: any value inside."""


@dataclass(frozen=True, slots=True)
class ProgramValue:
    """One value of a program after propagation.

    Attributes:
        section: argument, result, constraint (or `shard_map` boundary), one that JAX wrote on its
            own, or a value inside.
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
        ids: which value of each partitioner's lowered module it is.
    """

    section: Section
    name: str
    kind: str
    primitive: str
    ssa: str
    shape: tuple[int, ...] | None
    dtype: str
    source: SourceLocation | None
    written: bool
    requested: Sharded | None
    propagated: dict[Partitioner, DecidedValue]
    as_requested: dict[Partitioner, bool]
    same: bool | None
    ids: Mapping[Partitioner, ValueId]

    __document__ = in_place(dtype=("dtype", "bytes"), ids=())

    @property
    def disagrees(self) -> bool:
        """Whether it ends elsewhere than requested, under some partitioner."""
        return not all(self.as_requested.values())

    @property
    def bytes(self) -> int | None:
        """Bytes of the whole tensor; None where they are not known."""
        return byte_count(self.shape, self.dtype)

    @property
    def is_sharded(self) -> bool:
        """Whether any partitioner has the devices hold different parts of it."""
        return any(propagated.is_sharded for propagated in self.propagated.values())

    def id_under(self, partitioner: Partitioner) -> ValueId | None:
        """The value of a lowered module that it is.

        None where that has no such value, and for an input of a `shard_map`, which is not the value
        that it is made of. SSA names do not tell it: the regions of an op can have the same ones.
        """
        return None if self.kind == "shard_map input" else self.ids.get(partitioner)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropagateDocument:
    """The document of `sdyscope propagate --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name, or the module's.
        file: the file that it was read from; null for a program.
        jax_version: version of JAX that lowered or read it.
        meshes: the meshes that its shardings are on.
        propagations: by whom it was propagated, and how much that is worth.
        failures: which partitioners did not, and why.
        at_step: after which step this is; null for the end.
        changes: the annotations that were changed: what was wished for.
        changed: what differs from the program as it is, by partitioner; null when nothing was
            changed.
        values: the values, or those that match.
        hidden: how many values do not match.
        steps: the steps in order, those that match; null when they were not asked for.
        last_step: the number of the last step; null without any.
        has_priorities: whether the user gave priorities.
        account: what is not known of the program, at the stages that were looked at.
    """

    schema: Literal["sdyscope.propagate/4"] = "sdyscope.propagate/4"
    name: str
    file: FilePath | None
    jax_version: str
    meshes: dict[str, Mesh]
    propagations: tuple[Propagated, ...]
    failures: tuple[Failure, ...]
    at_step: int | None
    changes: tuple[str, ...]
    changed: tuple[PropagatedDiff, ...] | None
    values: tuple[ProgramValue, ...]
    hidden: int
    steps: tuple[Moved, ...] | None
    last_step: int | None
    has_priorities: bool
    account: Account

    @property
    def partitioners(self) -> tuple[Partitioner, ...]:
        """Whose propagations there are."""
        return tuple(propagation.partitioner for propagation in self.propagations)

    @property
    def compared(self) -> tuple[ProgramValue, ...]:
        """The values that all partitioners have put somewhere, each once.

        An input of a `shard_map` is a value that has a row of its own.
        """
        return tuple(
            value
            for value in self.values
            if value.same is not None and value.kind != "shard_map input"
        )

    @property
    def differing(self) -> int:
        """How many of them the partitioners put differently."""
        return sum(value.same is False for value in self.compared)


def propagate_document(
    program: Staged,
    *,
    match: str | None = None,
    steps: bool = False,
    at_step: int | None = None,
    conservative: bool = False,
    changes: Sequence[str] = (),
    changed: Sequence[PropagatedDiff] | None = None,
) -> PropagateDocument:
    """Propagates a program or module under each of its partitioners.

    Args:
        program: the program, with other annotations if so wished.
        match: a glob that names of values must match; None for all.
        steps: whether to list the steps.
        at_step: the step after which to look; None for the end.
        conservative: whether Shardy is to propagate conservatively.
        changes: what was changed, in words.
        changed: what differs from the program as it is; None where nothing was changed.

    Raises:
        SdyscopeError: no partitioner propagates it, or there is no such step.
    """
    decisions_by_partitioner, failed = propagations(program, conservative)
    sides = {
        partitioner: _Side(decisions) for partitioner, decisions in decisions_by_partitioner.items()
    }
    shardy = decisions_by_partitioner.get("shardy")
    replay = Replay(shardy) if shardy is not None and shardy.propagated.steps else None
    if replay is None and (steps or at_step is not None):
        raise TargetError(
            "There are no steps: only Shardy's propagation, run here, numbers them."
            if shardy is None
            else "There are no steps: no axis moved.",
        )
    if at_step is not None and replay is not None and shardy is not None:
        last = replay.last or 0
        if at_step > last:
            raise TargetError(
                f"There is no step {at_step}.", hint=f"The last step is {last}, the first 0."
            )
        sides = {"shardy": _Side(shardy, replay.at(at_step))}
    rows = list(_values(program.tensors, sides))
    kept = rows if match is None else [row for row in rows if _matches(row, match)]
    return PropagateDocument(
        name=program.name,
        file=program.file,
        jax_version=program.jax_version,
        meshes=program.meshes,
        propagations=tuple(side.propagated for side in sides.values()),
        failures=(*failures(program.failures), *failed),
        at_step=at_step,
        changes=tuple(changes),
        changed=None if changed is None else tuple(changed),
        values=tuple(kept),
        hidden=len(rows) - len(kept),
        steps=tuple(_steps(replay, match)) if steps and replay is not None else None,
        last_step=None if replay is None else replay.last,
        has_priorities=replay is not None and replay.has_priorities,
        account=account_of(program),
    )


def _matches(value: ProgramValue, match: str) -> bool:
    return matches(match, value.name, value.primitive or value.kind, value.source)


def _steps(replay: Replay, match: str | None) -> Iterator[Moved]:
    """The steps in order, or those through ops whose scope or source line a glob matches."""
    for moved in replay.steps():
        scope, primitive = scope_of(moved.through)
        op = primitive or moved.through.kind
        if match is None or matches(match, scope, op, moved.through.source):
            yield moved


class _Meant(NamedTuple):
    """A value of a lowered module; where an input of a `shard_map` is meant, its sharding there.

    Attributes:
        value: which value.
        sharding: as the `shard_map` takes it.
        boundary: what is written there.
    """

    value: ValueId
    sharding: TensorSharding | None = None
    boundary: Annotation | None = None


class _DecidedAtCalls(NamedTuple):
    """What was decided for a value, and where it is at each call of its function."""

    decided: DecidedValue
    calls: tuple[Placement, ...]


class _Side:
    """One partitioner's propagation.

    Args:
        decisions: its values.
        at: how each value was sharded after some step; None for the end.
    """

    def __init__(
        self, decisions: Decisions, at: Mapping[ValueId, TensorSharding | None] | None = None
    ) -> None:
        self.decisions = decisions
        self.propagated = decisions.propagated
        self.graph = decisions.graph
        self.at = at

    def decided_for(self, meant: _Meant) -> _DecidedAtCalls | None:
        """What was decided for a value; None where there is no such value."""
        value, sharding, boundary = meant
        if sharding is None and self.at is not None:
            sharding = self.at.get(value)
        decided = self.decisions.decided(value, sharding, boundary)
        return None if decided is None else _DecidedAtCalls(decided, self.decisions.calls(value))

    def meant(self, tensor: Tensor, partitioner: Partitioner) -> _Meant | None:
        """The value that a tensor of the table is."""
        there = tensor.lowered.get(partitioner)
        if there is None:
            return None
        value = annotated_value(self.graph, there)
        if value is None:
            return None
        if there.kind == "shard_map input" and partitioner == "shardy":
            return _Meant(value, self._boundary(there), there)
        return _Meant(value)

    def _boundary(self, there: Annotation) -> TensorSharding | None:
        """The sharding of an input of a `shard_map` after propagation, under Shardy."""
        after = self.propagated.taken_as(there.op, there.index or 0)
        written = there.sharding if isinstance(there.sharding, TensorSharding) else None
        return written if after is None else after


_Sides: TypeAlias = Mapping[Partitioner, _Side]

#: The value of each partitioner's lowered module that a row is about.
_Ids: TypeAlias = dict[Partitioner, _Meant]

#: Tensors that are one with a value, which has no other row.
_OWN_ROW = ("argument", "result", "constraint", "shard_map output")

#: Tensors of the table that are values inside, as any other.
_INSIDE: tuple[AnnotationKind, ...] = ("op", "inner argument", "inner result")


def _values(table: TensorTable, sides: _Sides) -> Iterator[ProgramValue]:
    """Arguments, results and constraints, then every other value of the first side's module.

    Args:
        table: the program's tensors.
        sides: the propagations; those after the first are put beside it.
    """
    first, side = next(iter(sides.items()))
    taken: set[ValueId] = set()
    # In a file, which can be written by hand, nobody knows who wrote what.
    author_known = any(tensor.requested is not None for tensor in table.tensors)
    for tensor in table.tensors:
        if tensor.kind in _INSIDE:
            continue
        ids: _Ids = {}
        for partitioner, other in sides.items():
            meant = other.meant(tensor, partitioner)
            if meant is not None:
                ids[partitioner] = meant
        if tensor.kind == "constraint" and _is_in_reducer(ids, sides):
            continue
        if first in ids and tensor.kind in _OWN_ROW:
            taken.add(ids[first].value)
        yield _tensor(tensor, ids, sides, author_known)
    pairs = {
        partitioner: value_pairs(side.graph, other.graph)
        for partitioner, other in sides.items()
        if partitioner != first
    }
    for value in side.propagated.values:
        if value not in taken:
            ids = {first: _Meant(value)}
            for partitioner, paired in pairs.items():
                if value in paired:
                    ids[partitioner] = _Meant(paired[value])
            yield _inside(value, ids, sides)


def _is_in_reducer(ids: _Ids, sides: _Sides) -> bool:
    """Whether it is of the scalars that a `psum` adds: JAX constrains these, and none is split."""
    fates = {each.decided.fate for each in _decided(ids, sides).values()}
    return fates == {"not partitioned"}


def _tensor(tensor: Tensor, ids: _Ids, sides: _Sides, author_known: bool) -> ProgramValue:
    asked = tensor.requested
    by_partitioner = _decided(ids, sides)
    section: Section = "constraint"
    if tensor.kind in ("argument", "result"):
        section = "argument" if tensor.kind == "argument" else "result"
    elif author_known and tensor.kind == "constraint" and not tensor.is_authored:
        section = "by JAX"
    is_named = section in ("argument", "result")
    return ProgramValue(
        section=section,
        name=tensor.name if is_named else shown_name(tensor.name, tensor.kind, tensor.mapped),
        kind=tensor.kind,
        primitive="",
        ssa=next((ssa_name(sides[p].graph, value) for p, (value, *_) in ids.items()), ""),
        shape=tensor.shape,
        dtype=tensor.dtype,
        source=tensor.source,
        written=any(there.sharding is not None for there in tensor.lowered.values()),
        requested=None if asked is None else requested_sharding(asked),
        propagated={
            partitioner: side_value.decided for partitioner, side_value in by_partitioner.items()
        },
        as_requested={}
        if asked is None or asked.sharding is None
        else {
            p: _is_as_requested(asked, side_value.decided.placement)
            for p, side_value in by_partitioner.items()
        },
        same=_same(by_partitioner),
        ids={partitioner: value for partitioner, (value, *_) in ids.items()},
    )


def _inside(value: ValueId, ids: _Ids, sides: _Sides) -> ProgramValue:
    graph = sides[next(iter(ids))].graph
    op = graph.within_calls(graph.ops[value[0]])
    type_ = op.types[value[1]]
    scope, primitive = scope_of(op)
    by_partitioner = _decided(ids, sides)
    return ProgramValue(
        section="inside",
        name=scope,
        kind=op.kind,
        primitive=primitive,
        ssa=ssa_name(graph, value),
        shape=type_.static_shape,
        dtype=type_.dtype,
        source=op.source,
        written=op.shardings[value[1]] is not None,
        requested=None,
        propagated={
            partitioner: side_value.decided for partitioner, side_value in by_partitioner.items()
        },
        as_requested={},
        same=_same(by_partitioner),
        ids={partitioner: value for partitioner, (value, *_) in ids.items()},
    )


def _decided(ids: _Ids, sides: _Sides) -> dict[Partitioner, _DecidedAtCalls]:
    by_partitioner = {
        partitioner: sides[partitioner].decided_for(meant) for partitioner, meant in ids.items()
    }
    return {
        partitioner: side_value
        for partitioner, side_value in by_partitioner.items()
        if side_value is not None
    }


def _same(by_partitioner: Mapping[Partitioner, _DecidedAtCalls]) -> bool | None:
    """Whether all agree; None where fewer than two have put it anywhere."""
    if len(by_partitioner) < 2:
        return None
    places = [
        place
        for side_value in by_partitioner.values()
        if (place := side_value.decided.placement) is not None
    ]
    if len(places) < 2 or len(places) < len(by_partitioner):
        return None
    first, *others = (place.without_manual for place in places)
    calls, *further = (side_value.calls for side_value in by_partitioner.values())
    return all(other == first for other in others) and all(other == calls for other in further)


def _is_as_requested(asked: RequestedTensor, place: Placement | None) -> bool:
    """Whether a value is where it was asked for, but for what was left to the compiler."""
    assert asked.sharding is not None
    rank = len(asked.shape)
    wanted = to_placement(asked.sharding, rank)
    if place is None:
        return False
    if asked.is_partly_manual:
        # What a body's own axes cut the partitioner may cut further, over the others.
        return place.refines(wanted)
    opened = requested_open_dims(asked)
    if not opened:
        return wanted == place.without_manual
    return all(wanted.dims[k] == place.dims[k] for k in range(rank) if k not in opened)
