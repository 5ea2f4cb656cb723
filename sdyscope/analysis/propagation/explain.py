"""explain: why a value is sharded as it is, axis by axis, and why it is not sharded otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.analysis.naming.resolve import NamedValue, named_value
from sdyscope.analysis.propagation.axis_parts import AxisPart
from sdyscope.analysis.propagation.chain import Chain
from sdyscope.analysis.propagation.flow import Flow, Ref
from sdyscope.analysis.propagation.obstacles import Absence, Obstacles
from sdyscope.analysis.propagation.pointers import Pointers
from sdyscope.annotations import Annotation
from sdyscope.facts.propagated import Propagated, PropagatedValue, ValueId
from sdyscope.graph import OpGraph, Sharding
from sdyscope.values.mesh import AxisRef

__all__ = ["Completeness", "Explainer", "Explanation", "Missing", "completeness", "explain"]


@dataclass(frozen=True)
class Explanation:
    """Why one value is sharded as it is.

    Attributes:
        value: which value, and its names.
        propagated: what the partitioner decided for it.
        sharding: the sharding explained.
        chains: for each axis on each dimension, how it came there.
        absences: for each axis that a neighbouring tensor has and this value could have had, what
            stopped it.
        notes: what else there is to say, one sentence each.
    """

    value: NamedValue
    propagated: PropagatedValue
    sharding: Sharding | None
    chains: tuple[Chain, ...]
    absences: tuple[Absence, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """An axis on a value that no chain was found for."""

    value: ValueId
    dimension: int
    axis: AxisRef
    reached: str


@dataclass(frozen=True)
class Completeness:
    """How many (value, dimension, axis) triples have a chain that ends at an annotation.

    Attributes:
        explained: how many do.
        total: how many there are.
        missing: those that do not.
    """

    explained: int
    total: int
    missing: tuple[Missing, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every one does."""
        return not self.missing


class Explainer:
    """Explains values of one propagation; build it once and ask for many.

    Args:
        propagated: the propagation.
        graph: op graph of the lowered module.
        annotations: what is written in the lowered module.
    """

    def __init__(
        self, propagated: Propagated, graph: OpGraph, annotations: tuple[Annotation, ...] = ()
    ) -> None:
        self.propagated = propagated
        self.graph = graph
        self.flow = Flow(propagated, graph)
        self.pointers = Pointers(self.flow, annotations)
        self.obstacles = Obstacles(self.flow, self.pointers, annotations)

    def explain(self, value: NamedValue | ValueId) -> Explanation:
        """Why a value of the lowered module is sharded as it is."""
        named = value if isinstance(value, NamedValue) else named_value(self.graph, value)
        found = self.propagated.values[named.id]
        notes = tuple(self._notes(found))
        if found.node is None or self.propagated.partitioner != "shardy":
            return Explanation(named, found, found.sharding, (), (), notes)
        op = self.graph.ops[named.id[0]]
        ref: Ref | None = (found.node, found.result)
        if op.is_result:
            ref = self.propagated.graph.returned.get(op.result)
        if ref is None:
            return Explanation(named, found, found.sharding, (), (), notes)
        chains = tuple(map(self.pointers.chain, self.pointers.held(found)))
        return Explanation(
            named, found, found.sharding, chains, self.obstacles.absences(ref), notes
        )

    def _notes(self, found: PropagatedValue) -> list[str]:
        notes = []
        if found.fate == "merged":
            names = [named_value(self.graph, other).ssa for other in found.merged_with[:5]]
            more = len(found.merged_with) - len(names)
            notes.append(
                f"The compiler made one value of this and {', '.join(names)}"
                + (f" and {more} more." if more else ".")
            )
        elif found.fate == "folded":
            notes.append("The compiler folded this value away before it propagated shardings.")
        elif found.fate == "not partitioned":
            notes.append("A value of this kind has no sharding.")
        if found.node is None:
            return notes
        if self.propagated.partitioner != "shardy":
            notes.append("GSPMD does not say where the shardings that it propagates come from.")
        elif not self.propagated.steps:
            notes.append(
                "This propagation has no steps: only what is annotated on the value itself and "
                "what Shardy moves without steps can be explained."
            )
        return notes


def explain(
    propagated: Propagated,
    graph: OpGraph,
    annotations: tuple[Annotation, ...],
    value: NamedValue | ValueId,
) -> Explanation:
    """Why a value is sharded as it is.

    Args:
        propagated: the propagation.
        graph: op graph of the lowered module.
        annotations: what is written in it.
        value: which value, as from ``resolve_value``.
    """
    return Explainer(propagated, graph, annotations).explain(value)


def completeness(
    propagated: Propagated, graph: OpGraph | None = None, annotations: tuple[Annotation, ...] = ()
) -> Completeness:
    """How much of a propagation can be explained.

    A triple (value, dimension, axis) counts for each value of the lowered module that is still
    there. It is explained when every part of the axis has a chain that ends at an annotation.

    Args:
        propagated: the propagation.
        graph: op graph of the lowered module, for sharding groups that are gone after it.
        annotations: what is written in the lowered module.
    """
    flow = Flow(propagated, graph)
    pointers = Pointers(flow, annotations)
    known: dict[tuple[Ref, AxisPart], bool] = {}
    total = 0
    missing = []
    for value in propagated.values.values():
        if value.node is None or propagated.graph.ops[value.node].is_result:
            continue  # A result has the chains of what is returned, and of its own annotation.
        ref = flow.root((value.node, value.result))
        for dimension, part in flow.parts_in(value.sharding) or flow.parts(ref):
            total += 1
            key = (ref, part)
            if key not in known:
                known[key] = all(
                    pointers.table[pointers.pointer(ref, piece)].beginning is not None
                    for piece in pointers.pieces(ref, part)
                )
            if not known[key]:
                reached = pointers.farthest(ref, part)
                missing.append(Missing(value.id, dimension, part.axis(flow.mesh), reached))
    return Completeness(total - len(missing), total, tuple(missing))
