"""What `run` found, as a document."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sdyscope.analysis.run.judge import ExecutedTensor
from sdyscope.analysis.run.judge import Run as Ran
from sdyscope.analysis.run.numerics import Numeric
from sdyscope.errors import ConversionError
from sdyscope.facts.account import Account
from sdyscope.facts.execution import ExecutedArray, Execution, Extent, Part, Process
from sdyscope.values.convert import to_named_sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.views.run_parts import (
    Block,
    Checked,
    Executed,
    MachineDocument,
    MemoryDocument,
    PartitionerRun,
    ProcessDocument,
    ReferenceDocument,
    ResultError,
    RunTensor,
    StepTime,
)
from sdyscope.words.findings import SEVERITIES, Finding, told
from sdyscope.words.mesh import MeshDocument, mesh_document
from sdyscope.words.sharding import placement_text, requested_document


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
      account: what is not known.
    """

    schema: Literal["sdyscope.run/2"] = "sdyscope.run/2"
    name: str
    passed: bool
    machine: MachineDocument
    processes: tuple[ProcessDocument, ...]
    mesh: MeshDocument | None
    inputs: str
    partitioners: tuple[PartitionerRun, ...]
    reference: ReferenceDocument
    tensors: tuple[RunTensor, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    account: Account = field(default_factory=Account)


def document(ran: Ran, account: Account | None = None) -> Run:
    """The document of what `Inspection.run` found, and of what is not known of the program."""
    machine, reference = ran.machine, ran.reference
    findings = sorted(ran.findings, key=lambda finding: SEVERITIES.index(finding.severity))
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
        findings=tuple(map(told, findings)),
        notes=ran.notes,
        account=account or Account(),
    )


def _process(process: Process, ran: Ran) -> ProcessDocument:
    own, checked = set(process.devices), {}
    for partitioner, execution in ran.executions.items():
        # There are none where it did not run.
        part = execution.parts[process.number] if execution.parts else Part(None, (), None)
        checked[partitioner] = Checked(
            sum(shard.device in own for array in execution.arrays for shard in array.shards),
            sum(device in own for row in ran.tensors for device in row.wrong.get(partitioner, ())),
            part.compile_seconds,
            _step_time(part.step_seconds),
            part.peak,
        )
    names = tuple(ran.machine.devices[device] for device in process.devices)
    return ProcessDocument(process.number, process.host, process.pid, names, checked)


def _partitioner(ran: Ran, execution: Execution) -> PartitionerRun:
    partitioner = execution.partitioner
    errors = tuple(map(_error, ran.numerics.get(partitioner, ())))
    differing = sum(row.verdicts[partitioner] == "differs" for row in ran.tensors)
    memory = execution.memory
    return PartitionerRun(
        partitioner,
        not execution.failure,
        execution.failure,
        not execution.failure
        and all(f.severity == "note" or f.partitioner != partitioner for f in ran.findings),
        execution.compile_seconds,
        _step_time(execution.step_seconds),
        None
        if execution.failure
        else MemoryDocument(
            memory.arguments,
            memory.results,
            memory.aliased,
            memory.temporaries,
            _held(execution.arrays, "argument"),
            _held(execution.arrays, "result"),
            memory.peak,
            memory.peak_is_bound,
        ),
        len(execution.arrays),
        sum(len(array.shards) for array in execution.arrays),
        differing,
        errors,
    )


def _held(arrays: Sequence[ExecutedArray], kind: str) -> int:
    """Bytes of all buffers of a kind on the device that has the most."""
    held: Counter[int] = Counter()
    for array in arrays:
        if array.kind == kind:
            held.update({shard.device: shard.bytes for shard in array.shards})
    return max(held.values(), default=0)


def _step_time(times: Sequence[float]) -> StepTime | None:
    if not times:
        return None
    return StepTime(len(times), statistics.median(times), min(times), max(times))


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
        found.device,
        *(found.pair or ("", "")),
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
    words = placement_text(place, mesh)
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
