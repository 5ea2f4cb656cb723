"""What there is to say about whole modules, before any tensor is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sdyscope.annotations import Annotation
from sdyscope.errors import CompilerError
from sdyscope.facts.findings import Finding
from sdyscope.facts.program import Partitioner
from sdyscope.graph import OpGraph

__all__ = ["fallback", "not_lowerable", "not_understood"]


def not_lowerable(
    failures: Mapping[Partitioner, CompilerError], *, alone: bool
) -> Iterator[Finding]:
    """Why there is no module under a partitioner.

    Args:
        failures: what JAX said.
        alone: there is no module under any other one either.
    """
    for partitioner, error in failures.items():
        yield Finding(
            "not-lowerable",
            "error" if alone else "note",
            f"There is nothing to compare under {partitioner}: {error.message}",
            partitioner=partitioner,
            hint=error.hint or "",
        )


def fallback(partitioner: Partitioner, found: str) -> Iterator[Finding]:
    """Annotations that are not, or not only, the partitioner's.

    Args:
        partitioner: whose were asked for.
        found: whose there are: a partitioner's, ``both`` or ``none``.
    """
    if found == "both":
        yield Finding(
            "mixed-attributes",
            "error",
            "The module has annotations of both partitioners; up to JAX 0.10 Shardy then falls "
            "back to GSPMD without an error.",
            partitioner=partitioner,
            hint="Find what was lowered without Shardy: an exported function, a custom call.",
        )
    elif found not in ("none", partitioner):
        yield Finding(
            "silent-fallback",
            "error",
            f"{partitioner} was asked for, and the module is written for {found}.",
            partitioner=partitioner,
            hint="Look for jax_use_shardy_partitioner being set by the program.",
        )


def not_understood(
    partitioner: Partitioner, graph: OpGraph, annotations: Iterable[Annotation]
) -> Iterator[Finding]:
    """What could not be read in a module, but for shardings, each of which has a finding."""
    shardings = {annotation.text for annotation in annotations if annotation.is_unreadable}
    for item in graph.not_understood:
        if item.text in shardings:
            continue
        yield Finding(
            "not-understood",
            "warning",
            f"{item.attribute or 'A piece of the module'} could not be read: {item.error}",
            kind="op",
            source=None if item.op is None else graph.ops[item.op].source,
            partitioner=partitioner,
            found=item.text,
        )
