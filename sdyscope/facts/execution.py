"""What came out of running a program: plain values, free of jax, one `Execution` a partitioner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark

Extent: TypeAlias = tuple[int, int]
"""First element of a dimension, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The block of one array that one device holds.

    Attributes:
        device: position of the device among those that the program was compiled for.
        index: extent of the block in each dimension of the whole array.
        shape: shape of the buffer that is really there.
        replica_id: number of this replica among the devices that hold the same block.
        bytes: size of the buffer in the device's memory, with what pads it.
    """

    device: int
    index: tuple[Extent, ...]
    shape: tuple[int, ...]
    replica_id: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class UnequalReplica:
    """A replica of a block that is not, bit by bit, what the first device with that block holds.

    Attributes:
        device: position of the device.
        first: position of the first device that holds the block.
        error: norm of the difference over the norm of the block.
    """

    device: int
    first: int
    error: float


@dataclass(frozen=True, slots=True)
class ExecutedArray:
    """One argument or result as it was on the devices.

    Attributes:
        kind: which of the two.
        index: flat index among the arguments or results.
        shape: global shape; of PRNG keys with the dimension of the keys' own words.
        sharding: JAX's sharding of the array, as XLA writes it: `{devices=[4,2]<=[8]}`.
        rank: how many dimensions `sharding` is about: all but those of the keys' words.
        shards: every shard that this process can see, by device; of all processes once their runs
            are put together.
        unequal: of a result, the replicas that are not like the first one.
    """

    kind: Literal["argument", "result"]
    index: int
    shape: tuple[int, ...]
    sharding: str
    rank: int
    shards: tuple[Shard, ...]
    unequal: tuple[UnequalReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class HostBlock:
    """A block of a result, on the host.

    Attributes:
        index: extent of the block in each dimension of the whole result.
        values: what is in it, a numpy array.
        device: position of the device whose replica it is; None for a result that is in one piece.
    """

    index: tuple[Extent, ...]
    values: Any = field(repr=False, compare=False)
    device: int | None = None

    @classmethod
    def whole(cls, values: Any) -> HostBlock:
        """A result that is in one piece."""
        return cls(tuple((0, size) for size in values.shape), values)


@dataclass(frozen=True, slots=True)
class BlockDifference:
    """A block of a result against the same block of what one device computes.

    Attributes:
        index: extent of the block in each dimension of the whole result.
        distance: norm of the difference: the root of the sum of squares.
        norm: norm of what one device computes, of its finite numbers.
        largest: largest absolute difference of an element; infinite where just one is not finite.
        where: position of that element in the whole result; None when there is no difference.
        device: position of the device whose replica it is; None for a result that is in one piece.
        pair: the element as it is here, and on one device; empty when there is no difference.
        not_finite: how many elements are NaN, or the same infinity, here and on one device.
        change: norm of what the step on one device changes in the argument that the result may be
            the next value of; None where there is none.
        steady: norm of the difference without a few elements that rounding makes jump as far; None
            where that was not looked at.
    """

    index: tuple[Extent, ...]
    distance: float
    norm: float
    largest: float
    where: tuple[int, ...] | None
    device: int | None = None
    pair: tuple[str, ...] = ()
    not_finite: int = 0
    change: float | None = None
    steady: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes on one device.

    Attributes:
        arguments: the executable's arguments, by the compiler; None when it does not tell.
        results: its results.
        aliased: results that take the place of donated arguments.
        temporaries: the most that it needs beside them.
        peak: most bytes in use at once, as the backend counted on its fullest device; None when it
            does not count.
        peak_is_bound: `peak` was reached before this program ran, so its own is not above it.
    """

    arguments: int | None = None
    results: int | None = None
    aliased: int | None = None
    temporaries: int | None = None
    peak: int | None = None
    peak_is_bound: bool = False


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """What one of several processes measured of an execution.

    Attributes:
        compile_seconds: how long XLA took in it.
        step_seconds: how long each step took, until its own devices were ready.
        peak: most bytes in use at once on the fullest of its devices; None when nobody counts.
    """

    compile_seconds: float | None
    step_seconds: tuple[float, ...]
    peak: int | None


@dataclass(frozen=True)
class Execution:
    """One program run under one partitioner.

    Attributes:
        partitioner: whose.
        failure: why it could not be compiled or run; empty when it was.
        hint: what to do about the failure.
        refused: JAX does not lower the program under this partitioner at all.
        arrays: the arguments that jit kept, then the results.
        outputs: the results of the first step on the host, flat, each as the blocks that this
            process holds, one where it holds all of it; None where one can't be fetched.
        differences: what came of comparing `outputs` with one device, flat, block by block; None
            for a result that was not compared.
        compile_seconds: how long XLA took.
        step_seconds: how long each step took after the warm-up, until all results were there.
        memory: what it needs on one device.
        notes: what else is worth knowing.
        parts: what each process measured, in order, once their runs are put together; empty for one
            process alone.
    """

    partitioner: Partitioner
    failure: str = ""
    hint: str = ""
    refused: bool = False
    arrays: tuple[ExecutedArray, ...] = ()
    outputs: tuple[tuple[HostBlock, ...] | None, ...] = field(default=(), repr=False, compare=False)
    differences: tuple[tuple[BlockDifference, ...] | None, ...] = ()
    compile_seconds: float | None = None
    step_seconds: tuple[float, ...] = ()
    memory: DeviceMemory = DeviceMemory()
    notes: tuple[Remark, ...] = ()
    parts: tuple[ProcessTimes, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherOnOneDevice:
    """A result that the program computes otherwise on a mesh of one device.

    Attributes:
        index: which result.
        error: norm of the difference over the norm of what it is on one device.
        ratio: how many times as large all of it is here, where that is one number; None else.
        by_change: whether both are of what the step changes in its argument, not of all of it.
        is_noise: whether it is rounding noise, of which that says nothing.
    """

    index: int
    error: float
    ratio: float | None
    by_change: bool = False
    is_noise: bool = False

    __document__ = ("index", "error", "ratio", "by_change")


@dataclass(frozen=True, slots=True)
class Idle:
    """Parts of a program that did not run on its values: what is compared says nothing of them.

    Attributes:
        loops: how many loops whose number of iterations the values decide.
        branches: how many branches that the values choose.
        is_known: whether they were seen not to run; otherwise all that there are.
    """

    loops: int = 0
    branches: int = 0
    is_known: bool = True


@dataclass(frozen=True)
class Trained:
    """Steps in a row, each on what the one before returned.

    Attributes:
        partitioner: whose; None on one device.
        failure: why the steps were not run, or not all of them; empty when they were.
        numbers: of each step, the scalar results that are watched.
        step_seconds: how long each step took.
        arrays: the results of the last step as they were on the devices; none on one device.
    """

    partitioner: Partitioner | None
    failure: str = ""
    numbers: tuple[tuple[float, ...], ...] = ()
    step_seconds: tuple[float, ...] = ()
    arrays: tuple[ExecutedArray, ...] = ()


ReferenceKind: TypeAlias = Literal["function", "unsharded", "one-device mesh", "mapped"]
"""What results are compared with. ``function``: a function of the user's; ``unsharded``: the jaxpr
without shardings, which says nothing of a mesh; ``mapped``: it has shard_maps, whose bodies are
mapped over as many blocks as there are devices, so that what they do wrong is done there, too;
``one-device mesh``: likewise, and on a mesh of one device the program computes the same."""


@dataclass(frozen=True)
class Reference:
    """The same step on one device.

    Attributes:
        outputs: its results on the host, flat; empty when it could not be run.
        before: of each result the argument that it may be the next value of, on the host; None
            where there is none; empty where that was not asked.
        moved: of each result how far it moves there when its arguments are rounded otherwise, the
            norm of that, less what is the argument's own of its next value; empty where that was
            not looked at.
        jumps: of each result how far each of its elements moves there at most, likewise; empty
            where that was not looked at.
        failure: why there is none; empty when there is.
        compute_dtypes: floating point dtypes (MLIR's names) that the step computes in on this
            platform, `tf32` included where matrix products of f32 are rounded to it.
        draws_random_numbers: whether the step does.
        threefry_partitionable: JAX's setting `jax_threefry_partitionable`, as it was.
        step_seconds: how long one step took after a warm-up; None when it was not run.
        has_shard_maps: whether there are bodies of shard_maps in the program.
        function: the name of the user's function that computes the results, `ref.py:dense`; empty
            where they are the program's own.
        alone: what the program's results are on a mesh of one device, flat, as ``outputs``.
        alone_failure: why a program with shard_maps was not compared with itself on a mesh of one
            device; empty where it was.
        others: the results that it computes otherwise there.
        noise: those that are rounding noise, of which that is not known; flat indices.
        is_simplified: whether XLA simplified the algebra of the step, as it does by default. It
            does not where the results are the program's only without that: then the simplifier is
            wrong.
    """

    outputs: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    before: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    moved: tuple[float, ...] = ()
    jumps: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    failure: str = ""
    compute_dtypes: tuple[str, ...] = ()
    draws_random_numbers: bool = False
    threefry_partitionable: bool = True
    step_seconds: float | None = None
    has_shard_maps: bool = False
    function: str = ""
    alone: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    alone_failure: str = ""
    others: tuple[OtherOnOneDevice, ...] = ()
    noise: tuple[int, ...] = ()
    is_simplified: bool = True

    def before_result(self, index: int) -> Any:
        """The argument that a result may be the next value of; None for none."""
        return self.before[index] if index < len(self.before) else None

    def jumps_of(self, index: int) -> Any:
        """How far each element of a result moves; None where that was not looked at."""
        return self.jumps[index] if index < len(self.jumps) else None

    def moved_result(self, index: int) -> float:
        """How far rounding the arguments moves a result; 0 where that was not looked at."""
        return self.moved[index] if index < len(self.moved) else 0.0

    @property
    def kind(self) -> ReferenceKind:
        """What results are compared with."""
        if self.function:
            return "function"
        if not self.has_shard_maps:
            return "unsharded"
        return "mapped" if self.alone_failure or self.others else "one-device mesh"

    @property
    def is_independent(self) -> bool:
        """Whether it would not do what the program does wrong on a mesh."""
        return self.kind in ("function", "unsharded")

    __document__ = (
        "kind",
        "function",
        "is_independent",
        "alone_failure",
        "others",
        "noise",
        "failure",
        "compute_dtypes",
        "step_seconds",
        "draws_random_numbers",
        "threefry_partitionable",
        "is_simplified",
    )


@dataclass(frozen=True, slots=True)
class Process:
    """One of the processes that ran a program together.

    Attributes:
        number: JAX's index of it.
        host: name of the machine that it ran on.
        pid: its process id there.
        devices: positions of its devices among those that the program was compiled for.
    """

    number: int
    host: str
    pid: int
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InputSource:
    """Where the values that a program ran on came from.

    Attributes:
        kind: the program's own ``inputs``, the arrays among its arguments, or values that were
            made.
        seed: of made ones the seed.
        deviation: the standard deviation of made floats.
        unsigned: how many arguments of made floats have no sign, as a root or logarithm is taken of
            them.
    """

    kind: Literal["inputs", "arguments", "made"]
    seed: int = 0
    deviation: float = 0.0
    unsigned: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """The devices that a program ran on.

    Attributes:
        platform: `cpu`, `gpu` or `tpu`.
        kind: what the devices are, as the backend names them.
        devices: how many the program was run on, each named as JAX prints it.
        available: how many there are.
        virtual: whether they are threads of one CPU.
        processes: the processes that they belong to; empty for one process alone.
    """

    platform: str
    kind: str
    devices: tuple[str, ...]
    available: int
    virtual: bool
    processes: tuple[Process, ...] = ()

    __document__ = ("platform", "kind", "devices", "available", "virtual")
