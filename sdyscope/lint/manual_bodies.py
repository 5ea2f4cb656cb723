"""Which values in the body of a shard_map differ between devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.axes import axes_of_op
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.op_kinds import COLLECTIVES
from sdyscope.lint.subject import Subject
from sdyscope.values.mesh import Mesh

_Varies: TypeAlias = Literal["no", "yes", "unknown"]
"""Whether a value differs between the devices along an axis."""

#: What devices exchange, and what else may make them differ or not.
_EXCHANGING = COLLECTIVES | {
    *("custom_call", "infeed", "partition_id", "recv", "replica_id", "send"),
    "manual_computation",
}

#: Collectives whose results are the same on all devices of a group.
_JOINING = frozenset({"all_gather", "all_reduce"})

#: Those that say along which axes they run, and leave others as they are.
_ALONG_AXES = _JOINING | {"all_to_all", "collective_permute", "reduce_scatter"}


def manual_bodies(subject: Subject) -> Iterator[tuple[Op, str, ManualBody]]:
    """Each shard_map of a program under Shardy, with each of its axes of several devices."""
    for op in subject.graph.operations():
        for axis in op.manual_axes:
            if subject.mesh.shape.get(axis, 1) > 1:
                yield op, axis, ManualBody(subject.graph, subject.mesh, op, axis)


class ManualBody:
    """Which values of a ``shard_map``'s body differ along an axis."""

    def __init__(self, graph: OpGraph, mesh: Mesh, op: Op, axis: str) -> None:
        self.graph, self.mesh, self.op, self.axis = graph, mesh, op, axis
        self._known: dict[ValueId, _Varies] = {}
        self._given = op.in_shardings

    def varies(self, value: ValueId) -> _Varies:
        """Whether a value differs between the devices along the axis."""
        waiting = [value]
        while waiting:
            at = waiting[-1]
            if at in self._known:
                waiting.pop()
                continue
            before = self._before(at)
            missing = [operand for operand in before if operand not in self._known]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            self._known[at] = self._own(at) or _joined([self._known[operand] for operand in before])
        return self._known[value]

    def _own(self, value: ValueId) -> _Varies | None:
        """What is known of a value by itself."""
        op = self.graph.ops[value[0]]
        if op.is_argument and op.parent == self.op.id:
            sharding = self._given[op.argument] if op.argument < len(self._given) else None
            named = sharding is not None and any(
                axis.name == self.axis for dim in sharding.dim_shardings for axis in dim.axes
            )
            return "yes" if named else "no"
        if op.is_argument:
            return "unknown"  # of a loop: what its body makes of it is not followed
        if op.mnemonic in _JOINING and self._runs_over(op) == "all of it":
            return "no"
        inside = [op, *self.graph.inside([op])]
        if any(op.mnemonic in _EXCHANGING and self._runs_over(op) != "others" for op in inside):
            return "unknown"
        return None

    def _runs_over(self, op: Op) -> Literal["all of it", "others", "unknown"]:
        """What a collective runs over: all of the axis, or other axes alone."""
        axes = axes_of_op(op, self.mesh) if op.mnemonic in _ALONG_AXES else None
        own = [axis for axis in axes or () if axis.name == self.axis]
        if axes is None or any(axis.sub_axis_info is not None for axis in own):
            return "unknown"
        return "all of it" if own else "others"

    def _before(self, value: ValueId) -> list[ValueId]:
        """What a value is made from, inside the body."""
        op = self.graph.ops[value[0]]
        if self._own(value) is not None:
            return []
        producers = [(producer.id, edge.result) for producer, edge in self.graph.operands(op)]
        return [producer for producer in producers if self._is_inside(producer[0])]

    def _is_inside(self, node: int) -> bool:
        at: int | None = node
        while at is not None:
            at = self.graph.ops[at].parent
            if at == self.op.id:
                return True
        return False


def _joined(answers: list[_Varies]) -> _Varies:
    if "unknown" in answers:
        return "unknown"
    return "yes" if "yes" in answers else "no"
