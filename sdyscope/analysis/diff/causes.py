"""Which difference of two propagations a difference of collectives follows from.

A collective is made for an op, because a tensor of it is not sharded as it is needed. Where tensors
of that op are sharded differently on both sides, the difference began where theirs did; where the
op is a constraint that only one of two programs has, it began there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from sdyscope.analysis.collectives.totals import Part
from sdyscope.analysis.diff.collectives import Communicated, folded_layers
from sdyscope.analysis.diff.lowered import Difference, written
from sdyscope.analysis.diff.propagated import Group, PropagatedDiff, PropagatedSide, inputs
from sdyscope.analysis.naming.scopes import Phase, phase_of, scope_of
from sdyscope.graph import OpGraph
from sdyscope.values.source import SourceLocation

__all__ = ["Cause", "Causes"]


@dataclass(frozen=True, slots=True)
class Cause:
    """What differences follow from: in each of some layers that are alike, or just once.

    Attributes:
        places: values from which on values are sharded differently, or constraints that only one
            program has; the first layer's first.
    """

    places: tuple[Group | Difference, ...]


class Causes:
    """Finds the cause that differing collectives follow from.

    Args:
        found: the differences of two propagations.
        sides: these propagations.
        annotations: the differences of the two lowered modules.

    Attributes:
        causes: all that there may be, by their numbers.
    """

    def __init__(
        self,
        found: PropagatedDiff,
        sides: tuple[PropagatedSide, PropagatedSide],
        annotations: Sequence[Difference] = (),
    ) -> None:
        lone = [one for one in annotations if one.kind == "constraint" and one.change != "changed"]
        folded: dict[Hashable, list[Group | Difference]] = {}
        places: tuple[Group | Difference, ...] = (*found.groups, *lone)
        for place in places:
            folded.setdefault(_fold_key(place), []).append(place)
        self.causes = tuple(Cause(tuple(places)) for places in folded.values())
        self.sides = tuple(_Side(side.graph) for side in sides)
        for number, cause in enumerate(self.causes):
            for place in cause.places:
                self._put(number, place)

    def _put(self, number: int, place: Group | Difference) -> None:
        if isinstance(place, Group):
            for value in (place.begins, *place.follows):
                for side, (node, _) in zip(self.sides, (value.a, value.b), strict=True):
                    side.begun.setdefault(node, Counter())[number] += 1
        else:
            for side, annotation in zip(self.sides, (place.a, place.b), strict=True):
                if annotation is not None:
                    side.lone.setdefault(annotation.op, Counter())[number] += 1

    def __call__(self, a: Communicated, b: Communicated) -> int | None:
        """The number of the cause; None where no tensor of the ops is sharded differently."""
        hits: Counter[int] = Counter()
        for side, communicated in zip(self.sides, (a, b), strict=True):
            for _, part in communicated.parts:
                hits.update(side.hits(part))
        # Where several are as near, the one that most follows from: it has the lowest number.
        return min(hits, key=lambda number: (-hits[number], number), default=None)


def _fold_key(place: Group | Difference) -> Hashable:
    if isinstance(place, Group):
        value = place.begins.value
        places = place.begins.place_a, place.begins.place_b
        return folded_layers(value.name), value.kind, value.type, _line(value.source), places
    source = next(one.source for one in (place.a, place.b) if one is not None)
    shardings = tuple(None if one is None else written(one) for one in (place.a, place.b))
    return folded_layers(place.tensor), place.change, _line(source), shardings


def _line(source: SourceLocation | None) -> tuple[str, int] | None:
    return None if source is None else (source.file, source.line)


class _Side:
    """One side: which causes are at which op of its lowered module.

    Attributes:
        begun: by op, beginnings that its results follow from.
        lone: by op, constraints that only this side has.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.begun: dict[int, Counter[int]] = {}
        self.lone: dict[int, Counter[int]] = {}
        differentiated = any("transpose(" in op.scope for op in graph.operations())
        self.by_scope: dict[tuple[str, str], list[int]] = {}
        self.by_line: dict[tuple[str, int, Phase], list[int]] = {}
        for op in graph.operations():
            self.by_scope.setdefault(scope_of(op.scope), []).append(op.id)
            if op.source is not None:
                line = (op.source.file, op.source.line, phase_of(op.scope, differentiated))
                self.by_line.setdefault(line, []).append(op.id)

    def hits(self, part: Part) -> Counter[int]:
        """Causes at the part's op, or else as near to it as there are any."""
        nodes = self.nodes(part)
        near = set(nodes).union(*map(self.operands, nodes))
        users: set[int] = set().union(*map(self.users, nodes))
        for places, causes in (
            (nodes, self.lone),
            (near, self.begun),
            (near, self.lone),
            (users, self.begun),
            (users, self.lone),
        ):
            found: Counter[int] = Counter()
            for node in places:
                found.update(causes.get(node, ()))
            if found:
                return found
        return Counter()

    def nodes(self, part: Part) -> Sequence[int]:
        """The ops of the lowered module that a tensor is communicated for."""
        if part.tags:
            # The op itself, without the calls that it was inlined from.
            return [path[-1] for path in part.tags]
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
