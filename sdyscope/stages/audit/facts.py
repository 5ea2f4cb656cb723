"""What an audit read of XLA's dumps, as it travels between processes."""

from __future__ import annotations

import msgspec

from sdyscope.stages.compile_options import CompilerOption

Operand = tuple[int, int, int]
"""Where an operand comes from: (op, -1, result), or (op, region, argument) of a block argument."""

Blocks = list[list[int]]
"""By device the block of each dimension that it holds; a single row where all hold the same."""

#: Kinds of collectives that sum pieces of what the op makes that they are named after.
SUMS = ("all-reduce", "reduce-scatter")

_CONSTRAINTS = ("sdy.sharding_constraint", "sdy.reshard")


class AuditRequest(msgspec.Struct, frozen=True):
    """What to compile and read.

    Attributes:
        bytecode: the lowered module.
        shardy: whether Shardy propagates; GSPMD otherwise.
        num_partitions: how many devices to compile for.
        compiler_options: what jit was told to have it compiled with.
        moves: whether to follow what collectives move to the ops that take it.
    """

    bytecode: bytes
    shardy: bool
    num_partitions: int
    compiler_options: tuple[tuple[str, CompilerOption], ...] = ()
    moves: bool = False


class Layout(msgspec.Struct, frozen=True):
    """How a value is laid out.

    Attributes:
        text: XLA's own words; empty where nothing is written.
        blocks: of each device which block it holds of each dimension; a single row where that is
            alike on all of them.
    """

    text: str
    blocks: Blocks


class AuditedOp(msgspec.Struct, frozen=True):
    """One op of the lowered module.

    Attributes:
        kind: its name in MLIR.
        types: the types of its results, in MLIR's words.
        operands: where its operands come from.
        target: what a custom call calls; empty for any other op.
        kept: of a loop, the places of what its body returns as it is given.
    """

    kind: str
    types: list[str]
    operands: list[Operand]
    target: str = ""
    kept: list[int] = []

    @property
    def is_constraint(self) -> bool:
        """Whether it only says how what it takes is to be sharded."""
        return self.target == "Sharding" or self.kind in _CONSTRAINTS


class AuditedWay(msgspec.Struct, frozen=True):
    """The way of a value from what makes it to what takes it.

    Attributes:
        makers: numbers of the ops that make what a collective moves; several where it is one of
            several values. Empty where that is not known, or it is an argument.
        arguments: which arguments of the program it is.
        calls: numbers of the ops around the makers: functions that were called, and loops.
        given: the layout that it has there; None where that is not known.
        constrained: the layouts that constraints gave it before the collective, likewise.
        arrived: each op that takes what it becomes, or -1 where the program returns that, with the
            layout in which it arrives there; None where that is not known.
        passed: the layouts on the way, likewise: that which the collective gives, and that behind
            each move that follows.
    """

    makers: list[int]
    arguments: list[int]
    calls: list[int]
    given: Blocks | None
    constrained: list[Blocks | None]
    arrived: list[tuple[int, Blocks | None]]
    passed: list[Blocks | None]


class AuditedMove(msgspec.Struct, frozen=True):
    """What takes what a collective gives, in the module that XLA just partitioned.

    Attributes:
        takers: numbers of the ops that it reaches before it is another value.
        is_returned: whether the program returns it.
        is_named_as_maker: whether what makes what it moves has the name of the collective.
        is_named_as_taker: whether what takes it has that name.
        is_generated: whether XLA writes that it generated it, as it does as of JAX 0.11.
        way: what it moves, and how that arrives; None where that was not asked for.
    """

    takers: list[int]
    is_returned: bool
    is_named_as_maker: bool
    is_named_as_taker: bool
    is_generated: bool
    way: AuditedWay | None = None


class AuditedCollective(msgspec.Struct, frozen=True):
    """One collective of the final HLO.

    Attributes:
        name: the instruction's.
        kind: HLO's opcode, that of the whole for one that is started and done.
        groups: devices that work together; of a permutation (source, target).
        bytes: on one device: of the result of an all-gather, of the operands of all else.
        sent: bytes that a device sends in one run, by the ring algorithms.
        received: bytes that it receives.
        count: how often a step runs it, by the trip counts that XLA writes on loops.
        ops: numbers of the ops of the lowered module that XLA names it after.
        scopes: the names that these had, and their innermost lines.
        dims: dimensions of what it gives, tensor by tensor.
        along: the dimensions along which it gathers, scatters or exchanges; of a permutation of
            what its ops make, the dimensions of that whose blocks differ between the devices that
            send and receive; empty of all else.
        is_of_result: whether what its ops make is communicated, and not what they take.
        is_moved_before: whether that was exchanged with other devices before.
        moves: of each collective that it can have been before XLA combined, copied and renamed it,
            what takes what it gives; empty where none is known, of sums, and where not asked for.
    """

    name: str
    kind: str
    groups: list[list[int]]
    bytes: int
    sent: int
    received: int
    count: int
    ops: list[int]
    scopes: list[str]
    dims: list[tuple[int, ...]]
    along: tuple[int, ...] = ()
    is_of_result: bool = False
    is_moved_before: bool = False
    moves: list[AuditedMove] = []


class Audited(msgspec.Struct, frozen=True):
    """What was read.

    Attributes:
        refused: why XLA did not compile it; the rest is then as far as it came.
        ops: the ops of the lowered module in the order in which they begin.
        layouts: every layout that is named by its number below.
        values: by op, every time that XLA has it, the layouts of its results; -1 where it is not
            known which result is which.
        resharded: by op with one result, every time that XLA has it, the layouts that it copies the
            result to.
        carried: by loop, every time that XLA has it, the layouts of what its body gets, likewise.
        arguments: layouts of main's arguments.
        results: of its results.
        propagated: the dump that these are from; empty where XLA wrote none.
        collectives: what the final HLO has.
        memory: ``memory_analysis()``, without ``_in_bytes``.
        argument_bytes: the arguments' bytes, added up from the entry of the final HLO.
    """

    refused: str = ""
    ops: list[AuditedOp] = []
    layouts: list[Layout] = []
    values: dict[int, list[list[int]]] = {}
    resharded: dict[int, list[list[int]]] = {}
    carried: dict[int, list[list[int]]] = {}
    arguments: list[int] = []
    results: list[int] = []
    propagated: str = ""
    collectives: list[AuditedCollective] = []
    memory: dict[str, int] = {}
    argument_bytes: int = 0
