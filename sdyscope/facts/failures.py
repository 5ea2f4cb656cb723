"""Why there is no module, propagation or compiled program, and what could not be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdyscope.errors import CompilerError
from sdyscope.facts.program import Partitioner
from sdyscope.values.source import PathWords


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is nothing under a partitioner.

    Attributes:
        partitioner: the partitioner.
        reason: one sentence.
    """

    partitioner: Partitioner
    reason: PathWords


def failures(errors: Mapping[Partitioner, CompilerError]) -> tuple[Failure, ...]:
    """Why there is nothing under some partitioners."""
    return tuple(Failure(partitioner, str(error)) for partitioner, error in errors.items())


@dataclass(frozen=True, slots=True)
class Uncompared:
    """A file or program of two directories that could not be compared.

    Attributes:
        said: why, in the words of its reader or of the compiler.
        name: the program's name; empty for a file that could not be read.
        stage: the stage at which it could not be had; empty likewise.
    """

    said: str
    name: str = ""
    stage: str = ""
