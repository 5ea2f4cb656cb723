"""What the largest collectives of a compiled program are about: annotations, values, mesh axes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.propagation.explain import Explainer
from sdyscope.annotations import Annotation
from sdyscope.errors import SdyscopeError
from sdyscope.facts.origins import OriginAnnotation
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op
from sdyscope.staged import Staged

#: How many moves back from a collective are looked at: what is farther away is on every chain.
_MOVES = 400


@dataclass
class Weight:
    """How much is sent for one thing.

    Attributes:
        sent: bytes that a device sends in a step for the collectives that it is behind.
        axes: the mesh axes of these, those with most bytes first.
    """

    sent: float = 0.0
    axes: dict[str, float] = field(default_factory=dict)

    def add(self, sent: float, axes: Iterable[str]) -> None:
        """Counts one more collective."""
        self.sent += sent
        for axis in axes:
            self.axes[axis] = self.axes.get(axis, 0.0) + sent

    @property
    def names(self) -> list[str]:
        """The axes, those with most bytes first."""
        return sorted(self.axes, key=lambda axis: -self.axes[axis])


@dataclass
class Evidence:
    """What collectives are about.

    Attributes:
        annotations: by kind and path, or by kind and line, of what is written in the program.
        parts: bytes and mesh axes of each part of a collective.
        values: which parts, by value of the lowered module, it is on the way to.
    """

    annotations: dict[tuple[str, str], Weight] = field(default_factory=dict)
    parts: list[tuple[float, list[str]]] = field(default_factory=list)
    values: dict[ValueId, list[int]] = field(default_factory=dict)

    def of(self, annotation: Annotation) -> Weight | None:
        """What is known of an annotation of the lowered module."""
        return self.annotations.get(_key(annotation))

    def of_values(self, values: Iterable[ValueId]) -> Weight:
        """What is known of values, such as those of one expression; each collective once."""
        weight = Weight()
        parts = (part for value in values for part in self.values.get(value, ()))
        for part in dict.fromkeys(parts):
            weight.add(*self.parts[part])
        return weight

    def sent_for(self, annotations: Iterable[Annotation]) -> float:
        """Bytes that are sent for some of them, those of one line or tensor once."""
        keys = dict.fromkeys(map(_key, annotations))
        return sum(self.annotations[key].sent for key in keys if key in self.annotations)


def _key(annotation: Annotation | OriginAnnotation) -> tuple[str, str]:
    if annotation.kind in ("argument", "result"):
        path = annotation.path if isinstance(annotation, Annotation) else annotation.name
        return annotation.kind, path
    kind = annotation.named_kind if isinstance(annotation, Annotation) else annotation.kind
    return kind, str(annotation.source)


def evidence(program: Staged, collectives: Collectives) -> Evidence:
    """What some collectives of a program are about.

    Args:
        program: the program.
        collectives: those that count, with their origins.
    """
    weighed = Evidence()
    try:
        explainer = Explainer.of(program, "shardy")
    except SdyscopeError:
        explainer = None
    for collective in collectives.collectives:
        axes = [axis.name for axis in collective.axes or ()]
        for part in collective.parts:
            sent = float(collective.count * part.sent)
            if not sent:
                continue
            for key in {_key(annotation): None for annotation in part.annotations}:
                weighed.annotations.setdefault(key, Weight()).add(sent, axes)
            if explainer is not None:
                for value in _values(explainer, collective, part):
                    weighed.values.setdefault(value, []).append(len(weighed.parts))
                weighed.parts.append((sent, axes))
    return weighed


def _values(explainer: Explainer, collective: Collective, part: Part) -> dict[ValueId, None]:
    """The values that an axis of a collective went through on its way to the op that needs it."""
    graph = explainer.graph
    names = {axis.name for axis in collective.axes or ()}
    seen: dict[ValueId, None] = {}
    for path in part.tags:
        if not path or path[-1] >= len(graph.ops):
            continue
        op = graph.ops[path[-1]]
        for value in _around(explainer, op):
            seen[value] = None
            kept = explainer.propagated.values.get(value)
            if kept is None or kept.node is None:
                continue
            for held in explainer.pointers.held(kept):
                chain = explainer.pointers.chain(held)
                if chain.axis.name not in names:
                    continue
                for move in chain.moves[:_MOVES]:
                    if move.lowered is not None:
                        seen[move.lowered] = None
    return seen


def _around(explainer: Explainer, op: Op) -> Iterable[ValueId]:
    """What an op takes and makes."""
    graph = explainer.graph
    yield from ((producer.id, edge.result) for producer, edge in graph.operands(op))
    yield from ((op.id, result) for result in range(len(op.types)))
