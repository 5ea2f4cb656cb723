"""The user's annotations that axes come from, of what Shardy wrote into a propagated module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sdyscope.facts.propagated import Origins, ValueId
from sdyscope.graph import NotUnderstood, Op, OpGraph
from sdyscope.stages.align.tags import sids
from sdyscope.stages.propagated.origin_texts import NOTHING, Written, parse_origins
from sdyscope.stages.propagated.propagation_steps import ORIGINS, DataFlow, edge_owners
from sdyscope.values.mesh import AxisRef
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.sharding import TensorSharding

__all__ = ["OriginReader"]

#: What Shardy calls a constraint, or a manual computation, where an axis comes from.
_NAME = "sdy.sharding_origin_name"
#: What is a constraint in a lowered module, or becomes one.
_CONSTRAINTS = frozenset(
    {"sdy.sharding_constraint", "sdy.named_computation", "stablehlo.custom_call", "sdy.reshard"}
)


class OriginReader:
    """The user's annotations that the axes on values of a propagated module come from.

    Args:
      graph: op graph of that module, with ``UNREAD`` left unread.
      flow: what is written on its edges.
      lowered: that of the module that it was made of, whose ops its tags name.
    """

    def __init__(self, graph: OpGraph, flow: DataFlow, lowered: OpGraph) -> None:
        self.graph = graph
        self.flow = flow
        self.opened = dict(_opened(graph, lowered))
        self.mains = {graph.main.op} if graph.main is not None else set()
        self.owners = edge_owners(graph)
        self.parsed: dict[Any, list[Written]] = {}
        # Equal shardings and equal origins are mostly one object; both are kept alive here.
        self.left: dict[tuple[int, int], tuple[Origins, object, Origins]] = {}
        self.read: dict[ValueId, Origins] = {}

    def __call__(self, place: ValueId, sharding: object) -> Origins:
        """For each axis that a value is sharded on in the end, where it comes from."""
        found = self.read.get(place)
        if found is None:
            found = self.read[place] = self._origins(place, sharding)
        return found

    def _origins(self, place: ValueId, sharding: object) -> Origins:
        if not isinstance(sharding, TensorSharding):
            return ()
        written = self.written(place)
        if not written:
            return ()
        key = (id(sharding), id(written))
        found = self.left.get(key)
        if found is None:
            found = self.left[key] = (written, sharding, _left(written, sharding))
        origins = found[2]
        if self.opened and any(origin.source_id in self.opened for _, origin in origins):
            return tuple((axis, self._annotated(place, axis, origin)) for axis, origin in origins)
        return origins

    def _annotated(self, place: ValueId, axis: AxisRef, origin: OriginSharding) -> OriginSharding:
        """The annotation behind a constraint that nobody wrote: that of the value it opens."""
        asked, seen = place, set()
        while origin.type == "constraint" and origin.source_id in self.opened:
            node = self.opened[origin.source_id]
            if node in seen:
                break
            seen.add(node)
            place = self.graph.operand_values[node][0]
            source = self.graph.ops[place[0]]
            if source.is_argument and source.parent in self.mains:
                if place == asked:
                    return OriginSharding("self")
                return OriginSharding("input", source.argument)
            further = dict(self.written(place))
            whole = {one.name: behind for one, behind in further.items()}
            origin = further.get(axis) or whole.get(axis.name) or origin
            name = _constraint_number(source)
            if origin.type == "self" and name is not None:
                return OriginSharding("constraint", source_id=name)
        return origin

    def written(self, place: ValueId) -> Origins:
        """The origins that Shardy wrote for a value."""
        return self._written(place).origins

    def unread(self) -> list[NotUnderstood]:
        """The origins of a kind that is not known, value by value: their axes have none."""
        return [
            NotUnderstood(op.id, ORIGINS, text, error)
            for op in self.graph.without_results()
            for result in range(len(op.types))
            for text, error in self._written((op.id, result)).unread
        ]

    def _written(self, place: ValueId) -> Written:
        graph, flow, owners = self.graph, self.flow, self.owners
        op = graph.ops[place[0]]
        if op.is_argument and op.parent is not None and op.parent in owners:
            number = owners[op.parent]
            inside = flow.arguments.get((number, op.argument))
            if inside is None and graph.ops[op.parent].kind == "stablehlo.while":
                # A loop's argument is sharded as its result is: they are one edge.
                inside = flow.results.get((number, op.argument))
            return inside.written if inside is not None else NOTHING
        if op.id in owners:
            outside = flow.results.get((owners[op.id], place[1]))
            return outside.written if outside is not None else NOTHING
        attribute = op.attributes.get(ORIGINS)
        if attribute is None:
            return NOTHING
        parsed = self.parsed.get(attribute)
        if parsed is None:
            parsed = self.parsed[attribute] = parse_origins(attribute)
        if len(parsed) == 1 and len(op.types) == 1:
            return parsed[0]
        return parsed[place[1]] if place[1] < len(parsed) else NOTHING


def _opened(graph: OpGraph, lowered: OpGraph) -> Iterator[tuple[int, int]]:
    """The constraints that stand for none in the lowered module, by Shardy's numbers of them.

    With these XLA lets be sharded further what a loop captures. Shardy takes them for where the
    axes on such a value come from, although they name no axis.
    """
    for op in graph.ops:
        number = _constraint_number(op)
        if number is not None:
            tags = sids(op.location.names)
            kinds = {lowered.ops[tag].kind for tag in tags if tag < len(lowered.ops)}
            if kinds and kinds.isdisjoint(_CONSTRAINTS):
                yield number, op.id


def _constraint_number(op: Op) -> int | None:
    name = str(op.attributes.get(_NAME, "")) if op.attributes else ""
    prefix, _, number = name.rpartition("_")
    return int(number) if prefix == "constraint" and number.isdecimal() else None


def _left(origins: Origins, sharding: TensorSharding) -> Origins:
    """The origins of what a value is sharded on in the end.

    At boundaries Shardy at last takes axes away again, or parts of them, that do not divide.
    """
    written = dict(origins)
    whole = {axis.name: origin for axis, origin in origins}
    axes = [axis for dim in sharding.dim_shardings for axis in dim.axes]
    axes += sharding.unreduced_axes
    return tuple(
        (axis, written.get(axis) or whole[axis.name]) for axis in axes if axis.name in whole
    )
