"""Memory over one step of a compiled program: the peak, what is held there, what lowers it.

Values only; ``sdyscope.analysis.memory`` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from sdyscope.facts.compiled import Compiled, OfCompiled
from sdyscope.facts.decided import AxisOrigin, DecidedValue
from sdyscope.facts.program import Partitioner
from sdyscope.formatters import Displayed, Summarized, in_place
from sdyscope.values.sharding import PartitionSpec
from sdyscope.values.source import SourceLocation

Phase: TypeAlias = Literal["forward", "backward", "other"]
"""``other`` is what belongs to neither pass of a differentiated program, such as its optimizer, or
has no name."""

PHASES: tuple[Phase, ...] = get_args(Phase)

Category: TypeAlias = Literal[
    "parameters",
    "optimizer state",
    "state",
    "inputs",
    "results",
    "constants",
    "gradients",
    "kept for backward",
    "collectives",
    "temporaries",
]
"""What memory is held for. ``results`` are those that lie in no argument's buffer; ``gradients``
are made in the backward pass and read after it; ``kept for backward`` is made before the backward
pass and read in it; ``collectives`` are other results of collectives; ``temporaries`` are the
rest."""

CATEGORIES: tuple[Category, ...] = get_args(Category)

#: How much ours and the compiler's figure may differ to be called the same.
TOLERANCE = 0.02

Figure: TypeAlias = Literal[
    "peak", "peak without temporaries", "peak of another memory", "temporaries"
]
"""What of the compiler's is compared: its ``peak``, which on CPUs leaves temporaries out, and on
TPUs counts the heap of the one memory whose heap is largest; or the size of its ``temporaries``,
which has gaps that no value is in."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A figure of the compiler's beside the same from live ranges.

    Attributes:
        figure: which.
        ours: bytes from live ranges.
        compiler: bytes by the compiler.
    """

    figure: Figure
    ours: int
    compiler: int

    __document__ = ("figure", "ours", "compiler", "agrees")

    @property
    def agrees(self) -> bool:
        """Whether they are within 2% of the compiler's."""
        return abs(self.ours - self.compiler) <= TOLERANCE * self.compiler


@dataclass(frozen=True, slots=True)
class Holding:
    """What is held at the peak; alike values of repeated layers together.

    Attributes:
        category: what for.
        name: path of an argument or result; else the scope of what makes it, empty where the
            compiler kept none. Of several with ``*`` for the numbers that they differ in.
        op: of what is computed JAX's primitive, or HLO's opcode where that has no name; empty of
            arguments and results.
        instruction: name of the first instruction that makes it; empty likewise.
        array: the block that a device holds, as HLO writes it, with its layout.
        count: how many there are.
        bytes: what all of them take on a device.
        start: position in the schedule at which the first begins to be held.
        end: the last position at which one is.
        source: its line.
        decided: its sharding, and where that comes from; None where it is not known.
    """

    category: Category
    name: str
    op: str
    instruction: str
    array: str
    count: int
    bytes: int
    start: int
    end: int
    source: SourceLocation | None
    decided: DecidedValue | None = None

    __document__ = in_place(source=("source", "origins"), decided=())

    @property
    def origins(self) -> tuple[AxisOrigin, ...]:
        """The annotations that its sharding comes from."""
        return () if self.decided is None else self.decided.origins


@dataclass(frozen=True, slots=True)
class Moment:
    """A position of the schedule.

    Attributes:
        position: which.
        bytes: what is held there.
        by_category: of these for what, in the order of the categories.
    """

    position: int
    bytes: int
    by_category: dict[Category, int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Positions that belong to one pass.

    Attributes:
        phase: which pass.
        start: the first position.
        end: the position behind the last.
    """

    phase: Phase
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, of which the schedule has one iteration.

    Attributes:
        name: its scope.
        start: first position of its body.
        end: position behind the last.
        trips: how often it runs; None where the text does not say.
        source: its line.
    """

    name: str
    start: int
    end: int
    trips: int | None
    source: SourceLocation | None


@dataclass(frozen=True, slots=True)
class OtherMemory:
    """A memory besides the device's main memory.

    Attributes:
        space: its number in layouts: ``S(1)``.
        peak: the most bytes that are held in it at a time.
    """

    space: int
    peak: int


@dataclass(frozen=True, repr=False)
class MemoryOverTime(OfCompiled, Displayed, Summarized):
    """What a device holds over one step of one compiled program.

    Attributes:
        compiled: the compiled program.
        partitioner: under which it was compiled; None for a compiled program's text.
        hardware: what it was compiled for; None for a text.
        instructions: how many positions the schedule has; of loops one iteration.
        peak: the most bytes that are held in the device's main memory at a time.
        position: at which position of the schedule that is, first.
        scope: of what runs there.
        op: JAX's primitive, or HLO's opcode.
        phase: which pass it belongs to.
        source: its line.
        by_category: the bytes at the peak, by what they are held for.
        least: the fewest bytes that are held at a time: arguments, results and constants are held
            from the first instruction to the last.
        held: what is held at the peak, what takes most first.
        moments: the step from the first instruction to the last, in at most 240 parts, each at the
            position in it where most is held.
        phases: the passes.
        loops: the outermost loops.
        other_memories: what is held elsewhere: on a TPU its vector memory, the host's memory.
        counted: the compiler's figures beside ours.
        gaps: bytes that the compiler reserves for temporaries and no value is in at the peak; None
            where it does not say.
        capacity: bytes of the device's main memory; None where it is not known.
        unfollowed: instructions whose values could not be followed.
    """

    compiled: Compiled
    instructions: int
    peak: int
    position: int
    scope: str
    op: str
    phase: Phase
    source: SourceLocation | None
    by_category: dict[Category, int]
    least: int
    held: tuple[Holding, ...]
    moments: tuple[Moment, ...]
    phases: tuple[Stretch, ...]
    loops: tuple[Loop, ...]
    other_memories: tuple[OtherMemory, ...]
    counted: tuple[Counted, ...]
    gaps: int | None
    capacity: int | None
    unfollowed: int

    __document__ = in_place(compiled=(), instructions=("partitioner", "hardware", "instructions"))


RemedyKind: TypeAlias = Literal[
    "donate", "shard", "constrain", "rematerialize", "batch", "offload", "offload activations"
]


@dataclass(frozen=True, slots=True)
class PeakRemedy:
    """A change that may lower the peak, and what it did.

    Attributes:
        kind: `donate` arguments; `shard` arguments further, with their next values; `constrain` a
            value further; `rematerialize` what a call makes in the backward pass, by
            `jax.checkpoint`; half the `batch`; `offload` optimizer state to the host's memory, or
            `offload activations`, the matmuls that a call keeps for the backward pass.
        names: the arguments, the constraint, or the function that is called.
        name: all of them in a word: one's name, with ``*`` for the numbers of several.
        before: the sharding that they have; None of a donation.
        after: the one that was tried; None likewise.
        hopes: bytes at the peak that it is about: what it could save at most.
        peak: the peak with it; None where it was not compiled, or can't be.
        saves: bytes by which that is lower; negative where it is higher; None likewise.
        refused: why it can't be compiled; empty where it was.
        partitioner: under which it was compiled.
        source: line of a constraint or call.
        sizes: of a batch its size now, and the one that was tried; None of anything else.
        certain: of a batch whether that is what `names` hold, by what they are called or are.
    """

    kind: RemedyKind
    names: tuple[str, ...]
    name: str
    before: PartitionSpec | None
    after: PartitionSpec | None
    hopes: int
    partitioner: Partitioner | None
    peak: int | None = None
    saves: int | None = None
    refused: str = ""
    source: SourceLocation | None = None
    sizes: tuple[int, int] | None = None
    certain: bool = True


Wanted: TypeAlias = Literal["largest", "fewest"]
"""The largest value that fits, of what memory grows with; or the fewest devices."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a program fits.

    Attributes:
        partitioner: under which it was compiled.
        limit: bytes of a device.
        needs: bytes that a device needs: what the compiler reserves, or the peak and the code.
    """

    partitioner: Partitioner | None
    limit: int
    needs: int

    __document__ = ("partitioner", "limit", "needs", "fits")

    @property
    def fits(self) -> bool:
        """Whether it does."""
        return self.needs <= self.limit


@dataclass(frozen=True, slots=True)
class SizeTrial:
    """A size that was compiled.

    Attributes:
        value: the size.
        needs: bytes that a device needs; None where it can't be compiled.
        refused: why not.
    """

    value: int
    needs: int | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Varied:
    """How far a size can go.

    Attributes:
        name: the setting, or the mesh axis.
        wanted: whether the largest was looked for, or the fewest.
        given: its value as it was given.
        best: the value that fits; None where none of those tried does.
        step: the sizes that were looked at are multiples of this.
        trials: what was compiled, in order of the values.
    """

    name: str
    wanted: Wanted
    given: int
    best: int | None
    step: int
    trials: tuple[SizeTrial, ...]
