"""Which annotation keeps axes from a value: it closes a dimension, or sets an axis aside.

After propagation Shardy closes every dimension and forgets what is explicitly replicated, so this
is read from what the user wrote: an argument's annotation, a constraint's (which also binds the
value that it constrains), a result's, a ``shard_map``'s boundary, or the sharding of any other op.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.analysis.propagation.flow import CONSTRAINTS, REGIONS, Flow, Ref
from sdyscope.annotations import Annotation
from sdyscope.facts.moves import AnnotatedDim, BeginningKind, Closed, SetAside
from sdyscope.graph import Op, Sharding
from sdyscope.values.sharding import TensorSharding, TensorShardingPerValue

__all__ = ["Openness"]


#: An annotation that binds a value: its kind, the name of what it is on, itself.
_Binding: TypeAlias = tuple[BeginningKind, str, Sharding | None]


class Openness:
    """Knows what the user closed.

    Args:
        flow: the index of the propagation.
        annotations: what is written in the lowered module.
    """

    def __init__(self, flow: Flow, annotations: tuple[Annotation, ...]) -> None:
        self.flow = flow
        self._arguments = {a.index: a for a in annotations if a.kind == "argument"}
        self._results = {a.index: a for a in annotations if a.kind == "result"}
        self._constraints = {a.op: a for a in annotations if a.kind == "constraint"}
        self._ops = {(a.op, a.index): a for a in annotations if a.kind == "op"}

    def closed_by(self, ref: Ref, dimension: int) -> Closed | None:
        """What closes a dimension of a value; None when nothing does."""
        for kind, name, sharding in self._written(self.flow.root(ref)):
            if not isinstance(sharding, TensorSharding) or dimension >= sharding.rank:
                continue
            if sharding.dim_shardings[dimension].is_closed:
                return Closed(dimension, AnnotatedDim(kind, name, sharding, dimension))
        return None

    def set_aside_by(self, ref: Ref, part: AxisPart) -> SetAside | None:
        """What keeps a value from being sharded on an axis; None when nothing does."""
        for kind, name, sharding in self._written(self.flow.root(ref)):
            if not isinstance(sharding, TensorSharding):
                continue
            mesh = self.flow.mesh_of(sharding)
            by = AnnotatedDim(kind, name, sharding, None)
            if any(part_of(axis, mesh).shared(part) for axis in sharding.replicated_axes):
                return SetAside("replicated", part.axis(mesh), by)
            if any(part_of(axis, mesh).shared(part) for axis in sharding.unreduced_axes):
                return SetAside("unreduced", part.axis(mesh), by)
        return None

    def _written(self, ref: Ref) -> Iterator[_Binding]:
        """Every annotation that binds a value: its kind, the name of what it is on, itself."""
        flow = self.flow
        main = flow.graph.main
        for node, result in flow.same(ref):
            op = flow.graph.ops[node]
            if op.is_argument and main is not None and op.parent == main.op:
                annotation = self._arguments.get(op.argument)
                if annotation is not None:
                    yield "argument", annotation.path, annotation.sharding
            elif op.kind in CONSTRAINTS:
                yield from self._constraint(op)
            elif op.kind in REGIONS:
                yield from self._boundary(op, "out_shardings", "shard_map output", result)
            elif op.is_argument and op.parent is not None:
                around = flow.graph.ops[op.parent]
                if around.kind in REGIONS:
                    index = op.argument
                    yield from self._boundary(around, "in_shardings", "shard_map input", index)
            for lowered, index in flow.lowered_ids.get((node, result), ()):
                annotation = self._ops.get((lowered, index))
                if annotation is not None:
                    yield "op", annotation.path, annotation.sharding
        for op, _ in flow.uses(ref):
            if op.kind in CONSTRAINTS:
                yield from self._constraint(op)
        for index in flow.returned.get(ref, []):
            annotation = self._results.get(index)
            if annotation is not None:
                yield "result", annotation.path, annotation.sharding

    def _constraint(self, op: Op) -> Iterator[_Binding]:
        for lowered in self.flow.lowered_ops(op):
            if lowered.id in self._constraints:
                annotation = self._constraints[lowered.id]
                yield "constraint", annotation.path, annotation.sharding
                return

    def _boundary(self, op: Op, name: str, kind: BeginningKind, index: int) -> Iterator[_Binding]:
        written = op.attributes.get(name)
        if isinstance(written, TensorShardingPerValue) and index < len(written.shardings):
            yield kind, self.flow.scope(op), written.shardings[index]
