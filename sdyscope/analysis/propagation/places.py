"""Which annotations of the lowered module the origins are that Shardy records."""

from __future__ import annotations

from sdyscope.analysis.propagation.flow import Flow
from sdyscope.annotations import Annotation
from sdyscope.facts.propagated import ValueId
from sdyscope.values.mesh import AxisRef
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.sharding import TensorSharding


class Places:
    """Finds the annotations that axes come from, by what Shardy calls them.

    Args:
        flow: the index of a propagation.
        annotations: what is written in the lowered module.
    """

    def __init__(self, flow: Flow, annotations: tuple[Annotation, ...] = ()) -> None:
        self.flow = flow
        self.propagated = flow.propagated
        self._written: dict[tuple[str, int | None], Annotation] = {}
        self._at: dict[tuple[int, str, int | None], Annotation] = {}
        for annotation in annotations:
            if annotation.kind in ("argument", "result"):
                self._written[annotation.kind, annotation.index] = annotation
            index = None if annotation.kind == "constraint" else annotation.index
            self._at[annotation.op, annotation.kind, index] = annotation

    def annotation(self, origin: OriginSharding, value: ValueId) -> Annotation | None:
        """What is written in the lowered module where an origin says that an axis comes from.

        Args:
            origin: the origin.
            value: the value that has the axis, which is meant by ``self``.
        """
        match origin.type:
            case "input":
                return self._written.get(("argument", origin.index))
            case "output":
                return self._written.get(("result", origin.index))
            case "constraint":
                return self._of_op(f"constraint_{origin.source_id}", "constraint", None)
            case "mc_input" | "mc_output":
                kind = "shard_map input" if origin.type == "mc_input" else "shard_map output"
                return self._of_op(f"mc_{origin.source_id}", kind, origin.index)
            case "self":
                # The annotation may be on what the value became one with: what a call passes on.
                node = self.propagated.values[value].node
                return self.on(value) or (
                    None if node is None else self.on((self._lowered(node), 0))
                )
        return None

    def _of_op(self, name: str, kind: str, index: int | None) -> Annotation | None:
        node = self.propagated.debug_info.names.get(name)
        if node is None:
            return None
        op = self.flow.graph.ops[node]
        # What a function returns is one value with its call, which has no annotation.
        ops = self.flow.lowered_ops(op) or (op,)
        return next(
            (self._at[key] for each in ops if (key := (each.id, kind, index)) in self._at), None
        )

    def _lowered(self, node: int) -> int:
        return self.flow.written(self.flow.graph.ops[node]).id

    def on(self, value: ValueId) -> Annotation | None:
        """What is written on a value of the lowered module itself."""
        op, result = value
        graph = self.flow.lowered
        if graph is not None and graph.ops[op].is_result:
            return self._written.get(("result", graph.ops[op].result))
        argument = -1 if graph is None else graph.ops[op].argument
        for key in (
            (op, "constraint", None),
            (op, "argument", argument),
            (op, "op", result),
            (op, "shard_map output", result),
        ):
            if key in self._at:
                return self._at[key]
        return None

    def priority(self, axis: AxisRef, origin: OriginSharding, value: ValueId) -> int:
        """The user's priority of the dimension that an axis comes from; 0 where none is written."""
        annotation = self.annotation(origin, value)
        sharding = None if annotation is None else annotation.sharding
        if isinstance(sharding, TensorSharding):
            for dim in sharding.dim_shardings:
                if any(part.name == axis.name for part in dim.axes):
                    return dim.priority or 0
        return 0
