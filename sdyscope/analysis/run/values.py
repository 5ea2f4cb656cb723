"""What a run found: the machine, what was measured, where every array was, and how near it is."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from sdyscope.analysis.run.numerics import Numeric
from sdyscope.facts.account import Account
from sdyscope.facts.execution import (
    DeviceMemory,
    ExecutedArray,
    Execution,
    Extent,
    InputSource,
    Machine,
    Process,
    ProcessTimes,
    Reference,
)
from sdyscope.facts.findings import DependsOnMesh, Inside, Observation, OtherNumbers
from sdyscope.facts.measured import Measured
from sdyscope.facts.program import Partitioner, RequestedTensor
from sdyscope.facts.remarks import Remark
from sdyscope.facts.sharded import Sharded, requested_sharding
from sdyscope.facts.tensors import Tensor
from sdyscope.facts.training import Training
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement

Verdict: TypeAlias = Literal["as placed", "chosen", "differs", "dropped", "not run"]
"""``as placed``: every shard is the block that was asked for; ``chosen``: the compiler was free, in
some dimension at least; ``dropped``: jit left the argument out; ``not run``: there is no array."""


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

    @classmethod
    def of(cls, seconds: Sequence[float]) -> StepTime | None:
        """Of each step that was timed; None without any."""
        if not seconds:
            return None
        return cls(len(seconds), statistics.median(seconds), min(seconds), max(seconds))


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What one process checked and measured under one partitioner.

    Attributes:
        shards: how many shards of its devices were compared with a placement.
        differing: how many of them are another block than they were to be.
        compile_seconds: how long XLA took in it; None when it did not run.
        step: how long a step takes until its own devices are ready; None likewise.
        peak: most bytes in use at once on the fullest of its devices, as the backend counts; None
            when it does not count, as on CPU.
    """

    shards: int
    differing: int
    compile_seconds: float | None
    step: StepTime | None
    peak: int | None


@dataclass(frozen=True, slots=True)
class ProcessRun:
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
    checked: dict[Partitioner, ProcessResult]


@dataclass(frozen=True, slots=True)
class PartitionerRun:
    """The program under one partitioner.

    Attributes:
        partitioner: whose.
        ran: whether it was executed.
        failure: why it was not; empty when it was.
        passed: it ran, every shard is where it was to be, replicas are the same, and every result
            is within its tolerance.
        compile_seconds: how long XLA took; None when it did not run.
        step: how long a step takes; None likewise.
        memory: what it needs on one device; None likewise.
        held_arguments: bytes of the buffers that hold arguments on the fullest device, with what
            pads them.
        held_results: of those that hold results, likewise.
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
    memory: DeviceMemory | None
    held_arguments: int
    held_results: int
    arrays: int
    shards: int
    differing: int
    errors: tuple[Numeric, ...]


@dataclass(frozen=True, slots=True)
class MeshComparison:
    """The program on one of several meshes, under one partitioner.

    Attributes:
        failure: why it did not run; empty when it did.
        results: how many results were compared.
        differing: how many of them are further off than rounding explains.
        worst: the result that comes nearest to its tolerance, or exceeds it most; None where none
            was compared.
        step: how long a step takes; None when it did not run.
        noise: paths of the results that differ by rounding noise: they are not compared.
    """

    failure: str
    results: int
    differing: int
    worst: Numeric | None
    step: StepTime | None
    noise: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeshRun:
    """The program on one of several meshes, on the same values.

    Attributes:
        mesh: the mesh.
        devices: how many devices it has.
        is_base: whether the others are compared with it.
        failure: why it was not run at all; empty when it was.
        compared: what came of it, by partitioner.
    """

    mesh: Mesh
    devices: int
    is_base: bool
    failure: str
    compared: dict[Partitioner, MeshComparison]

    @property
    def differs(self) -> bool:
        """Whether some result differs by more than rounding."""
        return any(comparison.differing for comparison in self.compared.values())


@dataclass(frozen=True, slots=True)
class HeldBlock:
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
        verdict: `as placed`: every shard is the block that was asked for; `chosen`: the compiler
            was free, in some dimension at least; `differs`; `dropped`: jit left the argument out;
            `not run`: there is no array.
        sharding: where it is; None where there is no array.
        blocks: what the devices hold.
    """

    verdict: Verdict
    sharding: Sharded | None
    blocks: tuple[HeldBlock, ...]


@dataclass(frozen=True)
class ExecutedTensor:
    """One argument or result, under each partitioner.

    Attributes:
        tensor: its row in the table.
        kind: argument or result.
        path: pytree path.
        index: flat index.
        shape: global shape.
        dtype: MLIR element type.
        donated: whether the caller donated this argument's buffer.
        requested: what was asked for; None when it was left to the compiler.
        executed: what was there, by partitioner.
        arrays: what was on the devices.
        placements: that, as a placement; a partitioner is absent when JAX's sharding has none.
        verdicts: whether it is where it was to be.
        wrong: the devices that hold another block than they were to.
        mesh: the mesh to name axes of.
    """

    tensor: Tensor
    arrays: Mapping[Partitioner, ExecutedArray]
    placements: Mapping[Partitioner, Placement]
    verdicts: Mapping[Partitioner, Verdict]
    wrong: Mapping[Partitioner, tuple[int, ...]]
    mesh: Mesh | None = None

    __document__ = (
        *("kind", "path", "index", "shape"),
        *("dtype", "donated", "requested", "executed"),
    )

    @property
    def asked(self) -> RequestedTensor:
        """The argument or result as the program has it."""
        assert self.tensor.requested is not None
        return self.tensor.requested

    @property
    def kind(self) -> Literal["argument", "result"]:
        """Argument or result."""
        return "argument" if self.tensor.kind == "argument" else "result"

    @property
    def path(self) -> str:
        """Pytree path."""
        return self.tensor.path

    @property
    def index(self) -> int:
        """Flat index."""
        return self.tensor.index or 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return self.asked.shape

    @property
    def dtype(self) -> str:
        """MLIR element type."""
        return self.asked.dtype

    @property
    def donated(self) -> bool:
        """Whether the caller donated this argument's buffer."""
        return self.asked.donated

    @property
    def requested(self) -> Sharded | None:
        """What was asked for."""
        return requested_sharding(self.asked)

    @cached_property
    def executed(self) -> dict[Partitioner, Executed]:
        """What was there."""
        return {
            partitioner: Executed(
                verdict, self._sharding(partitioner), _blocks(self.arrays.get(partitioner))
            )
            for partitioner, verdict in self.verdicts.items()
        }

    def _sharding(self, partitioner: Partitioner) -> Sharded | None:
        place = self.placements.get(partitioner)
        if place is None:
            return None
        return Sharded(None, self.arrays[partitioner].shape, self.dtype, place, self.mesh)


def _blocks(array: ExecutedArray | None) -> tuple[HeldBlock, ...]:
    """The shards of an array, those that are the same block together."""
    devices: dict[tuple[tuple[Extent, ...], tuple[int, ...]], list[int]] = {}
    for shard in array.shards if array is not None else ():
        devices.setdefault((shard.index, shard.shape), []).append(shard.device)
    return tuple(HeldBlock(index, shape, tuple(held)) for (index, shape), held in devices.items())


@dataclass(frozen=True)
class Run:
    """What `run` found: the document of `sdyscope run --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name.
        passed: whether there is nothing worse than a note.
        machine: what it ran on.
        processes: the processes that ran it together; empty for one alone.
        mesh: the mesh of its arguments and results; None for none or several.
        inputs: where the values came from.
        partitioners: what was measured under each.
        executions: that as it was measured, by partitioner.
        reference: the same step on one device.
        tensors: arguments and results.
        numerics: by partitioner, every result that both have.
        meshes: the program on several meshes; empty where it was run on its own alone.
        measured: what each op took under each partitioner, where that was asked for.
        training: steps in a row; None where none were asked for.
        inside: for a result that differs, the first value inside that does, or why it is not known.
        findings: what was found, errors first.
        notes: what else the runs say.
        account: what is not known of the program.
    """

    name: str
    machine: Machine
    mesh: Mesh | None
    inputs: InputSource
    tensors: tuple[ExecutedTensor, ...]
    executions: Mapping[Partitioner, Execution]
    reference: Reference
    numerics: Mapping[Partitioner, tuple[Numeric, ...]]
    findings: tuple[Observation, ...]
    account: Account = field(default_factory=Account)
    meshes: tuple[MeshRun, ...] = ()
    measured: tuple[Measured, ...] = ()
    training: Training | None = None
    schema: Literal["sdyscope.run/2"] = "sdyscope.run/2"

    __document__ = (
        "schema",
        "name",
        "passed",
        "machine",
        "processes",
        "mesh",
        "inputs",
        "partitioners",
        "reference",
        "tensors",
        "meshes",
        "measured",
        "training",
        "inside",
        "findings",
        "notes",
        "account",
    )

    @property
    def depends_on_mesh(self) -> bool:
        """Whether what it computes is wrong on one mesh or another, not only different."""
        return any(
            finding.rule == "depends-on-mesh" and finding.severity == "error"
            for finding in self.findings
        )

    @property
    def inside(self) -> tuple[Inside, ...]:
        """For a result that differs, the first value inside that does, or why it is not known."""
        facts = (finding.fact for finding in self.findings)
        return tuple(
            fact.inside
            for fact in facts
            if isinstance(fact, DependsOnMesh | OtherNumbers) and fact.inside is not None
        )

    @property
    def passed(self) -> bool:
        """Whether there is nothing worse than a note."""
        return all(finding.severity == "note" for finding in self.findings)

    @property
    def notes(self) -> tuple[Remark, ...]:
        """What else the runs say, each once."""
        every = (note for execution in self.executions.values() for note in execution.notes)
        return tuple(dict.fromkeys(every))

    @cached_property
    def processes(self) -> tuple[ProcessRun, ...]:
        """The processes that ran it together."""
        return tuple(map(self._process, self.machine.processes))

    @cached_property
    def partitioners(self) -> tuple[PartitionerRun, ...]:
        """What was measured under each."""
        return tuple(map(self._partitioner, self.executions.values()))

    def _process(self, process: Process) -> ProcessRun:
        own, checked = set(process.devices), {}
        for partitioner, execution in self.executions.items():
            # There are none where it did not run.
            part = (
                execution.parts[process.number] if execution.parts else ProcessTimes(None, (), None)
            )
            checked[partitioner] = ProcessResult(
                sum(shard.device in own for array in execution.arrays for shard in array.shards),
                sum(
                    device in own
                    for row in self.tensors
                    for device in row.wrong.get(partitioner, ())
                ),
                part.compile_seconds,
                StepTime.of(part.step_seconds),
                part.peak,
            )
        names = tuple(self.machine.devices[device] for device in process.devices)
        return ProcessRun(process.number, process.host, process.pid, names, checked)

    def _partitioner(self, execution: Execution) -> PartitionerRun:
        partitioner, ran = execution.partitioner, not execution.failure
        mine = [finding for finding in self.findings if finding.partitioner == partitioner]
        return PartitionerRun(
            partitioner,
            ran,
            execution.failure,
            ran and all(finding.severity == "note" for finding in mine),
            execution.compile_seconds,
            StepTime.of(execution.step_seconds),
            execution.memory if ran else None,
            _held(execution.arrays, "argument"),
            _held(execution.arrays, "result"),
            len(execution.arrays),
            sum(len(array.shards) for array in execution.arrays),
            sum(row.verdicts[partitioner] == "differs" for row in self.tensors),
            self.numerics.get(partitioner, ()),
        )


def _held(arrays: Sequence[ExecutedArray], kind: str) -> int:
    """Bytes of all buffers of a kind on the device that has the most."""
    held: Counter[int] = Counter()
    for array in arrays:
        if array.kind == kind:
            held.update({shard.device: shard.bytes for shard in array.shards})
    return max(held.values(), default=0)
