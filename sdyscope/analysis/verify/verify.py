"""Audits a program: compiles it once more, reads XLA's dumps by other means, and compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache

from sdyscope.analysis.account import account_of
from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.memory.memory import memory_of
from sdyscope.analysis.verify.audited import (
    AuditedStage,
    Disagreement,
    NotVerified,
    ProgramAudit,
    VerifiedStage,
    VerifyDocument,
)
from sdyscope.analysis.verify.causes import causes_stage
from sdyscope.analysis.verify.compiled import collectives_stage, key_of, memory_stage
from sdyscope.analysis.verify.ops import ops_stage
from sdyscope.analysis.verify.required import required_stage
from sdyscope.analysis.verify.values import lowered_stage, propagated_stage
from sdyscope.errors import CompilerError, SdyscopeError
from sdyscope.facts.account import Account
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import VIRTUAL_CPUS
from sdyscope.staged import Staged, compiled_already
from sdyscope.stages import compat
from sdyscope.stages.audit.audit import audit
from sdyscope.stages.audit.facts import Audited
from sdyscope.stages.compiled.compiler import asks_python, partitions, python_partitions
from sdyscope.stages.propagated.what_if import Wish

#: Of how many sets of annotations it is tried whether collectives go without them.
CAUSES = 4


def verify_document(
    target: str,
    programs: Iterable[ProgramAudit],
    not_verified: Iterable[NotVerified],
    accounts: Mapping[str, Account],
) -> VerifyDocument:
    """The document of audits."""
    versions = compat.versions()
    return VerifyDocument(
        target=target,
        jax=versions.jax,
        jaxlib=versions.jaxlib,
        programs=tuple(programs),
        not_verified=tuple(not_verified),
        accounts={name: account for name, account in accounts.items() if account},
    )


def verify(program: Staged, causes: int = CAUSES) -> VerifyDocument:
    """Audits a program under each of its partitioners; see ``Inspection.verify``."""
    if program.is_compiled:
        assert isinstance(program.source, Compiled)
        raise compiled_already(program.source)
    audits = []
    not_verified = [
        NotVerified(program.name, partitioner, error.message)
        for partitioner, error in program.failures.items()
    ]
    for partitioner in program.lowered:
        try:
            audits.append(_audited(program, partitioner, causes))
        except SdyscopeError as error:
            not_verified.append(NotVerified(program.name, partitioner, error.message))
    accounts = {program.name: account_of(program)}
    return verify_document(program.file or program.name, audits, not_verified, accounts)


def _audited(program: Staged, partitioner: Partitioner, causes: int) -> ProgramAudit:
    lowered, graph = program.lowered[partitioner], program.graph(partitioner)
    devices = partitions(lowered, graph)
    if asks_python(graph):
        raise python_partitions()
    read = audit(lowered, partitioner, devices, moves=causes > 0)
    if read.refused:
        raise CompilerError(f"XLA refuses it: {read.refused}")
    stages = [lowered_stage(graph, read)]
    # Where the ops are not the same, nothing is known to be what has the same name.
    are_same = stages[0].compared == len(read.ops)
    if are_same:
        stages.append(
            _answered(
                "propagated",
                lambda: propagated_stage(graph, program.propagated(partitioner), read),
            )
        )

    @cache
    def collectives() -> Collectives:
        return collectives_under(program, partitioner, VIRTUAL_CPUS, origins=causes > 0)

    stages.append(_answered("collectives", lambda: collectives_stage(collectives(), read)))
    stages.append(
        _answered(
            "memory", lambda: memory_stage(memory_of(program, partitioner, VIRTUAL_CPUS), read)
        )
    )

    if causes and are_same:
        stages.append(_answered("ops", lambda: ops_stage(collectives(), read, graph)))
        stages.append(_answered("required", lambda: required_stage(collectives(), read, graph)))

    def changed(names: frozenset[str]) -> Staged:
        return program.with_wishes([Wish(name, unspecified=True) for name in sorted(names)])

    def without(names: frozenset[str]) -> Audited:
        return audit(changed(names).lowered[partitioner], partitioner, devices)

    def explained(names: frozenset[str]) -> Collectives:
        return collectives_under(changed(names), partitioner, VIRTUAL_CPUS, origins=True)

    if causes:
        stages.append(
            _answered(
                "causes",
                lambda: causes_stage(
                    collectives(), read, program.tensors, without, explained, causes
                ),
            )
        )
    again: list[Audited] = []

    def read_again() -> Audited:
        if not again:
            again.append(audit(lowered, partitioner, devices))
        return again[0]

    checked = tuple(
        _stable(stage, read, read_again) if stage.disagreements else stage for stage in stages
    )
    return ProgramAudit(program.name, partitioner, devices, checked)


def _answered(stage: VerifiedStage, make: Callable[[], AuditedStage]) -> AuditedStage:
    """A stage, compared; that there is no answer to what XLA compiles is a disagreement."""
    try:
        return make()
    except SdyscopeError as error:
        return AuditedStage(stage, 1, (Disagreement(stage, error.message, "XLA compiles it"),))


def _stable(stage: AuditedStage, read: Audited, read_again: Callable[[], Audited]) -> AuditedStage:
    """Marks disagreements of a stage in which XLA's two compiles of one module differ too."""
    again = read_again()
    if stage.stage == "propagated":
        differ = _placed(read) != _placed(again)
    elif stage.stage == "collectives":
        differ = Counter(map(key_of, read.collectives)) != Counter(map(key_of, again.collectives))
    else:
        differ = stage.stage == "memory" and read.memory != again.memory
    if not differ:
        return stage
    marked = tuple(replace(disagreement, unstable=True) for disagreement in stage.disagreements)
    return replace(stage, disagreements=marked)


def _placed(read: Audited) -> tuple[object, ...]:
    return read.layouts, read.values, read.carried, read.arguments, read.results
