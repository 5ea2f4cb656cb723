"""What `memory` found, as a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.memory.memory import Group, Held, HeldKind, Option, Origin
from sdyscope.analysis.memory.memory import Memory as Found
from sdyscope.analysis.memory.text import TextMemory
from sdyscope.errors import CompilerError
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.inspection import Inspection
from sdyscope.views.check import FindingDocument, finding_document
from sdyscope.views.failure import Failure, failures
from sdyscope.words.mesh import MeshDocument, mesh_documents


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """An argument or a result, and what a device holds of it.

    Attributes:
      name: its pytree path.
      kind: what it is.
      group: the name of its group.
      number: which parameter or result of the compiled module it is.
      shape: shape of the whole tensor.
      dtype: MLIR element type.
      origin: who says where it is: `requested`, `lowered`, `compiled`, or `unknown`.
      sharding: where it is, as a PartitionSpec; empty where none can say it.
      copies: how many devices hold the same block; null where nobody says.
      bytes: bytes of the whole tensor.
      bytes_per_device: bytes of the block that a device holds.
      local_shape: shape of that block, as compiled.
      layout: order of its dimensions and its tiles, as XLA writes them.
      stored: bytes that it takes on a device.
      replicated: bytes a device that it would not hold if there were one copy.
      donated: whether the argument's buffer is donated.
      shares: the result or argument that lies in the same buffer; empty for none.
      options: single dimensions that could be cut along a free axis.
      best: the PartitionSpec with all that can be cut along free axes; empty when nothing can.
      saves: bytes a device that `best` saves.
    """

    name: str
    kind: HeldKind
    group: str
    number: int
    shape: tuple[int, ...]
    dtype: str
    origin: Origin
    sharding: str
    copies: int | None
    bytes: int
    bytes_per_device: int
    local_shape: tuple[int, ...]
    layout: str
    stored: int
    replicated: int
    donated: bool
    shares: str
    options: tuple[Option, ...]
    best: str
    saves: int


@dataclass(frozen=True, slots=True)
class CompiledMemory:
    """What a device holds of the program that one partitioner made.

    Attributes:
      partitioner: the partitioner.
      hardware: what it was compiled for.
      device_kind: what the compiler calls such a device.
      devices: how many there are.
      compile_seconds: how long the compile took.
      compiler: what the compiler says; null where it says nothing.
      total: what a device needs by that: arguments, results that are not aliased, temporaries and
        code.
      equal: whether our bytes of arguments and results are the compiler's; null where it says none.
      results_table: bytes of the compiler's table of the results' addresses.
      groups: the groups, arguments first.
      tensors: every argument and result.
      savings: names of what could be sharded further, what saves most first.
      rematerializations: the partitioner's words on reshardings by full rematerialization.
      findings: what was found.
      notes: what else there is to know.
    """

    partitioner: Partitioner
    hardware: str
    device_kind: str
    devices: int
    compile_seconds: float
    compiler: MemoryAnalysis | None
    total: int | None
    equal: bool | None
    results_table: int
    groups: tuple[Group, ...]
    tensors: tuple[HeldTensor, ...]
    savings: tuple[str, ...]
    rematerializations: tuple[str, ...]
    findings: tuple[FindingDocument, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The document of `sdyscope memory --json`.

    Attributes:
      schema: name and version of this form.
      name: the program's name, or the module's.
      jax_version: version of JAX that lowered and compiled it; empty for a compiled program's text.
      meshes: the meshes that its shardings are on.
      passed: whether there is nothing worse than a note.
      compiled: one for each partitioner.
      failures: for which partitioners there is no module, and why.
      file: the file with a compiled program's text; null for what was compiled here.
      text: what that text says; null for what was compiled here.
    """

    schema: Literal["sdyscope.memory/1"] = "sdyscope.memory/1"
    name: str
    jax_version: str
    meshes: tuple[MeshDocument, ...]
    passed: bool
    compiled: tuple[CompiledMemory, ...]
    failures: tuple[Failure, ...]
    file: str | None = None
    text: TextMemory | None = None


def document(inspection: Inspection, on: Hardware | None = None) -> Memory:
    """Compiles a program under each of its partitioners, and says what a device holds.

    Raises:
      CompilerError: it can't be compiled under any of them.
      TargetError: it can't be compiled for this hardware.
    """
    lowered = inspection.lowered
    refused = dict(inspection.failures)
    found = []
    inspection.compile_together(on)
    for partitioner in lowered:
        try:
            found.append(inspection.memory(partitioner, on))
        except CompilerError as error:
            refused[partitioner] = error
    if not found:
        raise next(iter(refused.values()))
    return Memory(
        name=inspection.name,
        jax_version=next(iter(lowered.values())).jax_version,
        meshes=mesh_documents(inspection.meshes),
        passed=all(one.passed for one in found),
        compiled=tuple(map(_compiled, found)),
        failures=failures(refused),
    )


def _compiled(found: Found) -> CompiledMemory:
    made = found.compiled
    return CompiledMemory(
        partitioner=made.partitioner,
        hardware=str(made.hardware),
        device_kind=made.device_kind,
        devices=made.devices,
        compile_seconds=made.compile_seconds,
        compiler=made.memory,
        total=None if made.memory is None else made.memory.total,
        equal=found.equal,
        results_table=found.table,
        groups=found.groups,
        tensors=tuple(map(_tensor, found.held)),
        savings=tuple(one.name for one in found.under_sharded),
        rematerializations=made.rematerializations,
        findings=tuple(map(finding_document, found.findings)),
        notes=made.notes,
    )


def _tensor(held: Held) -> HeldTensor:
    return HeldTensor(
        name=held.name,
        kind=held.kind,
        group=held.group,
        number=held.number,
        shape=held.shape,
        dtype=held.dtype,
        origin=held.origin,
        sharding="" if held.sharding is None else str(held.sharding),
        copies=held.copies,
        bytes=held.bytes,
        bytes_per_device=held.bytes_per_device,
        local_shape=held.stored.shape,
        layout=held.stored.layout,
        stored=held.stored.bytes,
        replicated=held.replicated,
        donated=held.donated,
        shares=held.shares,
        options=held.options,
        best="" if held.best is None else str(held.best),
        saves=held.saves,
    )
