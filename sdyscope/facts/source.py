"""What a line of the author's files does."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.facts.program import CompiledUnder, Partitioner
from sdyscope.facts.sharded import Sharded
from sdyscope.formatters import in_place
from sdyscope.values.mesh import AxisRef


@dataclass(frozen=True, slots=True)
class LineValues:
    """Values of a line that have one type and are placed alike.

    Attributes:
        count: how many there are.
        name: scope of the first, without the program's own name.
        op: what JAX calls the op that makes it, or what it is: `constraint`.
        shape: shape of the whole tensor; null where it is dynamic.
        dtype: MLIR element type.
        bytes: bytes of one whole tensor; null where they are not known.
        shardings: what each partitioner decided; one is absent that has no such value.
        same: whether all partitioners place it alike; null with one of them.
        begins: whether a difference between the partitioners begins at one of them.
    """

    count: int
    name: str
    op: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int | None
    shardings: dict[Partitioner, Sharded]
    same: bool | None
    begins: bool


@dataclass(frozen=True, slots=True)
class LineCollectives:
    """Collectives of one kind over the same axes that a line makes necessary.

    XLA joins several tensors in one collective, and counts here are those of tensors: each has its
    own line.

    Attributes:
        partitioner: under which the program was compiled; empty for a text, which does not say.
        kind: HLO's opcode.
        axes: the mesh axes that they run over; null where no set of axes has their groups.
        tensors: how many tensors a step communicates so, loops included.
        sent: bytes that a device sends for them per step.
        received: bytes that it receives.
        counted_once: whether a loop of unknown length around one counts once.
        at_most: whether the bytes are an upper bound: those of a ragged all-to-all are data, and a
            branch counts as if it were always taken.
        some_idle: whether some are permutations in which a device sends or receives nothing.
        origin: why the largest of the tensors is communicated; null where that was not looked for.
        origins: why each of them is.
    """

    partitioner: CompiledUnder
    kind: str
    axes: tuple[AxisRef, ...] | None
    tensors: int
    sent: int
    received: int
    counted_once: bool
    at_most: bool
    some_idle: bool
    origins: tuple[CollectiveOrigin, ...]

    __document__ = in_place(some_idle=("some_idle", "origin"), origins=())

    @property
    def origin(self) -> CollectiveOrigin | None:
        """Why the largest of the tensors is communicated."""
        return self.origins[0] if self.origins else None
