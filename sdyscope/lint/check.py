"""The check of a program: what was requested against what was lowered."""

from __future__ import annotations

from sdyscope.analysis import check as checking
from sdyscope.analysis.account import account_of
from sdyscope.facts.findings import SEVERITIES, Observation
from sdyscope.staged import Staged
from sdyscope.words.findings import Check, finding_of


def checked(program: Staged) -> checking.CheckResult:
    """Requested against lowered, and the partitioners against each other."""
    return checking.check(program.tensors, _of_modules(program))


def check(program: Staged) -> Check:
    """The same as a document, errors first."""
    result = checked(program)
    findings = sorted(
        map(finding_of, result.observations),
        key=lambda finding: SEVERITIES.index(finding.severity),
    )
    return Check(
        name=program.name,
        passed=all(finding.severity == "note" for finding in findings),
        partitioners=tuple(program.lowered),
        tensors=result.tensors,
        compared=result.compared,
        agreed=result.agreed,
        findings=tuple(findings),
        account=account_of(program),
    )


def _of_modules(program: Staged) -> tuple[Observation, ...]:
    """What there is to say about whole modules, before any tensor is looked at."""
    observations = list(checking.not_lowerable(program.failures, alone=not program.lowered))
    for partitioner, lowered in program.lowered.items():
        observations += checking.fallback(partitioner, lowered.written_for)
        annotations = program.annotations(partitioner)
        observations += checking.not_understood(
            partitioner, program.graph(partitioner), annotations
        )
    return tuple(observations)
