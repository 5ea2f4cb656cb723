"""The parts that the document of an estimated cost is made of."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.analysis.collectives.bytes import CollectiveKind
from sdyscope.analysis.cost.links import LevelName
from sdyscope.analysis.cost.roofline import Resource
from sdyscope.analysis.naming.scopes import Phase
from sdyscope.values.source import SourceLocation
from sdyscope.words.mesh import AxisDocument


@dataclass(frozen=True, slots=True)
class SpanDocument:
    """Devices in a row along one dimension of the hardware.

    Attributes:
      dimension: dimension of the torus; empty where all are connected by a switch.
      size: how many devices.
      ring: whether the row is closed, so that both directions are used.
      bandwidth: bytes a second that a device sends along it; null where it is not known.
      apart: how many links are between neighbours of the row.
    """

    dimension: str
    size: int
    ring: bool
    bandwidth: float | None
    apart: int


@dataclass(frozen=True, slots=True)
class LevelDocument:
    """What a group of devices is connected by, at one level of the hardware.

    Attributes:
      name: the level; `given` is what --bandwidth said.
      size: how many devices, or groups of the level before, are connected.
      spans: the rows that they form.
      bandwidth: bytes a second that a device sends at this level; null where it is not known.
      latency: seconds a hop; null where it is not known, and then it counts nothing.
    """

    name: LevelName
    size: int
    spans: tuple[SpanDocument, ...]
    bandwidth: float | None
    latency: float | None


@dataclass(frozen=True, slots=True)
class RoofDocument:
    """How long one resource is busy in a step, at least.

    Attributes:
      resource: arithmetic, memory, or the links of a mesh axis.
      axis: the mesh axis; empty for the others.
      size: devices along the axis; 1 for the others.
      seconds: how long; null where it is not known.
      levels: what the devices along the axis are connected by, from the inside out; null where it
        is not known, empty for arithmetic and memory.
    """

    resource: Resource
    axis: str
    size: int
    seconds: float | None
    levels: tuple[LevelDocument, ...] | None


@dataclass(frozen=True, slots=True)
class TimeDocument:
    """Some collectives taken together, in one step of one device.

    Attributes:
      count: how many are run, loops included.
      tensors: how many tensors they communicate.
      sent: bytes that a device sends for them.
      seconds: of those whose time is known.
      unknown: how many of the tensors have no known time.
    """

    count: int
    tensors: int
    sent: int
    seconds: float
    unknown: int


@dataclass(frozen=True, slots=True)
class AxesTime:
    """Those over the same axes.

    Attributes:
      axes: the mesh axes; null where no set of axes has their groups.
      time: what they come to.
    """

    axes: tuple[AxisDocument, ...] | None
    time: TimeDocument


@dataclass(frozen=True, slots=True)
class KindAxesTime:
    """Those of one kind over the same axes.

    Attributes:
      kind: HLO's opcode.
      axes: the mesh axes; null where no set of axes has their groups.
      time: what they come to.
    """

    kind: CollectiveKind
    axes: tuple[AxisDocument, ...] | None
    time: TimeDocument


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Those of one pass.

    Attributes:
      phase: forward; backward, which is what JAX transposed; other, such as an optimizer.
      time: what they come to.
    """

    phase: Phase
    time: TimeDocument


@dataclass(frozen=True, slots=True)
class ScopeTime:
    """Those of one scope.

    Attributes:
      scope: the scope path, without the program's own name; empty for none.
      time: what they come to.
    """

    scope: str
    time: TimeDocument


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """One collective.

    Attributes:
      name: name of the HLO instruction.
      kind: what it does.
      axes: mesh axes that it runs over; null where no set of axes has its groups.
      count: how often a step runs it.
      unknown_trips: whether a loop around it counts once since its trip count is not known.
      conditional: whether it is in a branch, which counts as if it were taken.
      bytes: bytes of its tensors on one device.
      levels: what its group is connected by, from the inside out; null where it is not known.
      each: seconds of one run; null where it is not known.
      seconds: seconds in a step; null likewise.
      scope: scope path of the op that needs its largest tensor.
      source: line of user code of that op; null where the compiler kept none.
    """

    name: str
    kind: CollectiveKind
    axes: tuple[AxisDocument, ...] | None
    count: int
    unknown_trips: bool
    conditional: bool
    bytes: int
    levels: tuple[LevelDocument, ...] | None
    each: float | None
    seconds: float | None
    scope: str
    source: SourceLocation | None


@dataclass(frozen=True, slots=True)
class MatmulDocument:
    """Dots and convolutions of one type.

    Attributes:
      type: what is multiplied, such as `bf16` or `f32 highest`.
      flops: floating point operations in a step.
      peak: operations a second of a device; null where it is not known, and then they count at the
        peak of bf16.
    """

    type: str
    flops: float
    peak: float | None


@dataclass(frozen=True, slots=True)
class ComputeDocument:
    """What a device computes in a step.

    Attributes:
      flops: floating point operations, loops multiplied out.
      by_xla: what XLA's cost analysis says, which counts the body of a loop once; null without.
      matmuls: dots and convolutions, by type.
      seconds: at the peaks; null where none is known.
    """

    flops: float
    by_xla: float | None
    matmuls: tuple[MatmulDocument, ...]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class MemoryDocument:
    """What a device reads and writes in a step.

    Attributes:
      bytes: bytes that instructions access, loops multiplied out.
      by_xla: what XLA's cost analysis says, which counts the body of a loop once; null without.
      hbm: how many of them are in HBM; the rest is in memory on the chip.
      bandwidth: bytes a second; null where it is not known.
      seconds: of the bytes in HBM; null where the bandwidth is not known.
    """

    bytes: float
    by_xla: float | None
    hbm: float
    bandwidth: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class FigureDocument:
    """A figure of a chip.

    Attributes:
      name: what it is, such as `hbm_bandwidth`.
      value: operations a second, bytes, bytes a second or seconds, of a chip.
      title: the document that it is from.
      url: where that is.
      date: of the document, or on which it was read.
    """

    name: str
    value: float
    title: str
    url: str
    date: str
