"""What a step communicates under each partitioner: the document of `sdyscope comms`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from sdyscope.analysis.account import account_of
from sdyscope.analysis.collectives.account import collectives_unknowns
from sdyscope.analysis.collectives.compiled import explained, read_collectives
from sdyscope.analysis.collectives.predicted import PredictedCollectives, Predictor
from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.naming.scopes import is_differentiated
from sdyscope.errors import CompilerError, SdyscopeError
from sdyscope.facts.account import Account, Unknown
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.program import Partitioner
from sdyscope.facts.schedule import Schedule
from sdyscope.hardware.names import Hardware
from sdyscope.staged import Staged
from sdyscope.values.source import FilePath


@dataclass(frozen=True, slots=True, kw_only=True)
class CommsDocument:
    """The document of `sdyscope comms --json`.

    Bytes are those of bandwidth-optimal algorithms, counted from the program, not measured.

    Attributes:
        schema: name and version of this form.
        name: the program's name, or the module's.
        file: the file that it was read from; null for a program.
        hardware: what was compiled for, such as `cpu:8`; null for a file of HLO, and for a
            prediction.
        device_kind: what the compiler calls such a device; null likewise.
        programs: one a partitioner.
        account: what is not known.
        schedules: a step over time, for each program; empty unless it was asked for.
        compiled_by: the JAX that compiled it, such as `JAX 0.10.2`; null likewise.
    """

    schema: Literal["sdyscope.comms/2"] = "sdyscope.comms/2"
    name: str
    file: FilePath | None
    hardware: Hardware | None
    device_kind: str | None
    programs: tuple[Collectives, ...]
    account: Account
    schedules: tuple[Schedule, ...] = ()
    compiled_by: str | None = None


def comms_document(program: Staged, on: Hardware | str | None = None) -> CommsDocument:
    """Compiles a program under each of its partitioners, and lists what a step communicates.

    Args:
        program: the program.
        on: what to compile for, as ``Staged.compiled`` takes it.

    Raises:
        CompilerError: it can't be compiled under any of them.
        TargetError: it can't be compiled for this hardware.
    """
    with program.compiling(on) as begun:
        # What is compiled takes longest; origins are of what is propagated meanwhile.
        for lowered, partitioner in () if _sends_nothing(begun) else begun:
            mesh = lowered.only_mesh(partitioner)
            if mesh is not None and mesh.size > 1:
                with suppress(SdyscopeError):  # ``explained`` says why.
                    lowered.propagated(partitioner, explained=True)
        compiled, _ = program.under_each(lambda partitioner: program.compiled(partitioner, on), on)
        programs = [collectives_under(program, each.partitioner, on) for each in compiled]
    return _document(program, programs, compiled[0])


def _sends_nothing(programs: Sequence[tuple[Staged, Partitioner]]) -> bool:
    """Whether a step sends nothing, as Shardy's reshards have it: then nothing has an origin.

    What is differentiated sums gradients, and is not asked.
    """
    program = next((each for each, partitioner in programs if partitioner == "shardy"), None)
    if program is None:
        return False
    try:
        if is_differentiated(op.scope for op in program.graph("shardy").ops):
            return False
        predicted = predicted_collectives(program).collectives
        return not (predicted.collectives or predicted.is_partly_predicted)
    except SdyscopeError:  # XLA may well compile it.
        return False


def predicted_document(program: Staged) -> CommsDocument:
    """Predicts what a step communicates from Shardy's reshards; nothing is compiled.

    Raises:
        CompilerError: the module has no shardings that Shardy propagates, or it refuses it.
    """
    return _document(program, [predicted_collectives(program).collectives])


def _document(
    program: Staged, programs: Sequence[Collectives], compiled: Compiled | None = None
) -> CommsDocument:
    unknowns = Account.of(
        unknown for collectives in programs for unknown in collectives_unknowns(collectives)
    )
    return CommsDocument(
        name=program.name,
        file=program.file,
        hardware=None if compiled is None else compiled.hardware,
        device_kind=None if compiled is None else compiled.device_kind or None,
        programs=tuple(map(_largest_first, programs)),
        account=account_of(program) + unknowns,
        compiled_by=None if compiled is None else program.compiler_of(compiled),
    )


def _largest_first(collectives: Collectives) -> Collectives:
    return replace(
        collectives,
        collectives=tuple(sorted(collectives.collectives, key=lambda collective: -collective.sent)),
    )


def collectives_under(
    program: Staged,
    partitioner: Partitioner | None = None,
    on: Hardware | str | None = None,
    *,
    origins: bool = True,
) -> Collectives:
    """Every collective of a program that is compiled; see ``Inspection.collectives``.

    They are read once, and their origins are looked for once.
    """
    compiled = program.compiled(partitioner, on)
    which = (compiled.partitioner, compiled.hardware, compiled.recorded_by)
    read = program.once(
        (read_collectives, *which),
        lambda: read_collectives(compiled, program.meshes.values()),
    )
    if not origins:
        return explained(read, compiled)
    return program.once(
        (explained, *which), lambda: explained(read, compiled, program.lowered_of(compiled))
    )


def sent_account(program: Staged, on: Hardware | str | None = None) -> Account:
    """What is not known of a program and of its collectives, as far as it compiles."""
    unknowns: list[Unknown] = []
    for partitioner in program.compiled_under:
        with suppress(CompilerError):  # ``account_of`` says why.
            sent = collectives_under(program, partitioner, on, origins=False)
            unknowns += collectives_unknowns(sent)
    return account_of(program) + Account.of(unknowns)


def predicted_collectives(
    program: Staged, partitioner: Partitioner = "shardy", *, on_cpu: bool = False
) -> PredictedCollectives:
    """The collectives without a compile; see ``Inspection.predicted_collectives``."""
    chosen = program.chosen(partitioner)
    predicted = Predictor(program.lowered[chosen], program.graph(chosen)).predict(on_cpu=on_cpu)
    doubt = program.propagated_by_another(chosen)
    if doubt is None:
        return predicted
    notes = (doubt, *predicted.collectives.notes)
    return replace(predicted, collectives=replace(predicted.collectives, notes=notes))
