"""Bytes a device: by argument group, shared with results, held more than once, and why.

What we count from shardings is compared with what the compiler counted, so that neither has to be
believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.account import account_of
from sdyscope.analysis.memory.donation import dropped_donations, unused_donations, with_shares
from sdyscope.analysis.memory.held import held, held_block, rows_held
from sdyscope.analysis.memory.options import OfHeld, with_options
from sdyscope.analysis.memory.predicted import PredictedMemory, predicted_memory
from sdyscope.analysis.memory.totals import Group as Group
from sdyscope.analysis.memory.totals import bytes_differ, compared, groups
from sdyscope.errors import SdyscopeError
from sdyscope.facts.account import Account
from sdyscope.facts.compiled import Compiled, MemoryAnalysis, OfCompiled
from sdyscope.facts.findings import Observation
from sdyscope.facts.memory import Held as Held
from sdyscope.facts.memory import HeldKind as HeldKind
from sdyscope.facts.memory import Sureness
from sdyscope.facts.over_time import Fit, MemoryOverTime, PeakRemedy, Varied
from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark
from sdyscope.facts.tensors import TensorTable
from sdyscope.facts.zero import TrainingState
from sdyscope.formatters import Summarized, in_place
from sdyscope.hardware.names import Hardware
from sdyscope.staged import Staged
from sdyscope.values.entry_layout import EntryLayout, read_entry_layout
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import FilePath


@dataclass(frozen=True, repr=False)
class Memory(OfCompiled, OfHeld, Summarized):
    """What a device holds of one compiled program.

    Attributes:
        compiled: the compiled program.
        tensors: arguments, then results.
        groups: argument groups, then result groups, in order.
        results_table: bytes of the compiler's table of the results' addresses.
        equal: whether our arguments and results take the bytes that the compiler says; None where
            it does not say.
        findings: donations that were of no use, and bytes that differ.
        partitioner: under which it was compiled; None for a compiled program's text.
        hardware: what it was compiled for; None for a text.
        device_kind: what the compiler calls such a device; empty for a text.
        devices: how many there are.
        compile_seconds: how long the compile took, without machine code where that is not made.
        compiler: what the compiler says; None where it says nothing.
        total: what a device needs by that: arguments, results that are not aliased, temporaries and
            code.
        stored: bytes of arguments, and of results that lie in no argument's buffer.
        savings: names of what could be sharded further, what saves most first.
        rematerializations: the partitioner's words on reshardings by full rematerialization.
        notes: what else there is to know.
    """

    compiled: Compiled
    equal: bool | None
    results_table: int
    groups: tuple[Group, ...]
    tensors: tuple[Held, ...]
    findings: tuple[Observation, ...]

    __document__ = in_place(
        compiled=(
            *("partitioner", "hardware", "device_kind", "devices", "compile_seconds", "compiler"),
            *("total", "stored"),
        ),
        tensors=("tensors", "savings", "rematerializations"),
        findings=("findings", "notes"),
    )

    @property
    def can_offload(self) -> bool:
        """Whether the host's memory is another one than the device's: on CPUs they are one."""
        return self.compiled.platform not in (None, "cpu")

    @property
    def compile_seconds(self) -> float:
        """How long the compile took."""
        return self.compiled.compile_seconds

    @property
    def compiler(self) -> MemoryAnalysis | None:
        """What the compiler says."""
        return self.compiled.memory

    @property
    def total(self) -> int | None:
        """What a device needs, as the compiler says."""
        return None if self.compiler is None else self.compiler.total

    @property
    def rematerializations(self) -> tuple[str, ...]:
        """The partitioner's words on reshardings by full rematerialization."""
        return self.compiled.rematerializations

    @property
    def notes(self) -> tuple[Remark, ...]:
        """What else there is to know."""
        return self.compiled.notes

    @property
    def sureness(self) -> Sureness:
        """How sure the figures are, and who placed the tensors."""
        origins = Counter(tensor.origin for tensor in self.tensors)
        return Sureness(
            self.is_text,
            self.equal,
            origins["unknown"],
            origins["compiled"],
            len(self.rematerializations),
        )

    @property
    def passed(self) -> bool:
        """Whether nothing was found that is worse than a note."""
        return all(finding.severity == "note" for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDocument:
    """The document of `sdyscope memory --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name, or the module's.
        file: the file that it was read from; null for a program.
        jax_version: version of JAX that lowered and compiled it; empty for the text of a compiled
            program.
        meshes: the meshes that its shardings are on.
        passed: whether there is nothing worse than a note.
        compiled: one for each partitioner; none where nothing is compiled.
        predicted: what propagation comes to, where that was asked for in place of a compile.
        over_time: memory over a step of each compiled program, where that was asked for.
        remedies: changes that may lower the peak, where they were tried.
        fits: whether each compiled program fits, where a limit was given.
        varied: how far a size of the program can go, where that was asked for.
        training: what a train step keeps of its parameters, and would by each ZeRO stage, where
            that was asked for.
        account: what is not known.
    """

    schema: Literal["sdyscope.memory/2"] = "sdyscope.memory/2"
    name: str
    file: FilePath | None
    jax_version: str
    meshes: dict[str, Mesh]
    passed: bool
    compiled: tuple[Memory, ...]
    predicted: PredictedMemory | None = None
    over_time: tuple[MemoryOverTime, ...] = ()
    remedies: tuple[PeakRemedy, ...] = ()
    fits: tuple[Fit, ...] = ()
    varied: Varied | None = None
    training: TrainingState | None = None
    account: Account


def memory_document(program: Staged, on: Hardware | str | None = None) -> MemoryDocument:
    """Compiles a program under each of its partitioners, and says what a device holds.

    Args:
        program: the program.
        on: what to compile for, as ``Staged.compiled`` takes it.

    Raises:
        CompilerError: it can't be compiled under any of them.
        TargetError: it can't be compiled for this hardware.
    """
    memories, _ = program.under_each(lambda partitioner: memory_of(program, partitioner, on), on)
    return MemoryDocument(
        name=program.name,
        file=program.file,
        jax_version=program.jax_version,
        meshes=program.meshes,
        passed=all(of_partitioner.passed for of_partitioner in memories),
        compiled=memories,
        account=account_of(program),
    )


def predicted_document(program: Staged, partitioner: Partitioner | None = None) -> MemoryDocument:
    """What a device holds by propagation alone; nothing is compiled.

    Raises:
        CompilerError: the module can't be propagated.
    """
    prediction = predicted_memory(program, partitioner)
    return MemoryDocument(
        name=program.name,
        file=program.file,
        jax_version=program.jax_version,
        meshes=program.meshes,
        passed=True,
        compiled=(),
        predicted=prediction,
        account=account_of(program),
    )


def memory_of(
    program: Staged, partitioner: Partitioner | None = None, on: Hardware | str | None = None
) -> Memory:
    """What a device holds of a program, counted once; see ``Inspection.memory``."""
    compiled = program.compiled(partitioner, on)

    def counted() -> Memory:
        if compiled.partitioner is None:
            return memory(None, compiled, compiled.mesh)
        return memory(program.tensors, compiled, program.only_mesh(compiled.partitioner))

    which = (compiled.partitioner, compiled.hardware, compiled.recorded_by, compiled.notes)
    return program.once((memory, *which), counted)


def memory(table: TensorTable | None, compiled: Compiled, mesh: Mesh | None = None) -> Memory:
    """Counts what a device holds.

    Args:
        table: the program's tensors; None for a compiled program's text, which only has blocks.
        compiled: the compiled program.
        mesh: what shardings are named on where they do not name a mesh themselves.

    Raises:
        CompilerError: the compiled module does not say how it stores its parameters.
    """
    try:
        layout = read_entry_layout(compiled.hlo)
    except SdyscopeError as error:
        error.file = error.file or (None if compiled.path is None else str(compiled.path))
        raise
    if table is None or compiled.partitioner is None:
        every = list(_blocks(compiled, layout))
    else:
        every = [
            held(row, kind, number, layout, compiled, mesh)
            for kind, number, row in rows_held(table, compiled.partitioner)
        ]
    every = with_shares(list(map(with_options, every)), layout)
    equal, results_table = compared(layout, every, compiled)
    findings = [
        *unused_donations(every, compiled.partitioner),
        *(() if table is None else dropped_donations(table)),
        *([] if equal is not False else [bytes_differ(every, compiled)]),
    ]
    return Memory(compiled, equal, results_table, groups(every), tuple(every), tuple(findings))


def _blocks(compiled: Compiled, layout: EntryLayout) -> Iterator[Held]:
    """Arguments and results of a compiled program's text; arguments have names there."""
    module = compiled.module
    names = {
        number: parameter.op_name
        for number, parameter in module.computations[module.entry].parameters.items()
        if not layout.parameters_are_tuple
    }
    for number, stored in enumerate(layout.parameters):
        yield held_block("argument", number, names.get(number, ""), stored, compiled)
    for number, stored in enumerate(layout.results):
        yield held_block("result", number, "", stored, compiled)
