"""Why there is no module, propagation or compiled program under a partitioner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdyscope.errors import CompilerError
from sdyscope.facts.program import Partitioner


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is nothing under a partitioner.

    Attributes:
        partitioner: the partitioner.
        reason: one sentence.
    """

    partitioner: Partitioner
    reason: str


def failures(errors: Mapping[Partitioner, CompilerError]) -> tuple[Failure, ...]:
    """Why there is nothing under some partitioners."""
    return tuple(Failure(partitioner, str(error)) for partitioner, error in errors.items())
