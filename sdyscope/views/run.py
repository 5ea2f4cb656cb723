"""What `run` found, as a document."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.numerics import Numeric
from sdyscope.analysis.run import ExecutedTensor, Verdict
from sdyscope.analysis.run import Run as Ran
from sdyscope.convert import in_words, to_named_sharding
from sdyscope.errors import ConversionError
from sdyscope.execution import ExecutedArray, Execution, Extent, Process
from sdyscope.mesh import Mesh
from sdyscope.placement import Placement
from sdyscope.program import Partitioner
from sdyscope.views.check import FindingDocument, finding_document
from sdyscope.views.meshes import MeshDocument, mesh_document
from sdyscope.views.shardings import (
    ShardingDocument,
    requested_document,
)


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
class Checked:
    """What one process checked under one partitioner.

    Attributes:
      shards: how many shards of its devices were compared with a placement.
      differing: how many of them are another block than they were to be.
    """

    shards: int
    differing: int


@dataclass(frozen=True, slots=True)
class ProcessDocument:
    """One of several processes that ran the program together.

    Attributes:
      number: JAX's index of it.
      host: name of the machine that it ran on.
      pid: its process id there.
      devices: its devices, as JAX prints them.
      checked: what it checked, by partitioner.
    """

    number: int
    host: str
    pid: int
    devices: tuple[str, ...]
    checked: dict[Partitioner, Checked]


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
class MemoryDocument:
    """Bytes on one device.

    Attributes:
      arguments: of the executable's arguments, as the compiler tells; null when it does not.
      results: of its results, likewise.
      aliased: of results that take the place of donated arguments, likewise.
      temporaries: what it needs beside them, likewise.
      peak: most bytes in use at once on the fullest device, as the backend counts; null when it
        does not count, as on CPU.
      peak_is_bound: the peak was reached before this partitioner's run, whose own is not above it.
    """

    arguments: int | None
    results: int | None
    aliased: int | None
    temporaries: int | None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The document of `sdyscope run --json`.

    Attributes:
      schema: name and version of this form.
      name: the program's name.
      passed: whether there is nothing worse than a note.
      machine: what it ran on.
      processes: the processes that ran it together; empty for one alone.
      mesh: the mesh of its arguments and results; null for none or several.
      inputs: where the values came from, in words.
      partitioners: what was measured under each.
      reference: the same step on one device.
      tensors: arguments and results.
      findings: what was found, errors first.
      notes: what else there is to know.
    """

    schema: Literal["sdyscope.run/1"] = "sdyscope.run/1"
    name: str
    passed: bool
    machine: MachineDocument
    processes: tuple[ProcessDocument, ...]
    mesh: MeshDocument | None
    inputs: str
    partitioners: tuple[PartitionerRun, ...]
    reference: ReferenceDocument
    tensors: tuple[RunTensor, ...]
    findings: tuple[FindingDocument, ...]
    notes: tuple[str, ...]


_SEVERITIES = ("error", "warning", "note")


def document(ran: Ran) -> Run:
    """The document of what `Inspection.run` found."""
    machine, reference = ran.machine, ran.reference
    findings = sorted(ran.findings, key=lambda finding: _SEVERITIES.index(finding.severity))
    return Run(
        name=ran.name,
        passed=ran.passed,
        machine=MachineDocument(
            machine.platform, machine.kind, machine.devices, machine.available, machine.virtual
        ),
        processes=tuple(_process(process, ran) for process in machine.processes),
        mesh=None if ran.mesh is None else mesh_document("", ran.mesh),
        inputs=ran.inputs,
        partitioners=tuple(_partitioner(ran, one) for one in ran.executions.values()),
        reference=ReferenceDocument(
            reference.failure,
            reference.compute_dtypes,
            reference.step_seconds,
            reference.draws_random_numbers,
            reference.threefry_partitionable,
        ),
        tensors=tuple(_tensor(row, ran) for row in ran.tensors),
        findings=tuple(map(finding_document, findings)),
        notes=ran.notes,
    )


def _process(process: Process, ran: Ran) -> ProcessDocument:
    own = set(process.devices)
    checked = {
        partitioner: Checked(
            sum(shard.device in own for array in execution.arrays for shard in array.shards),
            sum(device in own for row in ran.tensors for device in row.wrong.get(partitioner, ())),
        )
        for partitioner, execution in ran.executions.items()
    }
    names = tuple(ran.machine.devices[device] for device in process.devices)
    return ProcessDocument(process.number, process.host, process.pid, names, checked)


def _partitioner(ran: Ran, execution: Execution) -> PartitionerRun:
    partitioner = execution.partitioner
    errors = tuple(map(_error, ran.numerics.get(partitioner, ())))
    differing = sum(row.verdicts[partitioner] == "differs" for row in ran.tensors)
    times, memory = execution.step_seconds, execution.memory
    return PartitionerRun(
        partitioner,
        not execution.failure,
        execution.failure,
        not execution.failure
        and all(f.severity == "note" or f.partitioner != partitioner for f in ran.findings),
        execution.compile_seconds,
        StepTime(len(times), statistics.median(times), min(times), max(times)) if times else None,
        None
        if execution.failure
        else MemoryDocument(
            memory.arguments,
            memory.results,
            memory.aliased,
            memory.temporaries,
            memory.peak,
            memory.peak_is_bound,
        ),
        len(execution.arrays),
        sum(len(array.shards) for array in execution.arrays),
        differing,
        errors,
    )


def _error(found: Numeric) -> ResultError:
    return ResultError(
        found.path,
        found.index,
        found.dtype,
        found.coarsest,
        found.error,
        found.tolerance,
        found.within,
        found.max_abs,
        found.where,
    )


def _tensor(row: ExecutedTensor, ran: Ran) -> RunTensor:
    tensor, asked = row.tensor, row.tensor.requested
    assert asked is not None
    assert asked.index is not None
    assert tensor.kind in ("argument", "result")
    mesh = ran.mesh if asked.sharding is None else asked.sharding.mesh
    return RunTensor(
        "argument" if tensor.kind == "argument" else "result",
        tensor.path,
        asked.index,
        asked.shape,
        asked.dtype,
        asked.donated,
        requested_document(asked),
        {
            partitioner: Executed(
                verdict,
                *_placed(row.placements.get(partitioner), mesh),
                _blocks(row.arrays.get(partitioner)),
            )
            for partitioner, verdict in row.verdicts.items()
        },
    )


def _placed(place: Placement | None, mesh: Mesh | None) -> tuple[str, str]:
    """A placement in words, and as short as it goes."""
    if place is None:
        return "", ""
    words = in_words(place, mesh)
    if mesh is None or mesh.size != place.num_devices:
        return words, words
    try:
        return words, str(to_named_sharding(place, len(place.dims), mesh).spec)
    except ConversionError:
        return words, words  # The blocks follow no whole axes.


def _blocks(array: ExecutedArray | None) -> tuple[Block, ...]:
    """The shards of an array, those that are the same block together."""
    devices: dict[tuple[tuple[Extent, ...], tuple[int, ...]], list[int]] = {}
    for shard in array.shards if array is not None else ():
        devices.setdefault((shard.index, shard.shape), []).append(shard.device)
    return tuple(Block(index, shape, tuple(held)) for (index, shape), held in devices.items())
