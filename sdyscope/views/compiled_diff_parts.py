"""The parts that the document of two compiled programs is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.collectives.bytes import CollectiveKind
from sdyscope.analysis.collectives.totals import Tally
from sdyscope.analysis.diff.value_differences import DifferingValue
from sdyscope.analysis.naming.scopes import Phase
from sdyscope.facts.program import Partitioner
from sdyscope.values.source import SourceLocation
from sdyscope.words.mesh import MeshDocument


@dataclass(frozen=True, slots=True)
class CompiledSide:
    """One of the two.

    Attributes:
      label: what to call it.
      partitioner: under which it was compiled; null for the text of a compiled program.
      hardware: what it was compiled for; null likewise.
      device_kind: what the compiler calls such a device; null likewise.
      devices: how many run it.
      mesh: the mesh whose axes are named; null where none is known that fits.
      total: its collectives in one step of one device; null where it could not be compiled.
      dtypes: how many of their tensors have which element type.
      rematerializations: how many values the partitioner resharded by making them whole on every
        device (involuntary full rematerialization).
      failure: why it could not be compiled; empty where it was.
      notes: what else there is to know.
    """

    label: str
    partitioner: Partitioner | None
    hardware: str | None
    device_kind: str | None
    devices: int | None
    mesh: MeshDocument | None
    total: Tally | None
    dtypes: dict[str, int]
    rematerializations: int
    failure: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KindAxesDifference:
    """Collectives of one kind over the same axes.

    Attributes:
      kind: HLO's opcode.
      over: the mesh axes, in words.
      a: what they come to in the first program.
      b: what they come to in the second.
    """

    kind: CollectiveKind
    over: str
    a: Tally
    b: Tally


@dataclass(frozen=True, slots=True)
class CommunicatedTensors:
    """Tensors that one program communicates in a step.

    Attributes:
      tensors: how many, loops included.
      bytes: their bytes on one device.
      sent: bytes that a device sends for them.
      received: bytes that it receives.
      shapes: how many have which type and local shape.
      origins: why, in words: the annotations that make it necessary.
    """

    tensors: int
    bytes: int
    sent: int
    received: int
    shapes: dict[str, int]
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CollectiveDifference:
    """Collectives that are not the same on both sides, of one op, or of one of repeated layers.

    Attributes:
      change: what happened.
      phase: forward, backward or other.
      scope: scope of the op; of several layers with `*` for their numbers.
      scopes: the scopes, one for each layer.
      primitive: the JAX primitive that the op is.
      kind: what is done.
      axes: names of the mesh axes; null where no set of axes has the groups, or where one of the
        programs has no mesh.
      over: the same in words, with sizes.
      sources: lines of user code.
      a: what the first program communicates.
      b: what the second communicates.
      sent: bytes that a device sends more in the second.
      cause: number of the cause, from 0; null where none is known.
    """

    change: Literal["changed", "only in a", "only in b"]
    phase: Phase
    scope: str
    scopes: tuple[str, ...]
    primitive: str
    kind: CollectiveKind
    axes: tuple[str, ...] | None
    over: str
    sources: tuple[SourceLocation, ...]
    a: CommunicatedTensors
    b: CommunicatedTensors
    sent: int
    cause: int | None


@dataclass(frozen=True, slots=True)
class LoneConstraint:
    """A constraint that only one of two programs has.

    Attributes:
      name: its scope, without the program's own name.
      source: line of user code.
      only: what the side is called that has it.
      sharding: its sharding in words.
    """

    name: str
    source: SourceLocation | None
    only: str
    sharding: str


@dataclass(frozen=True, slots=True)
class Cause:
    """What differences of collectives follow from: exactly one of ``begins`` and ``constraint``.

    Attributes:
      begins: a value at which propagation begins to differ: its inputs are sharded alike.
      constraint: a constraint that only one program has.
      layers: in how many layers it is the same; the first of them is named.
      values: how many values are sharded differently from there on.
      sent: bytes that a device sends more in the second program because of it.
      differences: how many of the differences follow from it.
      annotations_a: annotations behind what the first program communicates of these, what is sent
        most for first; numbers of layers are `*`.
      annotations_b: the same of the second.
    """

    begins: DifferingValue | None
    constraint: LoneConstraint | None
    layers: int
    values: int
    sent: int
    differences: int
    annotations_a: tuple[str, ...]
    annotations_b: tuple[str, ...]
