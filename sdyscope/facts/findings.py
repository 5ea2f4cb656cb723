"""Findings as facts: something wrong, or worth a look, about one tensor or a whole module.

``words.findings`` makes the sentences of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from sdyscope.facts.execution import Extent, Process
from sdyscope.facts.lint import LintFact
from sdyscope.facts.memory import MemoryPart
from sdyscope.facts.origins import OriginAnnotation
from sdyscope.facts.program import Partitioner, RequestedTensor
from sdyscope.facts.remarks import Remark
from sdyscope.facts.sharded import Sharded, Written
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.placement import Digits
from sdyscope.values.sharding import NamedSharding
from sdyscope.values.source import PathWords, SourceLocation

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: something else happens than was asked for, or numbers are wrong; ``warning``: it costs
more than it should, or the compiler may do another thing than was meant; ``note``: worth
knowing."""

SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""The worst first."""

# --- Modules, by check ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NothingLowered:
    """JAX made no module under a partitioner.

    Attributes:
        partitioner: which.
        reason: what JAX said.
        hint: what to do about that; empty where there is nothing to say.
    """

    partitioner: Partitioner
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class MixedAttributes:
    """A module has annotations of both partitioners."""


@dataclass(frozen=True, slots=True)
class SilentFallback:
    """A module is written for another partitioner than was asked for.

    Attributes:
        asked: which was asked for.
        found: whose annotations there are.
    """

    asked: Partitioner
    found: str


@dataclass(frozen=True, slots=True)
class UnreadAttribute:
    """An attribute of a module could not be read.

    Attributes:
        attribute: its name; empty for another piece of the module.
        text: as it is written.
        reason: why not.
    """

    attribute: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotAligned:
    """A requested tensor that the module does not have in the order of lowering.

    Attributes:
        asked: the tensor.
    """

    asked: RequestedTensor


# --- Tensors, by check ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoPlacement:
    """A sharding that can't be read or can't be.

    Attributes:
        sharding: as it was requested, or as it is written; its text where that is unreadable, None
            where nothing is written that has to be.
        reason: why it places nothing, a clause.
    """

    sharding: Written | None
    reason: str


@dataclass(frozen=True, slots=True)
class OtherType:
    """A tensor has another type in the module than it was given as; the types are of both.

    Attributes:
        given: as it was given.
        lowered: as it is in the module.
    """

    given: Sharded
    lowered: Sharded


@dataclass(frozen=True, slots=True)
class NotRequested:
    """JAX wrote a sharding that nobody asked for.

    Attributes:
        lowered: the sharding.
    """

    lowered: Sharded


@dataclass(frozen=True, slots=True)
class ShardingDropped:
    """A sharding was requested, but the module has none.

    Attributes:
        requested: what was asked for.
    """

    requested: Sharded


@dataclass(frozen=True, slots=True)
class OtherPlacement:
    """The module's sharding is not the one requested.

    Attributes:
        requested: what was asked for.
        lowered: what is in the module.
    """

    requested: Sharded
    lowered: Sharded


@dataclass(frozen=True, slots=True)
class PinnedAxes:
    """The module forbids axes that the request leaves free.

    Attributes:
        axes: these axes.
        requested: what was asked for.
        lowered: what is in the module.
    """

    axes: tuple[AxisRef, ...]
    requested: Sharded
    lowered: Sharded


@dataclass(frozen=True, slots=True)
class OtherPriorities:
    """The module gives dimensions a priority that was not requested.

    Attributes:
        priorities: those that were asked for, one a dimension; 0 is the first and the default.
        requested: what was asked for.
        lowered: what is in the module.
    """

    priorities: tuple[int, ...]
    requested: Sharded
    lowered: Sharded


@dataclass(frozen=True, slots=True)
class DroppedAxes:
    """The module does not name axes that were asked for, and places the tensor alike.

    Attributes:
        sizes: the axes with their sizes.
        sharding: what was asked for.
        lowered: what is in the module.
    """

    sizes: tuple[tuple[str, int], ...]
    sharding: NamedSharding
    lowered: Sharded


@dataclass(frozen=True, slots=True)
class OtherOpenDims:
    """Other dimensions are open in the module than were left to the compiler.

    Attributes:
        sharding: what was asked for.
        open_dims: the dimensions that it leaves to the compiler.
        lowered: what is in the module, with the dimensions that are open there.
    """

    sharding: NamedSharding
    open_dims: tuple[int, ...]
    lowered: Sharded


@dataclass(frozen=True, slots=True)
class OtherManualAxes:
    """A ``shard_map`` is manual on other axes than was asked for, or a constraint than its own.

    Attributes:
        is_boundary: whether it is about a ``shard_map``'s own input or output.
        asked: the digits that should be manual.
        found: those that are.
        num_devices: how many devices there are.
        mesh: the mesh to name axes of; None where none is known.
    """

    is_boundary: bool
    asked: Digits
    found: Digits
    num_devices: int
    mesh: Mesh | None


@dataclass(frozen=True, slots=True)
class OtherPartitioner:
    """The modules of the two partitioners say different things of a tensor.

    Attributes:
        first: one partitioner.
        of_first: what its module says.
        second: the other.
        of_second: what its module says.
    """

    first: Partitioner
    of_first: Sharded
    second: Partitioner
    of_second: Sharded


@dataclass(frozen=True, slots=True)
class ArgumentDropped:
    """jit dropped an argument that the program does not use."""


@dataclass(frozen=True, slots=True)
class RequestNote:
    """What there is to know of a request.

    Attributes:
        remark: that.
    """

    remark: Remark


@dataclass(frozen=True, slots=True)
class NotDivisible:
    """A dimension does not divide into its blocks.

    Attributes:
        dim: the dimension.
        size: its size.
        blocks: into how many it was to be cut.
        padding: elements that the last blocks are padded by.
        requested: what was asked for.
    """

    dim: int
    size: int
    blocks: int
    padding: int
    requested: Sharded


# --- Memory ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OtherBytes:
    """Bytes computed from the shardings disagree with the compiler's.

    Attributes:
        tensors: names of arguments and results that are stored otherwise.
        counted: bytes of arguments by the shardings.
        compiled: bytes of arguments by the compiler.
    """

    tensors: tuple[str, ...]
    counted: int
    compiled: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as it is stored on a device.

    Attributes:
        name: pytree path.
        sharding: its sharding; None where no PartitionSpec can say that.
        block: shape of the block that a device stores.
    """

    name: str
    sharding: NamedSharding | None
    block: tuple[int, ...]


WhyUnused: TypeAlias = Literal["no type", "placed otherwise", "taken", "not taken"]
"""``no type``: no result is of the argument's type; ``placed otherwise``: those that are lie
elsewhere; ``taken``: those that fit took other arguments' buffers; ``not taken``: the compiler did
not take it for one that fits."""


@dataclass(frozen=True, slots=True)
class DonationUnused:
    """A donated argument whose buffer no result took.

    Attributes:
        bytes: bytes of the buffer on a device.
        shape: shape of the argument.
        dtype: its MLIR element type.
        why: why none did.
        argument: the argument as it is stored.
        results: the results that could have been.
        takers: arguments that have buffers of such results though no result is stored as they are.
    """

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    why: WhyUnused
    argument: Stored
    results: tuple[Stored, ...]
    takers: tuple[Stored, ...] = ()


@dataclass(frozen=True, slots=True)
class DonationDropped:
    """A donated argument that the program does not use."""


# --- Execution ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NotExecuted:
    """A program was not run under a partitioner.

    Attributes:
        partitioner: which.
        is_refused: whether there is nothing to run, since JAX does not lower it.
        reason: why.
        hint: what to do about it.
    """

    partitioner: Partitioner
    is_refused: bool
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class Regrouped:
    """A reshape that splits a dimension of which each device has a part, in groups of its own.

    Which elements are a group then depends on how many parts there are.

    Attributes:
        part: how many elements of the dimension a device has.
        whole: how many there are.
        groups: how many groups a device makes of its part, and would make of the whole.
        axes: mesh axes whose size is the number of parts.
    """

    part: int
    whole: int
    groups: int
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InnerDifference:
    """The first value inside of a program that is not what its counterpart has.

    What it is made of is the same in both, as far as it was looked at.

    Attributes:
        op: the primitive that makes it, as JAX calls it.
        scope: where in the program, as JAX's names say; empty for the function itself.
        source: the line that it comes from; None where none is the user's.
        dtype: its element type.
        shape: its shape; in a shard_map's body that of a block.
        error: norm of the difference over the norm of what it is in the counterpart.
        ratio: how many times as large all of it is; None where that is not one whole number.
        axes: mesh axes whose size that is.
        base: the mesh of the program that it was compared with; None for the same jaxpr without
            shardings.
        iteration: the iteration of the loop that it is in, counted from 0 in the order of
            execution; None outside of loops.
        compared: how many values were compared.
        unseen: how many values that it may be made of were not compared.
        regrouped: why it differs, where a reshape makes it; None where that says nothing.
        reordered: why it differs, where a `ppermute` makes it over axes that it names in another
            order than the mesh: these, in its order.
    """

    op: str
    scope: str
    source: SourceLocation | None
    dtype: str
    shape: tuple[int, ...]
    error: float
    ratio: float | None
    axes: tuple[str, ...]
    base: Mesh | None
    iteration: int | None
    compared: int
    unseen: int
    regrouped: Regrouped | None = None
    reordered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inside:
    """What is known of where in a program values begin to differ.

    Attributes:
        result: the result that it was looked for from.
        first: the first value that differs; None where none is named.
        why: why not; empty where one is. `other structure`: what is compared with is another
            function, whose ops are others, and the program agrees with its own jaxpr on one device;
            `other ops`: the program has other ops on the other mesh; `gone`: with values inside as
            results the result does not differ; `processes`: there are several; `failed`.
        reason: how it failed; empty else.
    """

    result: str
    first: InnerDifference | None = None
    why: Literal["", "other structure", "other ops", "gone", "processes", "failed"] = ""
    reason: PathWords = ""


@dataclass(frozen=True, slots=True)
class NoReference:
    """Results were not compared with the same step on one device.

    Attributes:
        reason: why not.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class NotFinite:
    """Elements of a result are NaN or infinite, on one device, too.

    Attributes:
        elements: how many of the result are.
        of: how many it has.
        results: how many other results have such elements.
    """

    elements: int
    of: int
    results: int


@dataclass(frozen=True, slots=True)
class NothingTold:
    """Results agree in a way that says nothing of how they are computed.

    Attributes:
        zero: those that are zero everywhere, on one device, too.
        unchanged: those that are their argument up to rounding: what the step changes could be
            anything.
        noise: those that differ by no more than rounding the arguments makes them differ on one
            device.
    """

    zero: tuple[str, ...]
    unchanged: tuple[str, ...]
    noise: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NeverRan:
    """Loops and branches that did not run on the values: nothing of them was compared.

    Attributes:
        loops: how many loops.
        branches: how many branches.
        is_known: whether that is so; otherwise it is not known of any whether it ran.
    """

    loops: int
    branches: int
    is_known: bool


@dataclass(frozen=True, slots=True)
class NotOnMesh:
    """The program was not run on one of the meshes on which it was to be compared.

    Attributes:
        mesh: the mesh.
        reason: why not.
    """

    mesh: Mesh
    reason: str


@dataclass(frozen=True, slots=True)
class DependsOnMesh:
    """Results are not what the same program computes on a mesh of one device.

    Attributes:
        result: the name of one of them, that which is farthest off.
        results: how many there are.
        error: norm of its difference over the norm of what it is there.
        ratio: how many times as large all of it is; None where that is not one whole number.
        axes: mesh axes whose size that is.
        mesh: the mesh it was run on, where it is one of several; None for the program's own.
        base: what is compared with: the program on this mesh; None for a mesh of one device.
        function: the user's function that is compared with instead; empty where there is none.
        inside: the first value inside that differs, or why it is not known; None where it was not
            looked for.
        by_change: whether error and ratio are of what the step changes in its argument, not of all
            of the result.
    """

    result: str
    results: int
    error: float
    ratio: float | None
    axes: tuple[str, ...]
    mesh: Mesh | None = None
    base: Mesh | None = None
    function: str = ""
    inside: Inside | None = None
    by_change: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """A device, and the process that it belongs to.

    Attributes:
        device: its position among the devices.
        process: its process; None where there is only one.
    """

    device: int
    process: Process | None


@dataclass(frozen=True, slots=True)
class OtherBlocks:
    """Devices hold another block of a tensor than they were to.

    Attributes:
        devices: how many do.
        of: how many hold the tensor.
        stage: the stage that says what they were to hold.
        holder: the first of them.
        block: what it has, as extents.
        buffer: shape of its buffer.
        asked: what it was to have, as extents; None for nothing.
        expected: the sharding of that stage.
        found: where the tensor is; None where JAX's sharding says no placement.
    """

    devices: int
    of: int
    stage: Literal["requested", "lowered"]
    holder: Holder
    block: tuple[Extent, ...]
    buffer: tuple[int, ...]
    asked: tuple[Extent, ...] | None
    expected: Sharded
    found: Sharded | None


@dataclass(frozen=True, slots=True)
class UnequalReplicas:
    """Devices that hold the same block have different values in it.

    Attributes:
        devices: how many differ from the first that holds their block.
        of: how many hold the tensor.
        holder: the one that differs most.
        first: the first with the same block.
        error: norm of the difference over the norm of the block.
        is_rounding: whether rounding explains it.
        by_change: whether the error is a share of what the step changes in the tensor.
    """

    devices: int
    of: int
    holder: Holder
    first: Holder
    error: float
    is_rounding: bool
    by_change: bool = False


@dataclass(frozen=True, slots=True)
class OtherNumbers:
    """Results are not what one device computes; the finding is about the one most of all.

    Attributes:
        results: how many are compared.
        worst: name of that one.
        others: names of the others, by how wrong they are.
        error: norm of the difference over the norm of the result on one device.
        tolerance: the largest that is allowed; 0 for the very same.
        coarsest: the dtype whose rounding that allows for; empty for the very same.
        where: position of the element that is most wrong; None where that is not known.
        pair: that element as it is there and on one device; empty where that is not known.
        holder: a device that holds it; None where that is not known.
        only: the one process whose blocks are wrong, and no other's; None where it is not so.
        is_random: whether the step draws random numbers.
        function: the user's function that computes it otherwise; empty for one device.
        inside: the first value inside that differs, or why it is not known; None where it was not
            looked for.
        by_change: whether error and tolerance are shares of what the step changes in its argument,
            not of all of the result.
    """

    results: int
    worst: str
    others: tuple[str, ...]
    error: float
    tolerance: float
    coarsest: str
    where: tuple[int, ...] | None
    pair: tuple[str, ...]
    holder: Holder | None
    only: Process | None
    is_random: bool
    function: str = ""
    inside: Inside | None = None
    by_change: bool = False


@dataclass(frozen=True, slots=True)
class OtherTraining:
    """A scalar result is not what one device computes after some steps of training.

    Attributes:
        result: its name.
        step: the first step in which it is not, from 1.
        steps: how many there were.
        value: what it is.
        expected: what it is on one device.
        error: the difference over what it is on one device.
        tolerance: the largest error that is allowed.
    """

    result: str
    step: int
    steps: int
    value: float
    expected: float
    error: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class NotTrained:
    """Steps of training were not run, or not all of them.

    Attributes:
        partitioner: under which; None on one device.
        reason: why.
    """

    partitioner: Partitioner | None
    reason: str


# --- Budgets --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Amount:
    """What collectives of one place come to.

    Attributes:
        amount: bytes that a device sends for them in a step, or how many run.
        kind: their kind.
        scope: scope and primitive of what they are for; empty for the program itself.
        source: its line; None where none is known.
        annotations: why they are there.
    """

    amount: int
    kind: str
    scope: str
    source: SourceLocation | None
    annotations: tuple[OriginAnnotation, ...]


@dataclass(frozen=True, slots=True)
class OverCommunication:
    """A step sends more bytes, or runs more collectives, than are allowed.

    Attributes:
        unit: which of the two is counted.
        used: how much there is.
        allowed: how much may be.
        amounts: by place, what takes most first.
    """

    unit: Literal["bytes", "collectives"]
    used: int
    allowed: int
    amounts: tuple[Amount, ...]


@dataclass(frozen=True, slots=True)
class OverReplication:
    """A device holds more bytes that others hold, too, than are allowed.

    Attributes:
        used: how many.
        allowed: how many may be.
        tensors: name, such bytes and replicas of each tensor, the most first.
    """

    used: int
    allowed: int
    tensors: tuple[tuple[str, int, int], ...]


MemoryLimit: TypeAlias = Literal["arguments", "temporaries", "total"]


@dataclass(frozen=True, slots=True)
class OverMemory:
    """A device needs more bytes than are allowed.

    Attributes:
        limit: of what.
        used: how many.
        allowed: how many may be.
        parts: what they are for, as far as that is known: tensors, or parts of a total, and bytes.
    """

    limit: MemoryLimit
    used: int
    allowed: int
    parts: tuple[tuple[str | MemoryPart, int], ...]


@dataclass(frozen=True, slots=True)
class CountedOnce:
    """Collectives in loops that run an unknown number of times.

    Attributes:
        collectives: how many.
    """

    collectives: int


@dataclass(frozen=True, slots=True)
class OverUnknownAxes:
    """Collectives that run over no known mesh axes, and so count to each.

    Attributes:
        collectives: how many.
    """

    collectives: int


@dataclass(frozen=True, slots=True)
class UnreadLines:
    """Lines of the compiled program that could not be read.

    Attributes:
        lines: how many.
    """

    lines: int


@dataclass(frozen=True, slots=True)
class NoSuchTensor:
    """A limit of tensors that the program does not have.

    Attributes:
        pattern: the glob of their names.
    """

    pattern: str


@dataclass(frozen=True, slots=True)
class NoMemoryAnalysis:
    """The compiler does not say how much memory a device needs."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What a document says that was read back, of which the words are all that is known.

    Attributes:
        message: one sentence.
        expected: what was asked for.
        found: what is there in its place.
        hint: what to do about it.
    """

    message: str
    expected: str
    found: str
    hint: str


ModuleFact: TypeAlias = NothingLowered | MixedAttributes | SilentFallback | UnreadAttribute
"""What `check` may find of a module."""

TensorFact: TypeAlias = (
    NotAligned
    | NoPlacement
    | OtherType
    | NotRequested
    | ShardingDropped
    | OtherPlacement
    | PinnedAxes
    | OtherPriorities
    | DroppedAxes
    | OtherOpenDims
    | OtherManualAxes
    | OtherPartitioner
    | ArgumentDropped
    | RequestNote
    | NotDivisible
)
"""What it may find of a tensor."""

MemoryFact: TypeAlias = OtherBytes | DonationUnused | DonationDropped
"""What `memory` may find."""

ExecutionFact: TypeAlias = (
    NotExecuted
    | NoReference
    | NotFinite
    | NothingTold
    | NeverRan
    | NotOnMesh
    | DependsOnMesh
    | OtherBlocks
    | UnequalReplicas
    | OtherNumbers
    | OtherTraining
    | NotTrained
)
"""What `run` may find."""

OverBudget: TypeAlias = OverCommunication | OverReplication | OverMemory
"""More than a budget allows."""

BudgetDoubt: TypeAlias = (
    CountedOnce | OverUnknownAxes | UnreadLines | NoSuchTensor | NoMemoryAnalysis
)
"""Why it is not certain that a budget is kept."""

Fact: TypeAlias = (
    ModuleFact
    | TensorFact
    | MemoryFact
    | LintFact
    | ExecutionFact
    | OverBudget
    | BudgetDoubt
    | ReadBack
)
"""What may be found."""


@dataclass(frozen=True, slots=True)
class BudgetSubject:
    """What a budget is about.

    Attributes:
        what: what is limited; ``unlisted`` are collectives that no other limit covers.
        collective: of collectives their kind; empty for any.
        axis: of collectives the mesh axis that they run over; empty for any.
        tensors: of what is replicated a glob of the tensors' names.
    """

    what: Literal["collectives", "unlisted", "replicated"] | MemoryLimit
    collective: str = ""
    axis: str = ""
    tensors: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing found.

    Attributes:
        rule: stable name of the rule: ``lowered-differs``.
        severity: see ``Severity``.
        fact: what was found.
        tensor: path of the tensor; empty for what is about the whole module.
        kind: what the tensor is (argument, constraint, ...); empty likewise.
        source: the line of user code, where there is one.
        partitioner: whose module it is about; None for all.
        budget: the budget that it is about; None for none.
    """

    rule: str
    severity: Severity
    fact: Fact
    tensor: str = ""
    kind: str = ""
    source: SourceLocation | None = None
    partitioner: Partitioner | None = None
    budget: BudgetSubject | None = None
