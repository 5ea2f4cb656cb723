"""Which difference of two propagations a difference of collectives follows from.

A collective is made for an op, because a tensor of it is not sharded as it is needed. Where tensors
of that op are sharded differently on both sides, the difference began where theirs did; where the
op is a constraint that only one of two programs has, it began there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from sdyscope.analysis.collectives.totals import Part
from sdyscope.analysis.diff.collectives import Differing, Transfers, folded_layers
from sdyscope.analysis.diff.lowered import written
from sdyscope.analysis.diff.propagated import PropagatedSide, inputs
from sdyscope.analysis.naming.paths import without_indices
from sdyscope.analysis.naming.scopes import is_differentiated, phase_of, scope_of
from sdyscope.facts.differences import (
    Cause,
    Divergence,
    Place,
    PropagatedDiff,
    TensorDifference,
)
from sdyscope.facts.origins import OriginAnnotation
from sdyscope.facts.over_time import Phase
from sdyscope.graph import OpGraph
from sdyscope.values.source import line_of


def cause_from(places: tuple[Place, ...], due: Sequence[Differing]) -> Cause:
    """What some differences follow from.

    Args:
        places: where they begin, the first layer's first.
        due: the differences.
    """
    return Cause(
        places,
        sum(difference.sent for difference in due),
        len(due),
        _annotations(difference.a for difference in due),
        _annotations(difference.b for difference in due),
    )


def _annotations(every: Iterable[Transfers]) -> tuple[OriginAnnotation, ...]:
    """Annotations behind collectives, by the bytes that are sent for what comes from them."""
    sent: Counter[object] = Counter()
    first: dict[object, OriginAnnotation] = {}
    for transfers in every:
        for collective, part in transfers.parts:
            named = [
                replace(annotation.written(), name=without_indices(annotation.name))
                for annotation in part.annotations
            ]
            for key, difference in {difference.key: difference for difference in named}.items():
                first.setdefault(key, difference)
                sent[key] += collective.count * part.sent
    return tuple(first[key] for key, _ in sent.most_common())


class Causes:
    """Finds the cause that differing collectives follow from.

    Args:
        found: the differences of two propagations.
        sides: these propagations.
        annotations: the differences of the two lowered modules.

    Attributes:
        causes: all that there may be, by their numbers: where each is in layers that are alike.
    """

    def __init__(
        self,
        diff: PropagatedDiff,
        sides: tuple[PropagatedSide, PropagatedSide],
        annotations: Sequence[TensorDifference] = (),
    ) -> None:
        lone = [
            annotation
            for annotation in annotations
            if annotation.kind == "constraint" and annotation.change != "changed"
        ]
        folded: dict[Hashable, list[Place]] = {}
        every: tuple[Place, ...] = (*diff.beginnings, *lone)
        for place in every:
            folded.setdefault(_fold_key(place), []).append(place)
        self.causes = tuple(map(tuple, folded.values()))
        self.sides = tuple(_Side(side.graph) for side in sides)
        for number, places in enumerate(self.causes):
            for place in places:
                self._put(number, place)

    def _put(self, number: int, place: Place) -> None:
        if isinstance(place, Divergence):
            for value in place.all_values:
                for side, (node, _) in zip(self.sides, (value.value.id, value.other), strict=True):
                    side.begun.setdefault(node, Counter())[number] += 1
        else:
            for side, tensor in zip(self.sides, (place.a, place.b), strict=True):
                if tensor is not None:
                    side.lone.setdefault(tensor.annotation.op, Counter())[number] += 1

    def __call__(self, a: Transfers, b: Transfers) -> int | None:
        """The number of the cause; None where no tensor of the ops is sharded differently."""
        hits: Counter[int] = Counter()
        for side, communicated in zip(self.sides, (a, b), strict=True):
            for _, part in communicated.parts:
                hits.update(side.hits(part))
        # Where several are as near, the one that most follows from: it has the lowest number.
        return min(hits, key=lambda number: (-hits[number], number), default=None)


def _fold_key(place: Place) -> Hashable:
    if isinstance(place, Divergence):
        value = place.begins.value
        places = place.begins.a.placement, place.begins.b.placement
        return folded_layers(value.name), value.kind, value.type, line_of(value.source), places
    own, _ = place.own  # The constraint is only on one side.
    name = folded_layers(place.tensor)
    return name, place.change, line_of(own.source), written(own.annotation)


class _Side:
    """One side: which causes are at which op of its lowered module.

    Attributes:
        begun: by op, beginnings that its results follow from.
        lone: by op, constraints that only this side has.
        returned: by op, the results of main that it computes.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.begun: dict[int, Counter[int]] = {}
        self.lone: dict[int, Counter[int]] = {}
        self.returned: dict[int, list[int]] = {}
        results = graph.results()
        for index, (node, _) in graph.returned.items():
            self.returned.setdefault(node, []).append(results[index].id)
        differentiated = is_differentiated(op.scope for op in graph.operations())
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
            near_causes: Counter[int] = Counter()
            for node in places:
                near_causes.update(causes.get(node, ()))
            if near_causes:
                return near_causes
        return Counter()

    def nodes(self, part: Part) -> Sequence[int]:
        """The ops of the lowered module that a tensor is communicated for."""
        if part.tags:
            # The op itself, without the calls that it was inlined from.
            return [path[-1] for path in part.tags]
        due = self.by_scope.get((part.scope, part.primitive)) if part.primitive else None
        if due is None and part.source is not None:
            due = self.by_line.get((part.source.file, part.source.line, part.phase))
        return due or ()

    def operands(self, node: int) -> Iterator[int]:
        op = self.graph.ops[node]
        for result in range(len(op.types)):
            yield from (source for source, _ in inputs(self.graph, (node, result)))

    def users(self, node: int) -> Iterator[int]:
        yield from self.graph.nx.successors(node)
        yield from self.returned.get(node, ())
