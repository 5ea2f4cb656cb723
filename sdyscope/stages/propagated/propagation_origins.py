"""The user's annotations that axes come from, of what Shardy wrote into a propagated module."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.facts.propagated import Origins, ValueId
from sdyscope.graph import NotUnderstood, OpGraph
from sdyscope.graph.tags import sids
from sdyscope.stages.propagated.debug_info_child import ORIGINS
from sdyscope.stages.propagated.marks import Marked
from sdyscope.stages.propagated.origin_texts import NOTHING, WrittenOrigins
from sdyscope.values.mesh import AxisRef
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.sharding import TensorSharding

#: What is a constraint in a lowered module, or becomes one.
_CONSTRAINTS = frozenset(
    {"sdy.sharding_constraint", "sdy.named_computation", "stablehlo.custom_call", "sdy.reshard"}
)


class OriginReader:
    """The user's annotations that the axes on values of a propagated module come from.

    Args:
        graph: op graph of that module.
        marked: what Shardy wrote down of it.
        lowered: that of the module that it was made of, whose ops its tags name.
    """

    def __init__(self, graph: OpGraph, marked: Marked, lowered: OpGraph) -> None:
        self.graph = graph
        self.marked = marked
        self.numbers = {node: _constraint_number(name) for name, node in marked.names.items()}
        self.opened = dict(self._opened(lowered))
        self.mains = {graph.main.op} if graph.main is not None else set()
        # Equal shardings and equal origins are mostly one object; both are kept alive here.
        self.left: dict[tuple[int, int], tuple[Origins, object, Origins]] = {}
        self.read: dict[ValueId, Origins] = {}

    def __call__(self, place: ValueId, sharding: object) -> Origins:
        """For each axis that a value is sharded on in the end, where it comes from."""
        origins = self.read.get(place)
        if origins is None:
            origins = self.read[place] = self._origins(place, sharding)
        return origins

    def _origins(self, place: ValueId, sharding: object) -> Origins:
        if not isinstance(sharding, TensorSharding):
            return ()
        written = self.written(place)
        if not written:
            return ()
        key = (id(sharding), id(written))
        known = self.left.get(key)
        if known is None:
            known = self.left[key] = (written, sharding, _left(written, sharding))
        origins = known[2]
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
            whole = {name.name: behind for name, behind in further.items()}
            origin = further.get(axis) or whole.get(axis.name) or origin
            name = self.numbers.get(source.id)
            if origin.type == "self" and name is not None:
                return OriginSharding("constraint", source_id=name)
        return origin

    def written(self, place: ValueId) -> Origins:
        """The origins that Shardy wrote for a value."""
        return self._written(place).origins

    def unread(self) -> list[NotUnderstood]:
        """The origins of a kind that is not known, value by value: their axes have none."""
        if not self.marked.has_unread:
            return []
        return [
            NotUnderstood(op.id, ORIGINS, text, error)
            for op in self.graph.without_results()
            for result in range(len(op.types))
            for text, error in self._written((op.id, result)).unread
        ]

    def _written(self, place: ValueId) -> WrittenOrigins:
        graph, marked = self.graph, self.marked
        op = graph.ops[place[0]]
        if op.is_result:
            at = (graph.main.op, op.result) if graph.main is not None else None
            returned = None if at is None else marked.results.get(at)
            return NOTHING if returned is None else returned.written
        if op.is_argument and op.parent in marked.owners:
            inside = marked.flow_arguments.get((op.parent, op.argument))
            if inside is None and graph.ops[op.parent].kind == "stablehlo.while":
                # A loop's argument is sharded as its result is: they are one edge.
                inside = marked.flow_results.get((op.parent, op.argument))
            return NOTHING if inside is None else inside.written
        if op.id in marked.owners:
            outside = marked.flow_results.get((op.id, place[1]))
            return NOTHING if outside is None else outside.written
        each = marked.origins.get(op.id, ())
        if len(each) == 1 and len(op.types) == 1:
            return each[0]
        return each[place[1]] if place[1] < len(each) else NOTHING

    def _opened(self, lowered: OpGraph) -> Iterator[tuple[int, int]]:
        """The constraints that stand for none in the lowered module, by Shardy's numbers of them.

        With these XLA lets be sharded further what a loop captures. Shardy takes them for where
        the axes on such a value come from, although they name no axis.
        """
        for node, number in self.numbers.items():
            if number is not None:
                tags = sids(self.graph.ops[node].location.names)
                kinds = {lowered.ops[tag].kind for tag in tags if tag < len(lowered.ops)}
                if kinds and kinds.isdisjoint(_CONSTRAINTS):
                    yield number, node


def _constraint_number(name: str) -> int | None:
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
