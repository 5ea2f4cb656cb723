"""Where chains begin: the annotation that a value, or what it becomes, is sharded by."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sdyscope.analysis.propagation import rules
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.analysis.propagation.flow import Flow, Ref
from sdyscope.annotations import Annotation
from sdyscope.errors import ConversionError
from sdyscope.facts.moves import Beginning, BeginningKind
from sdyscope.graph import Op, Sharding
from sdyscope.graph.op_kinds import CONSTRAINTS, REGIONS
from sdyscope.values.convert import to_tensor_sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import SourceLocation

#: What of an op an annotation is on.
_OnOp: TypeAlias = Literal["constraint", "shard_map input", "shard_map output"]


def _on_mesh(annotation: Annotation, mesh: Mesh | None) -> Sharding | None:
    """What is written, by the axes of the mesh that XLA names for all of a program's.

    Only these are found in the propagated module.
    """
    written = annotation.sharding
    if mesh is None or annotation.placement is None or not isinstance(written, TensorSharding):
        return written
    if {axis.name for axis in written.axes()} <= set(mesh.shape):
        return written
    rank = len(annotation.placement.dims)
    try:
        return to_tensor_sharding(annotation.placement, rank, mesh, open_dims=annotation.open_dims)
    except ConversionError:
        return written


class Beginnings:
    """Finds annotations in one propagation.

    Args:
        flow: its index.
        annotations: what is written in the lowered module.
    """

    def __init__(self, flow: Flow, annotations: tuple[Annotation, ...] = ()) -> None:
        self.flow = flow
        self._by_argument = {a.index: a for a in annotations if a.kind == "argument"}
        self._by_result = {a.index: a for a in annotations if a.kind == "result"}
        self._by_op = {
            (a.op, a.kind, a.index if a.kind != "constraint" else 0): a for a in annotations
        }
        self._owned: dict[Ref, list[AxisPart]] = {}

    def own(self, ref: Ref) -> list[AxisPart]:
        """What the user's own annotation of a value shards it on."""
        if ref not in self._owned:
            axis_parts: list[AxisPart] = []
            for node, _ in self.flow.same(ref):
                op = self.flow.graph.ops[node]
                annotation = None
                if self.flow.graph.is_main_argument(op):
                    annotation = self._by_argument.get(op.argument)
                elif op.kind in CONSTRAINTS:
                    annotation = self._written_on("constraint", op, 0)
                if annotation is not None:
                    axis_parts += [
                        part for _, part in self.flow.parts_in(self._written(annotation))
                    ]
            self._owned[ref] = axis_parts
        return self._owned[ref]

    def _written(self, annotation: Annotation) -> Sharding | None:
        return _on_mesh(annotation, self.flow.mesh)

    def says(self, annotation: Annotation, part: AxisPart) -> bool:
        """Whether an annotation shards a dimension on ``part``."""
        return rules.dimension_in(self._written(annotation), part, self.flow.mesh) is not None

    def at(self, ref: Ref, part: AxisPart) -> Beginning | None:
        """The annotation that shards a value on ``part``; None where none does."""
        for node, result in self.flow.same(ref):
            op = self.flow.graph.ops[node]
            around = None if op.parent is None else self.flow.graph.ops[op.parent]
            beginning = None
            if self.flow.graph.is_main_argument(op):
                annotation = self._by_argument.get(op.argument)
                beginning = self._annotated("argument", ref, part, annotation, op.scope, op.source)
            elif op.kind in CONSTRAINTS:
                beginning = self._on_op("constraint", ref, part, node, 0)
                if beginning.annotation is None:
                    # XLA's import writes one on what a loop carries into a shard_map.
                    beginning = self._entering(ref, part) or beginning
            elif op.kind in REGIONS:
                beginning = self._on_op("shard_map output", ref, part, node, result)
            elif op.is_argument and around is not None and around.kind in REGIONS:
                beginning = self._on_op("shard_map input", ref, part, around.id, op.argument)
            if beginning is not None and beginning.dimension is not None:
                return beginning
        return self._as_result(ref, part) or self._entering(ref, part) or self._as_op(ref, part)

    def _as_result(self, ref: Ref, part: AxisPart) -> Beginning | None:
        """A value that is returned takes the sharding that its result is annotated with."""
        main = self.flow.graph.main
        for index in self.flow.returned.get(self.flow.root(ref), []) if main is not None else []:
            annotation = self._by_result.get(index)
            assert main is not None
            written = self._written(annotation) if annotation else main.results[index].sharding
            if rules.dimension_in(written, part, self.flow.mesh) is None:
                continue
            name = main.name_of(main.results[index])
            return self._annotated("result", ref, part, annotation, name, None)
        return None

    def _entering(self, ref: Ref, part: AxisPart) -> Beginning | None:
        """A value that enters a shard_map takes the sharding that is annotated there."""
        for op, operand in self.flow.uses(ref):
            if op.kind in REGIONS:
                beginning = self._on_op("shard_map input", ref, part, op.id, operand)
                if beginning.dimension is not None and beginning.annotation is not None:
                    return beginning
        return None

    def of_result(self, index: int, part: AxisPart) -> Beginning | None:
        """The annotation of a result of main, if that has ``part``."""
        annotation = self._by_result.get(index)
        main = self.flow.graph.main
        if annotation is None or main is None:
            return None
        if not self.says(annotation, part):
            return None
        return self._annotated("result", None, part, annotation, annotation.path, None)

    def _as_op(self, ref: Ref, part: AxisPart) -> Beginning | None:
        """Any other op that the lowered module has a sharding on."""
        for member in self.flow.same(ref):
            for node, result in self.flow.lowered_ids.get(member, ()):
                annotation = self._by_op.get((node, "op", result))
                if annotation is None:
                    continue
                if self.says(annotation, part):
                    op = self.flow.graph.ops[member[0]]
                    return self._annotated(
                        "op", ref, part, annotation, self.flow.scope(op), self.flow.source(op)
                    )
        return None

    def _on_op(self, kind: _OnOp, ref: Ref, part: AxisPart, node: int, index: int) -> Beginning:
        op = self.flow.graph.ops[node]
        annotation = self._written_on(kind, op, index)
        scope, source = self.flow.scope(op), self.flow.source(op)
        return self._annotated(kind, ref, part, annotation, scope, source)

    def _written_on(self, kind: _OnOp, op: Op, index: int) -> Annotation | None:
        """The annotation of an op of the lowered module that became ``op``."""
        for lowered in self.flow.lowered_ops(op):
            if (annotation := self._by_op.get((lowered.id, kind, index))) is not None:
                return annotation
        return None

    def _annotated(
        self,
        kind: BeginningKind,
        ref: Ref | None,
        part: AxisPart,
        annotation: Annotation | None,
        name: str,
        source: SourceLocation | None,
    ) -> Beginning:
        if annotation is not None:
            name, source = annotation.path, annotation.source or source
            kind = "type" if annotation.named_kind == "type" else kind
        sharding = self._written(annotation) if annotation else None
        if annotation is None and ref is not None:
            sharding = self.flow.sharding(ref)
        dimension = rules.dimension_in(sharding, part, self.flow.mesh)
        return Beginning(
            kind,
            name,
            sharding,
            dimension,
            rules.priority_in(sharding, dimension),
            source,
            annotation,
        )

    def origin(self, ref: Ref, part: AxisPart) -> OriginSharding | None:
        """What Shardy itself says where an axis of a value comes from."""
        op = self.flow.graph.ops[ref[0]]
        if op.is_result:
            ref = self.flow.graph.returned.get(op.result, ref)
        for member in self.flow.same(ref):
            for value in self.flow.lowered_ids.get(member, ()):
                for axis, origin in self.flow.propagated.values[value].origins:
                    if part_of(axis, self.flow.mesh).shared(part) is not None:
                        return origin
        return None
