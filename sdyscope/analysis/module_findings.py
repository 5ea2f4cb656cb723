"""What there is to say about whole modules, before any tensor is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sdyscope.annotations import Annotation
from sdyscope.errors import CompilerError
from sdyscope.facts.findings import (
    MixedAttributes,
    NothingLowered,
    Observation,
    SilentFallback,
    UnreadAttribute,
)
from sdyscope.facts.program import Partitioner
from sdyscope.graph import OpGraph

__all__ = ["fallback", "not_lowerable", "not_understood"]


def not_lowerable(
    failures: Mapping[Partitioner, CompilerError], *, alone: bool
) -> Iterator[Observation]:
    """Why there is no module under a partitioner.

    Args:
        failures: what JAX said.
        alone: there is no module under any other one either.
    """
    for partitioner, error in failures.items():
        yield Observation(
            "not-lowerable",
            "error" if alone else "note",
            NothingLowered(partitioner, error.message, error.hint or ""),
            partitioner=partitioner,
        )


def fallback(partitioner: Partitioner, found: str) -> Iterator[Observation]:
    """Annotations that are not, or not only, the partitioner's.

    Args:
        partitioner: whose were asked for.
        found: whose there are: a partitioner's, ``both`` or ``none``.
    """
    if found == "both":
        yield Observation("mixed-attributes", "error", MixedAttributes(), partitioner=partitioner)
    elif found not in ("none", partitioner):
        fact = SilentFallback(partitioner, found)
        yield Observation("silent-fallback", "error", fact, partitioner=partitioner)


def not_understood(
    partitioner: Partitioner, graph: OpGraph, annotations: Iterable[Annotation]
) -> Iterator[Observation]:
    """What could not be read in a module, but for shardings, each of which has a finding."""
    shardings = {annotation.text for annotation in annotations if annotation.is_unreadable}
    for item in graph.not_understood:
        if item.text in shardings:
            continue
        yield Observation(
            "not-understood",
            "warning",
            UnreadAttribute(item.attribute, item.text, item.error),
            kind="op",
            source=None if item.op is None else graph.ops[item.op].source,
            partitioner=partitioner,
        )
