"""The parts that the document of a program's collectives is made of."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.analysis.collectives.bytes import CollectiveKind
from sdyscope.analysis.naming.scopes import Phase
from sdyscope.facts.origins import CollectiveOrigin, OriginAnnotation
from sdyscope.values.source import SourceLocation
from sdyscope.words.mesh import AxisDocument


@dataclass(frozen=True, slots=True)
class TallyDocument:
    """Some collectives taken together, in one step of one device.

    Attributes:
      count: how many are run, loops included.
      tensors: how many tensors they communicate.
      bytes: bytes of these tensors on one device.
      sent: bytes that a device sends.
      received: bytes that a device receives.
    """

    count: int
    tensors: int
    bytes: int
    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class KindTally:
    """Those of one kind.

    Attributes:
      kind: HLO's opcode.
      tally: what they come to.
    """

    kind: CollectiveKind
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class AxesTally:
    """Those over the same axes.

    Attributes:
      axes: the mesh axes, in the order of the mesh; null where no set of axes has their groups.
      tally: what they come to.
    """

    axes: tuple[AxisDocument, ...] | None
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class KindAxesTally:
    """Those of one kind over the same axes.

    Attributes:
      kind: HLO's opcode.
      axes: the mesh axes, in the order of the mesh; null where no set of axes has their groups.
      tally: what they come to.
    """

    kind: CollectiveKind
    axes: tuple[AxisDocument, ...] | None
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class PhaseTally:
    """Those of one pass.

    Attributes:
      phase: forward; backward, which is what JAX transposed; other, such as an optimizer.
      tally: what they come to.
    """

    phase: Phase
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class ScopeTally:
    """Those of one scope.

    Attributes:
      scope: the scope path, without the program's own name; empty for none.
      tally: what they come to.
    """

    scope: str
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class AnnotationTally:
    """Those that come from one annotation; what comes from several counts with each of them.

    Attributes:
      annotation: what is annotated, and how; its `axes` are empty.
      tally: what they come to.
    """

    annotation: OriginAnnotation
    tally: TallyDocument


@dataclass(frozen=True, slots=True)
class PartDocument:
    """One tensor of a collective.

    Attributes:
      shapes: shapes of its pieces on one device, such as `f32[4,128]`; mostly one.
      bytes: bytes of it on one device: of an all-gather after it, of all else before it.
      sent: bytes that a device sends for it in one run.
      received: bytes that a device receives for it in one run.
      scope: scope path of the op that needs it, without the program's own name.
      primitive: the JAX primitive that the op is.
      phase: forward, backward or other.
      source: line of user code; null where the compiler kept none.
      origin: why it is communicated; null where that was not looked for.
    """

    shapes: tuple[str, ...]
    bytes: int
    sent: int
    received: int
    scope: str
    primitive: str
    phase: Phase
    source: SourceLocation | None
    origin: CollectiveOrigin | None


@dataclass(frozen=True, slots=True)
class CollectiveDocument:
    """One collective.

    Attributes:
      name: name of the HLO instruction.
      kind: what it does.
      axes: mesh axes that it runs over; null where no set of axes has its groups.
      group_size: devices that work together; null where groups differ or are not known.
      count: how often a step runs it.
      unknown_trips: whether a loop around it counts once since its trip count is not known.
      conditional: whether it is in a branch, which counts as if it were taken.
      asynchronous: whether the device does other work meanwhile.
      channel_id: HLO's channel.
      groups: replica groups, or source-target pairs, as HLO writes them.
      sent: bytes that a device sends in a step.
      received: bytes that a device receives in a step.
      parts: its tensors.
      line: line in the HLO text.
    """

    name: str
    kind: CollectiveKind
    axes: tuple[AxisDocument, ...] | None
    group_size: int | None
    count: int
    unknown_trips: bool
    conditional: bool
    asynchronous: bool
    channel_id: int | None
    groups: str
    sent: int
    received: int
    parts: tuple[PartDocument, ...]
    line: int


@dataclass(frozen=True, slots=True)
class RematerializationDocument:
    """A resharding that the partitioner could only do by making a tensor whole on every device.

    Attributes:
      operation: name of the HLO instruction.
      shape: block of the tensor that a device has before; null where it is not known.
      before: HLO sharding that it has.
      after: HLO sharding that it is to have.
      scope: scope path of the op.
      primitive: JAX primitive of the op.
      source: line of user code; null where it is not known.
      message: what the partitioner logged.
      cut: whether it was cut short there, so that shape, scope or line may be missing.
    """

    operation: str
    shape: str | None
    before: str
    after: str
    scope: str
    primitive: str
    source: SourceLocation | None
    message: str
    cut: bool


@dataclass(frozen=True, slots=True)
class UnreadLine:
    """A line of the HLO text that could not be read.

    Attributes:
      line: its number, from 1.
      text: the line, or why it could not be read.
    """

    line: int
    text: str
