"""The parts of the document of what `run` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.run.judge import Verdict
from sdyscope.facts.execution import Extent
from sdyscope.facts.program import Partitioner
from sdyscope.words.sharding import ShardingDocument


@dataclass(frozen=True, slots=True)
class MachineDocument:
    """The devices that it ran on.

    Attributes:
      platform: `cpu`, `gpu` or `tpu`.
      kind: what the devices are, as the backend names them.
      devices: each one that was used, as JAX prints it, in the order of the mesh's positions.
      available: how many of the kind there are.
      virtual: whether they are threads of one CPU.
    """

    platform: str
    kind: str
    devices: tuple[str, ...]
    available: int
    virtual: bool


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds a step, after the warm-up.

    Attributes:
      steps: how many were timed.
      median: their median.
      least: the fastest.
      most: the slowest.
    """

    steps: int
    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Checked:
    """What one process checked and measured under one partitioner.

    Attributes:
      shards: how many shards of its devices were compared with a placement.
      differing: how many of them are another block than they were to be.
      compile_seconds: how long XLA took in it; null when it did not run.
      step: how long a step takes until its own devices are ready; null likewise.
      peak: most bytes in use at once on the fullest of its devices, as the backend counts; null
        when it does not count, as on CPU.
    """

    shards: int
    differing: int
    compile_seconds: float | None
    step: StepTime | None
    peak: int | None


@dataclass(frozen=True, slots=True)
class ProcessDocument:
    """One of several processes that ran the program together.

    Attributes:
      number: JAX's index of it.
      host: name of the machine that it ran on.
      pid: its process id there.
      devices: its devices, as JAX prints them.
      checked: what it checked and measured, by partitioner.
    """

    number: int
    host: str
    pid: int
    devices: tuple[str, ...]
    checked: dict[Partitioner, Checked]


@dataclass(frozen=True, slots=True)
class MemoryDocument:
    """Bytes on one device.

    Attributes:
      arguments: of the executable's arguments, as the compiler tells; null when it does not.
      results: of its results, likewise.
      aliased: of results that take the place of donated arguments, likewise.
      temporaries: what it needs beside them, likewise.
      held_arguments: of the buffers that hold arguments on the fullest device, with what pads them.
      held_results: of those that hold results, likewise.
      peak: most bytes in use at once on the fullest device, as the backend counts; null when it
        does not count, as on CPU.
      peak_is_bound: the peak was reached before this partitioner's run, whose own is not above it.
    """

    arguments: int | None
    results: int | None
    aliased: int | None
    temporaries: int | None
    held_arguments: int
    held_results: int
    peak: int | None
    peak_is_bound: bool


@dataclass(frozen=True, slots=True)
class ResultError:
    """One result against the same step on one device.

    Attributes:
      path: pytree path of the result.
      index: its flat index.
      dtype: MLIR element type.
      coarsest: the dtype whose rounding is allowed for; empty where results must be the same.
      error: norm of the difference over the norm of the result on one device; null where just one
        of the two is not finite, and where all of the result should be zero and is not.
      tolerance: the largest error allowed; 0 for the very same.
      within: whether it is.
      max_abs: largest absolute difference of an element; null where just one is not finite.
      where: position of that element; null when there is no difference.
      device: position of the first device that holds it; null when that is not known.
      found: the element there; empty when there is no difference.
      expected: the element on one device; likewise.
    """

    path: str
    index: int
    dtype: str
    coarsest: str
    error: float
    tolerance: float
    within: bool
    max_abs: float
    where: tuple[int, ...] | None
    device: int | None
    found: str
    expected: str


@dataclass(frozen=True, slots=True)
class PartitionerRun:
    """The program under one partitioner.

    Attributes:
      partitioner: whose.
      ran: whether it was executed.
      failure: why it was not; empty when it was.
      passed: it ran, every shard is where it was to be, copies are the same, and every result is
        within its tolerance.
      compile_seconds: how long XLA took; null when it did not run.
      step: how long a step takes; null likewise.
      memory: what it needs on one device; null likewise.
      arrays: arguments and results that were on the devices.
      shards: how many shards of them were compared with a placement.
      differing: how many of the arrays are not where they were to be.
      errors: every result that was compared, in order.
    """

    partitioner: Partitioner
    ran: bool
    failure: str
    passed: bool
    compile_seconds: float | None
    step: StepTime | None
    memory: MemoryDocument | None
    arrays: int
    shards: int
    differing: int
    errors: tuple[ResultError, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of an array, and the devices that hold it.

    Attributes:
      index: first element, and the one after the last, in each dimension of the whole array.
      shape: shape of the buffers.
      devices: positions of the devices that hold it.
    """

    index: tuple[Extent, ...]
    shape: tuple[int, ...]
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Executed:
    """One array as it was on the devices under one partitioner.

    Attributes:
      verdict: `as placed`: every shard is the block that was asked for; `chosen`: the compiler was
        free, in some dimension at least; `differs`; `dropped`: jit left the argument out; `not
        run`: there is no array.
      placement: where it is, in words; empty where there is no array.
      short: that as a PartitionSpec where it can be one.
      blocks: what the devices hold.
    """

    verdict: Verdict
    placement: str
    short: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class RunTensor:
    """One argument or result.

    Attributes:
      kind: which.
      path: pytree path.
      index: flat index.
      shape: global shape.
      dtype: MLIR element type.
      donated: whether the caller donated this argument's buffer.
      requested: what was asked for; null when it was left to the compiler.
      executed: what was there, by partitioner.
    """

    kind: Literal["argument", "result"]
    path: str
    index: int
    shape: tuple[int, ...]
    dtype: str
    donated: bool
    requested: ShardingDocument | None
    executed: dict[Partitioner, Executed]


@dataclass(frozen=True, slots=True)
class ReferenceDocument:
    """The same step on one device.

    Attributes:
      failure: why it could not be run; empty when it was.
      compute_dtypes: floating point dtypes that the step computes in on this platform.
      step_seconds: how long a step takes there.
      draws_random_numbers: whether the step does.
      threefry_partitionable: JAX's setting `jax_threefry_partitionable`.
    """

    failure: str
    compute_dtypes: tuple[str, ...]
    step_seconds: float | None
    draws_random_numbers: bool
    threefry_partitionable: bool
