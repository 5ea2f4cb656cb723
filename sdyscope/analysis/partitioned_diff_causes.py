"""Which difference of two propagations a difference of collectives follows from.

A collective is made for an op, because a tensor of it is not sharded as it is needed. Where tensors
of that op are sharded differently on both sides, the difference began where theirs did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sdyscope.analysis.collective_totals import Part
from sdyscope.analysis.partitioned_diff_collectives import Communicated
from sdyscope.analysis.propagated_diff import PropagatedDiff, PropagatedSide, inputs
from sdyscope.analysis.scopes import Phase, phase_of, scope_of
from sdyscope.graph import OpGraph

__all__ = ["Causes"]


class Causes:
    """Finds the beginning that differing collectives follow from.

    Args:
        found: the differences of two propagations.
        sides: these propagations.
        tagged: whether the tags of each side's collectives are of the module that was propagated.
    """

    def __init__(
        self,
        found: PropagatedDiff,
        sides: tuple[PropagatedSide, PropagatedSide],
        tagged: tuple[bool, bool] = (True, True),
    ) -> None:
        begun: tuple[dict[int, Counter[int]], dict[int, Counter[int]]] = ({}, {})
        for number, group in enumerate(found.groups):
            for value in (group.begins, *group.follows):
                for by_node, (node, _) in zip(begun, (value.a, value.b), strict=True):
                    by_node.setdefault(node, Counter())[number] += 1
        self.sides = tuple(
            _Side(side.graph, by_node, tags)
            for side, by_node, tags in zip(sides, begun, tagged, strict=True)
        )

    def __call__(self, a: Communicated, b: Communicated) -> int | None:
        """The number of the beginning; None where no tensor of the ops is sharded differently."""
        hits: Counter[int] = Counter()
        for side, communicated in zip(self.sides, (a, b), strict=True):
            for _, part in communicated.parts:
                hits.update(side.hits(part))
        # Where several are as near, the one that most follows from: it has the lowest number.
        return min(hits, key=lambda number: (-hits[number], number), default=None)


class _Side:
    def __init__(self, graph: OpGraph, begun: dict[int, Counter[int]], tagged: bool) -> None:
        self.graph = graph
        self.begun = begun
        self.tagged = tagged
        differentiated = any("transpose(" in op.scope for op in graph.operations())
        self.by_scope: dict[tuple[str, str], list[int]] = {}
        self.by_line: dict[tuple[str, int, Phase], list[int]] = {}
        for op in graph.operations():
            self.by_scope.setdefault(scope_of(op.scope), []).append(op.id)
            if op.source is not None:
                line = (op.source.file, op.source.line, phase_of(op.scope, differentiated))
                self.by_line.setdefault(line, []).append(op.id)

    def hits(self, part: Part) -> Counter[int]:
        """Beginnings that the tensors of the part's op follow from, or else those of its users."""
        nodes = self.nodes(part)
        near = set(nodes).union(*map(self.operands, nodes))
        return self.begun_at(near) or self.begun_at(set().union(*map(self.users, nodes)))

    def begun_at(self, nodes: Iterable[int]) -> Counter[int]:
        """How many of the values of some ops follow from each beginning."""
        found: Counter[int] = Counter()
        for node in nodes:
            found.update(self.begun.get(node, ()))
        return found

    def nodes(self, part: Part) -> Sequence[int]:
        """The ops of the lowered module that a tensor is communicated for."""
        if self.tagged and part.tags:
            return part.tags
        found = self.by_scope.get((part.scope, part.primitive)) if part.primitive else None
        if found is None and part.source is not None:
            found = self.by_line.get((part.source.file, part.source.line, part.phase))
        return found or ()

    def operands(self, node: int) -> Iterator[int]:
        op = self.graph.ops[node]
        for result in range(len(op.types)):
            yield from (source for source, _ in inputs(self.graph, (node, result)))

    def users(self, node: int) -> Iterator[int]:
        return iter(self.graph.nx.successors(node))
