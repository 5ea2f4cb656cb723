"""Looks at one target: all that is configured for it, on one inspection."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from sdyscope.analysis.budgets import (
    Budgets,
    Spent,
    communication_spent,
    memory_spent,
    replication_spent,
)
from sdyscope.analysis.globs import glob
from sdyscope.analysis.lint import RULES, LogicalAxes, NotRun, linted
from sdyscope.ci.config import Check, Config, Ignore, Target
from sdyscope.ci.golden import golden
from sdyscope.ci.outcome import CheckOutcome, Found, Outcome, Trouble
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.findings import Finding
from sdyscope.inspection import Inspection
from sdyscope.mesh import Mesh
from sdyscope.mesh_config.mesh_shape import unknown_axis
from sdyscope.program import Partitioner
from sdyscope.snapshots.words import mesh_words
from sdyscope.words import counted

__all__ = ["judge"]


@dataclass(frozen=True)
class _Done:
    """What one check found."""

    words: str
    found: tuple[Found, ...] = ()
    spent: tuple[Spent, ...] = ()
    snapshot: str = ""
    not_run: tuple[NotRun, ...] = ()


def judge(
    config: Config,
    target: Target,
    inspection: Inspection,
    logical: LogicalAxes | None = None,
    no_logical: str = "",
) -> Outcome:
    """Does all that is configured for a target; a check that can't be done stops no other.

    A program is compiled once under each partitioner at most, whatever is asked of it.

    Args:
        config: the whole configuration.
        target: the target.
        inspection: its program.
        logical: the logical axes of its tensors, which its mesh configuration maps.
        no_logical: why there are none, a sentence.
    """
    does: dict[Check, Callable[[], _Done]] = {
        "check": lambda: _check(target, inspection),
        "lint": lambda: _lint(target, inspection, logical, no_logical),
        "snapshot": lambda: _snapshot(target, inspection),
        "budgets": lambda: _budgets(config, target, inspection),
    }
    outcomes: list[CheckOutcome] = []
    found: list[Found] = []
    spent: tuple[Spent, ...] = ()
    snapshot = ""
    for check in target.checks:
        began = time.perf_counter()
        trouble = None
        try:
            done = does[check]()
        except SdyscopeError as failure:
            done, trouble = _Done(""), Trouble.of(failure)
        not_run = tuple(f"{one.rule}: {one.reason}" for one in done.not_run)
        seconds = time.perf_counter() - began
        outcomes.append(CheckOutcome(check, done.words, seconds, trouble, not_run))
        found += done.found
        spent, snapshot = spent + done.spent, done.snapshot or snapshot
    found, used = _ignored(config, target, _joined(found, inspection))
    is_whole = not any(one.trouble for one in outcomes)
    if is_whole:
        found += unused_ignores(target.ignores, used)
    general = (number for number, one in enumerate(config.ignores) if one in used)
    return Outcome(
        name=target.name,
        program=inspection.name,
        jax=version("jax"),
        mesh="; ".join(mesh_words(mesh) for mesh in _meshes(inspection)),
        partitioners=tuple(inspection.lowered),
        hardware=_hardware(inspection, target) if is_whole else "",
        checks=tuple(outcomes),
        found=tuple(found),
        spent=spent,
        used_ignores=tuple(general),
        snapshot=snapshot,
    )


def _meshes(inspection: Inspection) -> list[Mesh]:
    return [mesh for mesh in dict.fromkeys(inspection.meshes.values()) if mesh.axes]


def _hardware(inspection: Inspection, target: Target) -> str:
    """What was compiled for; empty where nothing was."""
    is_compiled = target.budgets is not None or (target.lint and target.compiles)
    return str(inspection.partitioned(None, target.on).hardware) if is_compiled else ""


def _found(check: Check, findings: Iterable[Finding], target: Target) -> tuple[Found, ...]:
    return tuple(Found(check, one, one.source or target.place, target.place) for one in findings)


def _check(target: Target, inspection: Inspection) -> _Done:
    done = inspection.check()
    words = (
        counted(done.compared, "comparison") if done.compared else counted(done.tensors, "tensor")
    )
    return _Done(words, _found("check", done.findings, target))


def _lint(
    target: Target, inspection: Inspection, logical: LogicalAxes | None, no_logical: str
) -> _Done:
    done = linted(
        inspection,
        compiled=target.compiles,
        on=target.on,
        logical=logical,
        no_logical=no_logical,
    )
    not_run = {one.rule: one for one in done.not_run if one.applies}
    words = counted(len(done.rules), "rule") + (f", {len(not_run):,} not run" if not_run else "")
    # What check says is said once.
    told = {_alike(one) for one in inspection.check().findings} if target.check else set()
    findings = [one for one in done.findings if _alike(one) not in told]
    return _Done(words, _found("lint", findings, target), not_run=tuple(not_run.values()))


def _alike(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.tensor, finding.kind, finding.message, finding.source


def _snapshot(target: Target, inspection: Inspection) -> _Done:
    assert target.snapshot is not None
    done = golden(inspection, target, target.snapshot)
    return _Done(done.words, done.found, snapshot=done.text)


def _budgets(config: Config, target: Target, inspection: Inspection) -> _Done:
    budgets = target.budgets
    assert budgets is not None
    _check_axes(config, target, budgets, inspection)
    spent: list[Spent] = []
    for partitioner in inspection.lowered:
        spent += _spent(budgets, inspection, partitioner, target.on)
    found: list[Found] = []
    for each in spent:
        written = config.limit_place(target, each.limit)
        found += (Found("budgets", one, one.source or written, written) for one in each.findings)
    return _Done(counted(len(spent), "limit"), tuple(found), tuple(spent))


def _spent(
    budgets: Budgets, inspection: Inspection, partitioner: Partitioner, on: str | None
) -> Iterator[Spent]:
    if budgets.limits_communication:
        collectives = inspection.collectives(partitioner, on, origins=False)
        found = list(communication_spent(budgets, collectives, partitioner))
        if any(one.findings for one in found):
            # Why they are there is only looked for where there are too many.
            collectives = inspection.collectives(partitioner, on)
            found = list(communication_spent(budgets, collectives, partitioner))
        yield from found
    if budgets.limits_memory:
        memory = inspection.memory(partitioner, on)
        yield from replication_spent(budgets, memory.held, partitioner)
        yield from memory_spent(budgets, memory.partitioned.memory, memory.held, partitioner)


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


def _joined(found: Sequence[Found], inspection: Inspection) -> list[Found]:
    """What is found alike under every partitioner, once."""
    under: dict[Found, list[Found]] = {}
    for one in found:
        alike = replace(one, finding=replace(one.finding, partitioner=None))
        under.setdefault(alike, []).append(one)
    made: list[Found] = []
    for alike, members in under.items():
        partitioners = {one.finding.partitioner for one in members}
        everywhere = len(partitioners) > 1 and partitioners >= set(inspection.lowered)
        made += [alike] if everywhere else members
    return made


def _ignored(
    config: Config, target: Target, found: Sequence[Found]
) -> tuple[list[Found], set[Ignore]]:
    """Findings of check and lint with why they are ignored, and the ignores that matched."""
    ignores = (*target.ignores, *config.ignores)
    used: set[Ignore] = set()
    made: list[Found] = []
    for one in found:
        matching = [
            ignore
            for ignore in ignores
            if one.check in ("check", "lint") and _matches(ignore, one.finding)
        ]
        used.update(matching)
        made.append(replace(one, ignored=matching[0].reason) if matching else one)
    return made, used


def _matches(ignore: Ignore, finding: Finding) -> bool:
    if ignore.rule != finding.rule:
        return False
    # By the whole name, or as it is shown: without the program's own, which scopes begin with.
    first, _, rest = finding.tensor.partition("/")
    shown = rest if rest and first.startswith("jit(") else finding.tensor
    pattern = glob(ignore.tensors)
    return any(pattern.fullmatch(name) for name in (finding.tensor, shown))


def unused_ignores(ignores: Iterable[Ignore], used: Container[Ignore]) -> Iterator[Found]:
    """What is ignored and was not found: a list of ignores is not to rot."""
    for one in ignores:
        if one not in used:
            close = [] if one.rule in RULES else difflib.get_close_matches(one.rule, RULES, n=1)
            finding = Finding(
                "unused-ignore",
                "warning",
                f"Nothing was found that is ignored here: {one.rule} of {one.tensors}."
                if one.rule in RULES
                else f"There is no rule {one.rule!r}, so nothing is ignored here.",
                tensor=f"{one.rule} of {one.tensors}",
                kind="ignore",
                hint=f"Did you mean {close[0]!r}?" if close else "Take it out.",
            )
            yield Found("check", finding, one.place, one.place)
