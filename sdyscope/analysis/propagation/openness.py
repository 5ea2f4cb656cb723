"""Which annotation keeps axes from a value: it closes a dimension, or sets an axis aside.

After propagation Shardy closes every dimension and forgets what is explicitly replicated, so this
is read from what the user wrote: an argument's annotation, a constraint's (which also binds the
value that it constrains), a result's, a ``shard_map``'s boundary, or the sharding of any other op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.analysis.propagation.flow import Flow, Ref
from sdyscope.annotations import Annotation
from sdyscope.facts.moves import AnnotatedDim, BeginningKind, Closed, SetAside
from sdyscope.graph import Op, Sharding
from sdyscope.graph.op_kinds import CONSTRAINTS, REGIONS
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import SourceLocation


class Binding(NamedTuple):
    """An annotation that binds a value.

    Attributes:
        kind: what is annotated.
        name: its pytree path or scope.
        sharding: what is written there.
        source: its line, where one is known.
        mapped: the function of the `shard_map` that it is on the boundary of, where that is known.
    """

    kind: BeginningKind
    name: str
    sharding: Sharding | None
    source: SourceLocation | None
    mapped: str = ""

    def on_dim(self, dimension: int | None) -> AnnotatedDim:
        """The annotation, as far as it is about one dimension, or as a whole."""
        return AnnotatedDim(self.kind, self.name, self.sharding, dimension, self.mapped)


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
        self._mapped = {a.op: a.mapped for a in annotations if a.mapped}
        self._by_value: dict[Ref, list[Binding]] = {}

    def closed_by(self, ref: Ref, dimension: int) -> Closed | None:
        """What closes a dimension of a value; None when nothing does."""
        by = next(self.closing(ref, dimension), None)
        if by is None:
            return None
        return Closed(dimension, by.on_dim(dimension))

    def closing(self, ref: Ref, dimension: int) -> Iterator[Binding]:
        """All that closes a dimension of a value."""
        for binding in self._written(self.flow.root(ref)):
            sharding = binding.sharding
            if not isinstance(sharding, TensorSharding) or dimension >= sharding.rank:
                continue
            if sharding.dim_shardings[dimension].is_closed:
                yield binding

    def keeping(self, ref: Ref, dimension: int, part: AxisPart) -> Iterator[Binding]:
        """All that keeps an axis from a dimension: it is closed, or the axis set aside."""
        yield from self.closing(ref, dimension)
        for binding in self._written(self.flow.root(ref)):
            if self._set_aside(binding, part) is not None:
                yield binding

    def set_aside_by(self, ref: Ref, part: AxisPart) -> SetAside | None:
        """What keeps a value from being sharded on an axis; None when nothing does."""
        aside = (self._set_aside(each, part) for each in self._written(self.flow.root(ref)))
        return next((each for each in aside if each is not None), None)

    def _set_aside(self, binding: Binding, part: AxisPart) -> SetAside | None:
        sharding = binding.sharding
        if not isinstance(sharding, TensorSharding):
            return None
        mesh = self.flow.mesh_of(sharding)
        by = binding.on_dim(None)
        if any(part_of(axis, mesh).shared(part) for axis in sharding.replicated_axes):
            return SetAside("replicated", part.axis(mesh), by)
        if any(part_of(axis, mesh).shared(part) for axis in sharding.unreduced_axes):
            return SetAside("unreduced", part.axis(mesh), by)
        return None

    def _written(self, ref: Ref) -> list[Binding]:
        """Every annotation that binds a value."""
        bindings = self._by_value.get(ref)
        if bindings is None:
            bindings = self._by_value[ref] = list(self._binding(ref))
        return bindings

    def _binding(self, ref: Ref) -> Iterator[Binding]:
        flow = self.flow
        for node, result in flow.same(ref):
            op = flow.graph.ops[node]
            if flow.graph.is_main_argument(op):
                annotation = self._arguments.get(op.argument)
                if annotation is not None:
                    yield _binding("argument", annotation)
            elif op.kind in CONSTRAINTS:
                yield from self._constraint(op)
            elif op.kind in REGIONS:
                yield from self._boundary(op, "shard_map output", op.out_shardings, result)
            elif op.is_argument and op.parent is not None:
                around = flow.graph.ops[op.parent]
                given = around.in_shardings
                yield from self._boundary(around, "shard_map input", given, op.argument)
            for lowered, index in flow.lowered_ids.get((node, result), ()):
                annotation = self._ops.get((lowered, index))
                if annotation is not None:
                    yield _binding("op", annotation)
        for op, _ in flow.uses(ref):
            if op.kind in CONSTRAINTS:
                yield from self._constraint(op)
        for index in flow.returned.get(ref, []):
            annotation = self._results.get(index)
            if annotation is not None:
                yield _binding("result", annotation)

    def _constraint(self, op: Op) -> Iterator[Binding]:
        for lowered in self.flow.lowered_ops(op):
            if lowered.id in self._constraints:
                annotation = self._constraints[lowered.id]
                yield _binding(
                    "type" if annotation.named_kind == "type" else "constraint", annotation
                )
                return

    def _boundary(
        self, op: Op, kind: BeginningKind, shardings: Sequence[TensorSharding], index: int
    ) -> Iterator[Binding]:
        lowered = (each.id for each in self.flow.lowered_ops(op))
        mapped = next((self._mapped[node] for node in lowered if node in self._mapped), "")
        for sharding in shardings[index : index + 1]:
            yield Binding(kind, self.flow.scope(op), sharding, self.flow.source(op), mapped)


def _binding(kind: BeginningKind, annotation: Annotation) -> Binding:
    return Binding(kind, annotation.path, annotation.sharding, annotation.source)
