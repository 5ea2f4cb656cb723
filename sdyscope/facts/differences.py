"""What two sides of a comparison are, and what could not be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.values.mesh import Mesh

__all__ = [
    "AFTER",
    "BEFORE",
    "Across",
    "Change",
    "LoneMesh",
    "NotComparedReason",
    "NotComparedValues",
    "Uncompared",
]

Across: TypeAlias = Literal["partitioners", "hardware", "programs", "annotations"]
"""One program under two partitioners, on two kinds of hardware or with other annotations, or two
programs."""

Change: TypeAlias = Literal["changed", "only in a", "only in b"]
"""That something is not the same, or that only one side has it."""

#: The sides of a comparison of one program with itself, its annotations changed.
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, slots=True)
class LoneMesh:
    """A mesh that only one side has.

    Attributes:
        label: what to call that side.
        mesh: the mesh; its text where it could not be read.
    """

    label: str
    mesh: Mesh | str


NotComparedReason: TypeAlias = Literal[
    "absent", "not partitioned", "folded", "no fixed shape", "no placement"
]
"""``absent``: the other module has no such value; ``not partitioned``: values of this kind have no
sharding; ``folded``: the compiler computed the value; ``no fixed shape``: it is no tensor of a
fixed shape; ``no placement``: nothing says where its sharding puts it."""


@dataclass(frozen=True, slots=True)
class NotComparedValues:
    """Values that could not be compared, for one reason.

    Attributes:
        reason: why.
        side: what the side is called that it is about; empty for both.
        values: how many there are.
    """

    reason: NotComparedReason
    side: str
    values: int


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
