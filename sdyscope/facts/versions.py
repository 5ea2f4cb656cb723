"""What versions of a program have of what is looked for, and how their environments differ."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.facts.sharded import Sharded
from sdyscope.facts.traffic import Tally
from sdyscope.values.source import SourceLocation

FigureUnit: TypeAlias = Literal["bytes", "seconds", "FLOPs", "count"]
"""What a figure counts."""

Kind: TypeAlias = Literal["figure", "collectives", "tensor"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one version has of what is looked for.

    Attributes:
        kind: what it is.
        unit: what a figure counts; null of others.
        number: the figure; null where it is not known, and of others.
        tally: what the collectives come to; null of others.
        shardings: shardings of the values that have the tensor's name, in program order; none of
            others, and where there is no such tensor.
        sources: the lines that it is of.
        program: of a figure of one of several programs, the one that has it; empty of others.
    """

    kind: Kind
    unit: FigureUnit | None = None
    number: float | None = None
    tally: Tally | None = None
    shardings: tuple[Sharded, ...] = ()
    sources: tuple[SourceLocation, ...] = ()
    program: str = ""
    key: Hashable = None

    __document__ = ("kind", "unit", "number", "tally", "shardings", "sources", "program")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A version that was judged.

    Attributes:
        label: what it is called: `JAX 0.11.0`, or a commit's short hash and subject.
        version: the release, or the commit's whole hash.
        reading: what was looked for; null where it could not be judged.
        good: whether it is as in the good version; null likewise.
        skipped: why it could not be judged; empty where it was.
    """

    label: str
    version: str
    reading: Reading | None
    good: bool | None
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class PackageChange:
    """A package that is another in the two environments, besides JAX and its own.

    Attributes:
        name: its distribution.
        a: its version in the first; empty where it is not there.
        b: its version in the second; empty likewise.
    """

    name: str
    a: str
    b: str
