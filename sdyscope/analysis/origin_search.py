"""Finds why each collective is there, from the ops it was made for and the shardings around them.

A collective over some axes, made for an op, is one of these: the op sums over a dimension that is
in pieces along the axes; a value that the op takes or makes is sharded on them and is needed
otherwise; the op reaches across blocks; or the op is itself a collective of the program. Where the
op does not touch the axes (compilers move names about), the ops around it are looked at, nearest
first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sdyscope.analysis.annotated_axes import AnnotatedAxes, AnnotatedAxis, Written
from sdyscope.analysis.axis_parts import AxisPart, part_of, part_size
from sdyscope.analysis.chains import Chains
from sdyscope.analysis.collective_origins import CollectiveOrigin, OriginAnnotation, OriginRole
from sdyscope.analysis.collective_totals import Collective, Collectives, Part
from sdyscope.analysis.flow import Flow
from sdyscope.analysis.origin_words import OriginWords
from sdyscope.analysis.propagated_axes import AxesByDim, PropagatedAxes, axes_in, spec_text
from sdyscope.analysis.value_names import ValueNames
from sdyscope.annotations import Annotation
from sdyscope.graph import Op, OpGraph
from sdyscope.propagated import Propagated, ValueId
from sdyscope.source import SourceLocation

__all__ = ["with_origins"]

#: Collectives that a program writes in a shard_map, by the names of their ops.
_PROGRAM: Final = frozenset(
    {
        "all_reduce",
        "all_gather",
        "all_to_all",
        "reduce_scatter",
        "collective_permute",
        "collective_broadcast",
        "ragged_all_to_all",
    }
)
#: Ops that make one number of many, or of one device's piece a whole.
_SUMMING: Final = frozenset(
    {"dot_general", "dot", "convolution", "reduce", "scatter", "reduce_window", "custom_call"}
)
#: Ops that look up a place in a dimension: each device what it has, and what they have is summed.
_LOOKING_UP: Final = frozenset({"gather", "dynamic_slice", "dynamic_update_slice"})
#: Ops that take elements from neighbouring blocks.
_REACHING: Final = frozenset(
    {"slice", "pad", "concatenate", "convolution", "reduce_window", "reverse", "sort", "cumsum"}
)
#: Ops that take tensors of the same shape and need not keep the sharding of any.
_TOGETHER: Final = _SUMMING | _LOOKING_UP | _REACHING
_CONSTRAINTS: Final = frozenset({"sharding_constraint", "reshard"})
_REDUCTIONS: Final = ("all-reduce", "reduce-scatter")

#: How many ops around the one that is named are looked at.
_AROUND = 60
#: The misfit from which on a value's move is not that of the collective.
_NO_FIT = 4


def with_origins(
    found: Collectives,
    graph: OpGraph,
    propagated: Propagated,
    annotations: tuple[Annotation, ...],
) -> Collectives:
    """The same collectives, each of their tensors with its origin and with a source line.

    Args:
        found: those of a program that was compiled with tags.
        graph: op graph of the lowered module that was compiled.
        propagated: its propagation, under the partitioner that it was compiled with.
        annotations: what is written in it.
    """
    if found.mesh is None:
        return found
    decided = PropagatedAxes(graph, propagated, found.mesh)
    recorded = propagated.partitioner == "shardy" and propagated.steps
    chains = Chains(Flow(propagated, graph), annotations) if recorded else None
    search = _Search(decided, AnnotatedAxes(decided, annotations, chains))
    return replace(
        found,
        collectives=tuple(
            replace(one, parts=tuple(search.with_origin(one, part) for part in one.parts))
            for one in found.collectives
        ),
    )


@dataclass(frozen=True, slots=True)
class _Need:
    """A value, and what needs it otherwise.

    Attributes:
        value: which value.
        op: the op that needs it; None where the program returns it.
        result: as which result of the program it is needed.
    """

    value: ValueId
    op: Op | None
    result: int | None = None


class _Search:
    """Finds the origins of one program."""

    def __init__(self, decided: PropagatedAxes, annotated: AnnotatedAxes) -> None:
        self.decided = decided
        self.annotated = annotated
        self.graph: OpGraph = decided.graph
        self.names = ValueNames(decided.graph)
        self.words = OriginWords(decided.mesh)

    def with_origin(self, collective: Collective, part: Part) -> Part:
        """A tensor with its origin; its line is the op's where the compiler kept none."""
        ops = [self.graph.ops[path[-1]] for path in part.tags if path[-1] < len(self.graph.ops)]
        source = part.source
        if source is None:
            source = next((op.source for op in ops if op.source is not None), None)
        origin = self.origin(collective, part, ops)
        return replace(part, source=source or origin.source, origin=origin)

    def origin(self, collective: Collective, part: Part, ops: list[Op]) -> CollectiveOrigin:
        for op in ops:
            if _kind(op) in _PROGRAM:
                return self.words.program(part, op)
        axes = self.parts_of(collective)
        if axes:
            if part.result is not None and (made := self.returned(part, axes)) is not None:
                return made
            if collective.kind in _REDUCTIONS:
                made = self.reduction(ops, axes, part) or self.resharding(collective, part, ops)
            else:
                made = self.resharding(collective, part, ops) or self.reduction(ops, axes, part)
            if made is not None:
                return made
        return self.words.unknown(part, ops, axes)

    def parts_of(self, collective: Collective) -> tuple[AxisPart, ...]:
        return tuple(part_of(axis, self.decided.mesh) for axis in collective.axes or ())

    # Reductions.

    def reduction(
        self, ops: list[Op], axes: tuple[AxisPart, ...], part: Part
    ) -> CollectiveOrigin | None:
        for op in self.around(ops):
            kind = _kind(op)
            if kind not in _SUMMING and kind not in _LOOKING_UP:
                continue
            sharded = [value for value in self.operands(op) if self.carried(value, axes)]
            if not sharded or (kind == "custom_call" and self.is_constraint(op)):
                continue
            if kind in _LOOKING_UP:
                sharded = sharded[:1]
            largest = max(sharded, key=lambda value: math.prod(self.decided.shape(value) or ()))
            annotations = self.annotations(sharded, axes, "has")
            return self.words.reduction(
                op,
                [self.names.name(value) for value in sharded],
                self.names.name(largest),
                self.decided.spec(largest),
                annotations,
                looks_up=kind in _LOOKING_UP,
            )
        return None

    # Reshardings.

    def returned(self, part: Part, axes: tuple[AxisPart, ...]) -> CollectiveOrigin | None:
        """A value that the program returns with another sharding than it has."""
        assert part.result is not None
        value = self.returned_value(part.result)
        if value is None:
            return None
        return self.made(_Need(value, None, part.result), axes, part, "")

    def returned_value(self, index: int) -> ValueId | None:
        main = self.graph.main
        inside = self.graph.children(main.op) if main is not None else []
        if not inside or inside[-1].is_argument:
            return None
        for producer, edge in self.graph.operands(inside[-1]):
            if edge.operand == index:
                return producer.id, edge.result
        return None

    def resharding(
        self, collective: Collective, part: Part, ops: list[Op]
    ) -> CollectiveOrigin | None:
        axes = self.parts_of(collective)
        for ring in self.rings(ops):
            needs = [need for op in ring for need in self.needs(op, axes)]
            if needs:
                scores = [self.misfit(need, collective, part, axes) for need in needs]
                best = min(range(len(needs)), key=scores.__getitem__)
                kind = collective.kind if scores[best] < _NO_FIT else ""
                return self.made(needs[best], axes, part, kind)
        return None

    def needs(self, op: Op, axes: tuple[AxisPart, ...]) -> Iterator[_Need]:
        """The values around an op that are sharded on the axes, and what needs them otherwise."""
        if self.is_constraint(op):
            # The value that it is on stands for the one that it was before.
            given = self.operands(op)[:1]
            users = [_Need(value, op) for value in given]
        else:
            users = [_Need(value, op) for value in self.operands(op)]
        for result in range(len(op.types)):
            for user, edge in self.graph.uses(op.id, result):
                if _kind(user) == "return" and self.is_end(user):
                    users.append(_Need((op.id, result), None, edge.operand))
                elif user.types:
                    users.append(_Need((op.id, result), user))
        for need in users:
            if self.is_need(need, axes):
                yield need

    def is_need(self, need: _Need, axes: tuple[AxisPart, ...]) -> bool:
        """Whether the value, or what is wanted, is sharded on the axes, and not both alike."""
        before = self.on(self.decided.axes(need.value), axes)
        if need.op is None:
            wanted = self.wanted(need.result or 0)
            return wanted is not None and self.on(wanted[0], axes) != before
        if self.is_constraint(need.op):
            after = self.on(self.decided.axes((need.op.id, 0)), axes)
            return after != before
        if not any(before):
            return False
        shape = self.decided.shape(need.value)
        results = [(need.op.id, result) for result in range(len(need.op.types))]
        if _kind(need.op) in _TOGETHER or any(self.decided.shape(one) != shape for one in results):
            return True
        return any(self.on(self.decided.axes(one), axes) != before for one in results)

    def wanted(self, index: int) -> tuple[AxesByDim, str] | None:
        """Axes and spec of a result: as it is annotated, or as it is in the end."""
        written = self.annotated.of_result(index)
        if written is not None:
            return written.axes, written.spec
        sharding = self.decided.result(index)
        if sharding is None:
            return None
        mesh = self.decided.mesh
        return axes_in(sharding, mesh), spec_text(sharding, len(sharding.dim_shardings), mesh)

    def on(self, by_dim: AxesByDim, axes: tuple[AxisPart, ...]) -> tuple[tuple[AxisPart, ...], ...]:
        """As much of each dimension's axes as is among these; none where that is none."""
        found = tuple(
            tuple(shared for own in dim for axis in axes if (shared := own.shared(axis)))
            for dim in by_dim
        )
        return found if any(found) else ()

    def misfit(
        self, need: _Need, collective: Collective, part: Part, axes: tuple[AxisPart, ...]
    ) -> int:
        """How little a value's move is like the collective; 0 where its blocks are the same."""
        shape = self.decided.shape(need.value)
        if shape is None:
            return 2 * _NO_FIT
        before = self.decided.axes(need.value)
        block = _local(shape, _without(before, axes) if collective.kind == "all-gather" else before)
        got = [size for leaf in part.shape.leaves for size in leaf.dimensions]
        pieces = len(part.shape.leaves)
        elements = sum(math.prod(leaf.dimensions) for leaf in part.shape.leaves)
        if pieces == 1 and _sizes(got) == _sizes(block):
            score = 0
        else:
            score = 2 if elements == math.prod(block) else _NO_FIT
        others = need.op is None or self.is_constraint(need.op) or self.conflicting(need, axes)
        return score + (0 if others else 1)

    def made(
        self, need: _Need, axes: tuple[AxisPart, ...], part: Part, kind: str
    ) -> CollectiveOrigin | None:
        value, op = need.value, need.op
        has = self.annotations([value], axes, "has")
        needed: list[OriginAnnotation] = []
        after = ""
        if op is None:
            written = self.annotated.of_result(need.result or 0)
            if written is not None:
                needed.append(self.needed(written, axes))
            wanted = self.wanted(need.result or 0)
            after = wanted[1] if wanted is not None else ""
        elif self.is_constraint(op):
            written = self.annotated.of_op(op.id)
            if written is not None:
                needed.append(self.needed(written, axes))
            after = self.decided.spec((op.id, 0))
        else:
            conflicts = self.conflicting(need, axes)
            needed = self.annotations(conflicts, axes, "needed")
            if kind == "all-gather":
                after = self.decided.spec_without(value, axes)
        reaches = op is not None and kind == "collective-permute" and _kind(op) in _REACHING
        if not has and not needed:
            return None
        return self.words.resharding(
            op=op,
            value=self.names.name(value),
            before=self.decided.spec(value),
            after=after,
            annotations=(*has, *needed),
            result=self.result_name(need.result) if op is None else "",
            reaches=reaches,
            against=[self.names.name(one) for one in self.conflicting(need, axes)],
        )

    def result_name(self, index: int | None) -> str:
        main = self.graph.main
        if main is None or index is None or index >= len(main.results):
            return ""
        return main.results[index].name or f"result {index}"

    def conflicting(self, need: _Need, axes: tuple[AxisPart, ...]) -> list[ValueId]:
        """The other tensors of the op that are sharded on the axes."""
        if need.op is None:
            return []
        results = [(need.op.id, result) for result in range(len(need.op.types))]
        others = [*results, *self.operands(need.op)]
        return [one for one in others if one != need.value and self.carried(one, axes)]

    # The graph.

    def around(self, ops: Sequence[Op]) -> Iterator[Op]:
        """The ops themselves, then those nearby."""
        return (op for ring in self.rings(ops) for op in ring)

    def rings(self, ops: Sequence[Op]) -> Iterator[list[Op]]:
        """The ops themselves, then those next to them, and so on."""
        seen = {op.id for op in ops}
        ring = list(ops)
        while ring and len(seen) < _AROUND:
            yield ring
            near = [
                other
                for op in ring
                for other, _ in (*self.graph.operands(op), *self.graph.uses(op))
            ]
            ring = []
            for other in near:
                if other.id not in seen and not other.is_argument:
                    seen.add(other.id)
                    ring.append(other)

    def operands(self, op: Op) -> list[ValueId]:
        return [(producer.id, edge.result) for producer, edge in self.graph.operands(op)]

    def is_constraint(self, op: Op) -> bool:
        return _kind(op) in _CONSTRAINTS or op.call_target == "Sharding"

    def is_end(self, op: Op) -> bool:
        main = self.graph.main
        return main is not None and op.parent == main.op

    def carried(self, value: ValueId, axes: tuple[AxisPart, ...]) -> list[AxisPart]:
        """As much of the axes as a value is sharded on."""
        return [
            shared
            for dim in self.decided.axes(value)
            for own in dim
            for axis in axes
            if (shared := own.shared(axis)) is not None
        ]

    def annotations(
        self, values: Sequence[ValueId], axes: tuple[AxisPart, ...], role: OriginRole
    ) -> list[OriginAnnotation]:
        """The annotations that the axes of values come from, each once."""
        found: dict[tuple[str, str, str, SourceLocation | None], list[AnnotatedAxis]] = {}
        for value in values:
            for part in self.carried(value, axes):
                for one in self.annotated.of_value(value, part):
                    key = (one.kind, one.name, one.spec, one.source)
                    found.setdefault(key, []).append(one)
        return [self.joined(each, role) for each in found.values()]

    def joined(self, found: Sequence[AnnotatedAxis], role: OriginRole) -> OriginAnnotation:
        first = found[0]
        axes = dict.fromkeys(one.part.axis(self.decided.mesh) for one in found)
        return OriginAnnotation(
            first.kind,
            first.name,
            first.spec,
            tuple(axes),
            role,
            first.source,
            all(one.recorded for one in found),
        )

    def needed(self, wanted: Written, axes: tuple[AxisPart, ...]) -> OriginAnnotation:
        """The annotation of a constraint or result that a value is needed for."""
        one, mesh = wanted.annotation, self.decided.mesh
        named = tuple(axis.axis(mesh) for axis in axes)
        return OriginAnnotation(
            one.kind, one.path, wanted.spec, named, "needed", one.source, recorded=True
        )


def _kind(op: Op) -> str:
    """An op's name without its dialect; of a custom call, of what it calls where that is known."""
    name = op.kind.rpartition(".")[2]
    if name == "custom_call" and op.call_target in _PROGRAM:
        return op.call_target or name
    return name


def _sizes(dimensions: Sequence[int]) -> list[int]:
    return sorted(size for size in dimensions if size != 1)


def _without(axes: AxesByDim, others: Sequence[AxisPart]) -> AxesByDim:
    return tuple(tuple(left for own in dim for left in own.without(others)) for dim in axes)


def _local(shape: Sequence[int], axes: AxesByDim) -> tuple[int, ...]:
    """Shape of the block that a device has, padding included."""
    cut = [part_size(dim) for dim in axes] or [1] * len(shape)
    return tuple(-(-size // blocks) for size, blocks in zip(shape, cut, strict=True))
