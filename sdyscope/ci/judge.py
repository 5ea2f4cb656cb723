"""Looks at one target: all that is configured for it, on one inspection."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.budgets import (
    Budgets,
    Spent,
    communication_spent,
    memory_spent,
    replication_spent,
)
from sdyscope.analysis.collectives.comms import sent_account
from sdyscope.analysis.naming.globs import glob
from sdyscope.ci.config import Check, Config, Ignore, Target
from sdyscope.ci.document import CheckStatus, CiBudget, CiCheck, CiTarget, Outcome
from sdyscope.ci.golden import golden
from sdyscope.ci.places import PlacedFinding, RepositoryPlaces
from sdyscope.ci.rules import NAMES
from sdyscope.errors import CompilerError, SdyscopeError, TargetError
from sdyscope.facts.account import Account
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.program import Partitioner
from sdyscope.inspection import Inspection
from sdyscope.lint import LogicalAxes, NotRun, linted, rules_left_out
from sdyscope.mesh_config.mesh_shape import unknown_axis
from sdyscope.values.mesh import Mesh
from sdyscope.words import ci as words
from sdyscope.words.counts import counted
from sdyscope.words.findings import Finding, finding_of, rules_text
from sdyscope.words.hardware import hardware_text
from sdyscope.words.mesh import mesh_words_of
from sdyscope.words.places import shown_name


@dataclass(frozen=True)
class Done:
    """One check that was done.

    Attributes:
        words: what was looked at: ``44 comparisons``.
        entries: what was found.
        spent: what of the budgets is used.
        snapshot: the text of the snapshot.
        not_run: rules that were not run.
        seconds: how long it took, with whatever stage was first asked for.
        error: why it could not be done; None where it could.
    """

    words: str = ""
    entries: tuple[PlacedFinding, ...] = ()
    spent: tuple[Spent, ...] = ()
    snapshot: str = ""
    not_run: tuple[NotRun, ...] = ()
    seconds: float = 0.0
    error: SdyscopeError | None = None


def judge(
    config: Config,
    target: Target,
    inspection: Inspection,
    logical: LogicalAxes | None = None,
    no_logical: str = "",
    *,
    updating: bool = False,
) -> Outcome:
    """Does all that is configured for a target; a check that can't be done stops no other.

    A program is compiled once under each partitioner at most, whatever is asked of it.

    Args:
        config: the whole configuration.
        target: the target.
        inspection: its program.
        logical: the logical axes of its tensors, which its mesh configuration maps.
        no_logical: why there are none, a sentence.
        updating: whether golden files are written where they differ.
    """
    does: dict[Check, Callable[[], Done]] = {
        "check": lambda: _check(target, inspection),
        "lint": lambda: _lint(target, inspection, logical, no_logical),
        "snapshot": lambda: _snapshot(target, inspection),
        "budgets": lambda: _budgets(config, target, inspection),
    }
    done: dict[Check, Done] = {}
    for check in target.checks:
        began = time.perf_counter()
        try:
            result = does[check]()
        except SdyscopeError as error:
            result = Done(error=error)
        done[check] = replace(result, seconds=time.perf_counter() - began)
    # Of a compiled program's text there is no other stage that anything could be unknown of.
    account = sent_account(inspection) if inspection.is_compiled else inspection.account
    findings, used = _ignored(
        config, target, [*_joined(done, inspection), *_not_known(target, account, done)]
    )
    is_whole = not any(result.error for result in done.values())
    compiled = _compiled(inspection, target) if is_whole else None
    if is_whole:
        findings += unused_ignores(target.ignores, used)
    looked_at = replace(
        judged(config, target, done, findings, updating=updating),
        program=inspection.name,
        mesh="; ".join(dict.fromkeys(mesh_words_of(inspection.meshes))),
        partitioners=tuple(under for under in inspection.compiled_under if under is not None),
        hardware="" if compiled is None else hardware_text(compiled.hardware, compiled.device_kind),
        compiled_by="" if compiled is None else inspection.compiler_of(compiled) or "",
        account=account,
    )
    general = tuple(number for number, ignore in enumerate(config.ignores) if ignore in used)
    return Outcome(looked_at, general, "".join(result.snapshot for result in done.values()))


def judged(
    config: Config,
    target: Target,
    done: Mapping[Check, Done],
    entries: Iterable[PlacedFinding],
    *,
    updating: bool = False,
) -> CiTarget:
    """What came of the checks of a target, without what is known of its program.

    Args:
        config: the whole configuration.
        target: the target.
        done: what was done, in order.
        entries: what was found, the ignored findings included.
        updating: whether golden files are written where they differ.
    """
    places = RepositoryPlaces(config.file, updating=updating)
    findings = places.findings(entries, target)
    checks = []
    for check, result in done.items():
        own = [finding for finding in findings if finding.check == check]
        status: CheckStatus = "passed"
        if result.error is not None:
            status = "error"
        elif any(each.fails for each in own):
            status = "failed"
        elif own and check == "snapshot" and updating:
            status = "updated"
        error = None if result.error is None else places.error(result.error, target)
        not_run = tuple(f"{each.rule}: {each.reason}" for each in result.not_run)
        checks.append(CiCheck(check, status, result.words, result.seconds, error, not_run))
    statuses = {check.status for check in checks}
    if updating:
        # They are written, and no longer there.
        findings = tuple(finding for finding in findings if finding.check != "snapshot")
    return replace(
        unjudged(config, target),
        status="error"
        if "error" in statuses
        else "failed"
        if any(finding.fails for finding in findings)
        else "passed",
        checks=tuple(checks),
        budgets=tuple(CiBudget.of(each) for result in done.values() for each in result.spent),
        findings=findings,
    )


def unjudged(
    config: Config, target: Target, *, error: SdyscopeError | None = None, skipped: str = ""
) -> CiTarget:
    """A target that was not looked at.

    Args:
        config: the whole configuration.
        target: the target.
        error: why it could not be.
        skipped: why it was not meant to be.
    """
    places = RepositoryPlaces(config.file)
    return CiTarget(
        name=target.name,
        target=target.word,
        status="error" if error is not None else "skipped",
        skipped=skipped,
        error=None if error is None else places.error(error, target),
        program="",
        mesh="",
        partitioners=(),
        hardware="",
        seconds=0.0,
        file=places.path(target.place.file) or target.place.file,
        line=target.place.line,
        configured=target.checks,
        checks=(),
        budgets=(),
        findings=(),
        account=Account(),
    )


def _meshes(inspection: Inspection) -> list[Mesh]:
    return [mesh for mesh in dict.fromkeys(inspection.meshes.values()) if mesh.axes]


def _compiled(inspection: Inspection, target: Target) -> Compiled | None:
    """What was compiled; None where nothing was, or it was refused, as lint says."""
    is_compiled = target.budgets is not None or (target.lint and target.compiles)
    try:
        return inspection.compiled(None, target.on) if is_compiled else None
    except CompilerError:
        return None


def _placed(check: Check, findings: Iterable[Finding], target: Target) -> tuple[PlacedFinding, ...]:
    return tuple(
        PlacedFinding(check, finding, finding.source or target.place, target.place)
        for finding in findings
    )


def _check(target: Target, inspection: Inspection) -> Done:
    done = inspection.check()
    compared = (
        counted(done.compared, "comparison") if done.compared else counted(done.tensors, "tensor")
    )
    return Done(compared, _placed("check", done.findings, target))


def _lint(
    target: Target, inspection: Inspection, logical: LogicalAxes | None, no_logical: str
) -> Done:
    done = linted(
        inspection,
        compiled=target.compiles,
        on=target.on,
        logical=logical,
        no_logical=no_logical,
    )
    not_run = {rule.rule: rule for rule in done.not_run if rule.applies}
    # What check says is said once.
    checked = (
        {_alike(finding) for finding in inspection.check().findings} if target.check else set()
    )
    findings = [finding for finding in done.findings if _alike(finding) not in checked]
    left_out = rules_left_out(done.not_run, is_text=not done.partitioners)
    looked_at = rules_text(len(done.rules), left_out)
    return Done(looked_at, _placed("lint", findings, target), not_run=tuple(not_run.values()))


def _alike(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.tensor, finding.kind, finding.message, finding.source


def _snapshot(target: Target, inspection: Inspection) -> Done:
    assert target.snapshot is not None
    done = golden(inspection, target, target.snapshot)
    return Done(done.words, done.findings, snapshot=done.text)


def _budgets(config: Config, target: Target, inspection: Inspection) -> Done:
    budgets = target.budgets
    assert budgets is not None
    _check_axes(config, target, budgets, inspection)
    spent: list[Spent] = []
    for partitioner in inspection.compiled_under:
        spent += _spent(target, budgets, inspection, partitioner)
    entries: list[PlacedFinding] = []
    for each in spent:
        written = config.limit_place(target, each.limit)
        findings = map(finding_of, each.findings)
        entries += (
            PlacedFinding("budgets", finding, finding.source or written, written)
            for finding in findings
        )
    return Done(counted(len(spent), "limit"), tuple(entries), tuple(spent))


def _spent(
    target: Target, budgets: Budgets, inspection: Inspection, partitioner: Partitioner | None
) -> Iterator[Spent]:
    on, strict = target.on, target.strict
    if budgets.limits_communication:
        collectives = inspection.collectives(partitioner, on, origins=False)
        spent = list(communication_spent(budgets, collectives, partitioner, strict=strict))
        if any(limit.findings for limit in spent):
            # Why they are there is only looked for where there are too many.
            collectives = inspection.collectives(partitioner, on)
            spent = list(communication_spent(budgets, collectives, partitioner, strict=strict))
        yield from spent
    if budgets.limits_memory:
        memory = inspection.memory(partitioner, on)
        yield from replication_spent(budgets, memory.tensors, partitioner)
        yield from memory_spent(budgets, memory.compiled.memory, memory.tensors, partitioner)


def _check_axes(config: Config, target: Target, budgets: Budgets, inspection: Inspection) -> None:
    """Finds an axis that no mesh of the program has: a limit of nothing is always kept."""
    names = list(dict.fromkeys(axis.name for mesh in _meshes(inspection) for axis in mesh.axes))
    for number, limit in enumerate(budgets.communication):
        if limit.axis and limit.axis not in names:
            error = unknown_axis(limit.axis, names)
            place = config.limit_place(target, ("communication", number, "axis"))
            raise TargetError(
                error.message,
                file=place.file,
                line=place.line,
                column=place.column + 1,
                hint=error.hint,
            )


def _joined(done: Mapping[Check, Done], inspection: Inspection) -> list[PlacedFinding]:
    """What is found alike under every partitioner, once."""
    under: dict[PlacedFinding, list[PlacedFinding]] = {}
    for entry in (each for of_check in done.values() for each in of_check.entries):
        alike = replace(entry, finding=replace(entry.finding, partitioner=None))
        under.setdefault(alike, []).append(entry)
    joined: list[PlacedFinding] = []
    for alike, members in under.items():
        partitioners = {member.finding.partitioner for member in members}
        everywhere = len(partitioners) > 1 and partitioners >= set(inspection.compiled_under)
        joined += [alike] if everywhere else members
    return joined


def _not_known(
    target: Target, account: Account, done: Mapping[Check, Done]
) -> Iterator[PlacedFinding]:
    """What is not known of the program, but for what a check found or could not be done for."""
    texts = {entry.finding.found for each in done.values() for entry in each.entries} - {""}
    refused = "\n".join(str(each.error) for each in done.values() if each.error is not None)
    for unknown in account.unknowns:
        if unknown.text in texts or (unknown.kind == "refused" and str(unknown.reason) in refused):
            continue
        finding = words.not_known(unknown, strict=target.strict)
        yield PlacedFinding("check", finding, unknown.source or target.place, target.place)


def _ignored(
    config: Config, target: Target, findings: Sequence[PlacedFinding]
) -> tuple[list[PlacedFinding], set[Ignore]]:
    """Findings of check and lint with why they are ignored, and the ignores that matched."""
    ignores = (*target.ignores, *config.ignores)
    used: set[Ignore] = set()
    entries: list[PlacedFinding] = []
    for entry in findings:
        matching = [
            ignore
            for ignore in ignores
            if entry.check in ("check", "lint") and _matches(ignore, entry.finding)
        ]
        used.update(matching)
        entries.append(replace(entry, ignored=matching[0].reason) if matching else entry)
    return entries, used


def _matches(ignore: Ignore, finding: Finding) -> bool:
    if ignore.rule != finding.rule:
        return False
    # By the whole name, or as it is shown, without the program's own.
    pattern = glob(ignore.tensors)
    return any(pattern.fullmatch(name) for name in (finding.tensor, shown_name(finding.tensor, "")))


def unused_ignores(ignores: Iterable[Ignore], used: Container[Ignore]) -> Iterator[PlacedFinding]:
    """What is ignored and was not found: a list of ignores is not to rot."""
    for ignore in ignores:
        if ignore not in used:
            is_known = ignore.rule in NAMES
            close = [] if is_known else difflib.get_close_matches(ignore.rule, NAMES, n=1)
            finding = words.unused_ignore(
                ignore.rule, ignore.tensors, is_known=is_known, close="".join(close)
            )
            yield PlacedFinding("check", finding, ignore.place, ignore.place)
