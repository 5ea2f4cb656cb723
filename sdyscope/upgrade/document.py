"""What `upgrade` found: each version, and each compared with the one before it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from sdyscope.analysis.budgets import (
    Budgets,
    Spent,
    communication_spent,
    memory_spent,
    replication_spent,
)
from sdyscope.analysis.diff.pairing import PairCandidate, paired
from sdyscope.analysis.diff.stages import (
    ComparedStages,
    FigureChange,
    compared,
    figure_changes,
)
from sdyscope.analysis.figures import Figures
from sdyscope.ci.document import CiBudget
from sdyscope.environments.environment import Environment
from sdyscope.errors import TargetError
from sdyscope.facts.account import Account
from sdyscope.facts.program import Versions
from sdyscope.facts.recompiles import Recompile
from sdyscope.facts.remarks import Remark
from sdyscope.facts.versions import PackageChange
from sdyscope.formatters import in_place
from sdyscope.upgrade.bisected import Bisection, VersionAccount, version_accounts
from sdyscope.upgrade.carried import Carried, CarriedProgram
from sdyscope.values.source import PathWords
from sdyscope.words.findings import Finding, finding_of

_Views: TypeAlias = tuple[tuple[str, str, str], ...] | str


@dataclass(frozen=True)
class Looked:
    """One version, as it was looked at.

    Attributes:
        label: what to call it: `JAX 0.12.0.1`.
        environment: where; None where it could not be made.
        carried: its programs; None where there are none.
        failure: what went wrong, a sentence; empty where nothing did.
        status: exit status of the script; None of a TARGET, and where it was not run.
    """

    label: str
    environment: Environment | None = None
    carried: Carried | None = None
    failure: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class SideProgram:
    """One program of a version.

    Attributes:
        name: what it is called.
        figures: its figures, by name.
        failure: why there are none; empty where there are.
        budgets: how much of each limit it takes.
        over: what exceeds a limit, and what of a limit is not known.
        account: what is not known of it.
    """

    name: str
    figures: Figures
    failure: str = ""
    budgets: tuple[CiBudget, ...] = ()
    over: tuple[Finding, ...] = ()
    account: Account = field(default_factory=Account)


@dataclass(frozen=True, slots=True)
class UpgradeSide:
    """One version.

    Attributes:
        label: what it is called.
        versions: its JAX; null where there is no environment.
        python: version of its Python; null likewise.
        plugins: versions of JAX's plugins there.
        status: exit status of the script; null of a TARGET, and where it was not run.
        failure: what went wrong; empty where nothing did.
        programs: its programs.
        recompiles: functions that were compiled again in the run.
        problems: what could not be recorded.
    """

    label: str
    versions: Versions | None
    python: str | None
    plugins: Mapping[str, str]
    status: int | None
    failure: str
    programs: tuple[SideProgram, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    problems: tuple[Remark | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unpaired:
    """A program without a partner.

    Attributes:
        name: what it is called.
        side: the version that has it.
    """

    name: str
    side: str


@dataclass(frozen=True)
class Step:
    """A version compared with the one before it.

    Attributes:
        a: the version before.
        b: the version.
        same: whether nothing differs.
        worse: whether something got worse.
        programs: the programs of both.
        unpaired: programs that only one of them has.
        recompiles: how many more functions are compiled again in the second; negative for fewer.
        failed: what fails in the second alone, sentences.
        packages: packages besides JAX that are others, since nothing pins them.
    """

    a: str
    b: str
    programs: tuple[ComparedStages, ...]
    unpaired: tuple[Unpaired, ...]
    recompiles: int
    failed: tuple[str, ...]
    packages: tuple[PackageChange, ...] = ()
    excused: Mapping[str, frozenset[str]] = field(default_factory=dict)
    views: Mapping[str, tuple[_Views, _Views]] = field(default_factory=dict)

    __document__ = in_place(b=("b", "same", "worse"), excused=(), views=())

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return (
            all(program.same for program in self.programs)
            and not self.unpaired
            and not self.recompiles
            and not self.failed
        )

    @property
    def worse(self) -> bool:
        """Whether something got worse."""
        return (
            bool(self.failed)
            or self.recompiles > 0
            or any(program.fails_now or self.worsened(program) for program in self.programs)
        )

    def worsened(self, program: ComparedStages) -> tuple[FigureChange, ...]:
        """The figures of a program that got worse; not those that a budget allows to."""
        excused = self.excused.get(program.name, frozenset())
        return tuple(
            change
            for change in program.changes
            if change.verdict == "worse" and change.figure not in excused
        )


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """The document of `sdyscope upgrade --json`.

    Attributes:
        schema: name and version of this form.
        target: what was looked at: a TARGET, or a command.
        passed: whether nothing got worse, no budget is exceeded, and every version could be looked
            at.
        exit_status: 0, 1 where something got worse, 2 where a version could not be looked at, or
            nothing could be bisected.
        sides: the versions, in the order in which they were named.
        steps: each version that could be looked at, compared with the one before it.
        bisection: the release that changed something; null where that was not asked for, or could
            not be looked for.
        bisection_missing: why it could not be looked for; empty otherwise.
    """

    schema: Literal["sdyscope.upgrade/1"] = "sdyscope.upgrade/1"
    target: PathWords
    sides: tuple[UpgradeSide, ...]
    steps: tuple[Step, ...]
    bisection: Bisection | None = None
    bisection_missing: str = ""

    __document__ = in_place(target=("target", "passed", "exit_status"))

    @property
    def passed(self) -> bool:
        """Whether nothing got worse, and every version could be looked at."""
        return self.exit_status == 0

    @property
    def accounts(self) -> tuple[VersionAccount, ...]:
        """What is not known of the programs of each version."""
        return version_accounts(
            (
                *(
                    (side.label, program.name, program.account)
                    for side in self.sides
                    for program in side.programs
                ),
                *(
                    (label, known.program, known.account)
                    for known in (() if self.bisection is None else self.bisection.accounts)
                    for label in known.versions
                ),
            )
        )

    @property
    def not_known(self) -> bool:
        """Whether anything is not known of a version, or of one of its programs."""
        programs = [program for side in self.sides for program in side.programs]
        return bool(self.accounts) or any(program.failure for program in programs)

    @property
    def exit_status(self) -> int:
        """0, 1 where something got worse, 2 where not all could be done that was asked for."""
        if not self.sides or any(side.versions is None for side in self.sides):
            return 2
        if self.bisection_missing:
            return 2
        first = self.sides[0]
        if not first.programs:
            return 2  # There is nothing to compare with.
        # What the last version takes counts, not what one on the way did.
        over = any(
            finding.severity == "error"
            for program in self.sides[-1].programs
            for finding in program.over
        )
        fails = any(side.failure and not first.failure for side in self.sides[1:])
        return 1 if over or fails or any(step.worse for step in self.steps) else 0


def upgrade_document(
    target: str,
    looked: Sequence[Looked],
    budgets: Mapping[str, Budgets] | None = None,
    bisection: Bisection | str | None = None,
    program: str = "",
) -> Upgrade:
    """Compares each version that could be looked at with the one before it.

    Args:
        target: what was looked at.
        looked: the versions.
        budgets: limits by the name of the program that they are for; of an empty name for all.
        bisection: which release changed something, or why that could not be looked for.
        program: the only program to look at; empty for all.

    Raises:
        TargetError: no version has that program.
    """
    limits = budgets or {}
    looked = [replace(version, carried=_only(version.carried, program)) for version in looked]
    if program and not any(version.carried and version.carried.programs for version in looked):
        raise TargetError(f"No version has a program {program!r}.")
    sides = tuple(_side(version, limits) for version in looked)
    there = [version for version in looked if version.carried is not None]
    steps = tuple(_step(before, after, limits) for before, after in itertools.pairwise(there))
    missing = bisection if isinstance(bisection, str) else ""
    return Upgrade(
        target=target,
        sides=sides,
        steps=steps,
        bisection=None if isinstance(bisection, str) else bisection,
        bisection_missing=missing,
    )


def _only(carried: Carried | None, program: str) -> Carried | None:
    """The programs of a name; all without one."""
    if carried is None or not program:
        return carried
    kept = tuple(each for each in carried.programs if each.is_called(program))
    recompiles = tuple(each for each in carried.recompiles if program in (each.name, each.program))
    return replace(carried, programs=kept, recompiles=recompiles)


def comparison(a: Looked, b: Looked, program: str = "") -> tuple[ComparedStages, ...]:
    """The programs of two versions, compared; those that differ."""
    before, after = (replace(each, carried=_only(each.carried, program)) for each in (a, b))
    step = _step(before, after, {})
    return tuple(difference for difference in step.programs if not difference.same)


def _side(looked: Looked, limits: Mapping[str, Budgets]) -> UpgradeSide:
    environment, carried = looked.environment, looked.carried
    return UpgradeSide(
        label=looked.label,
        versions=None if environment is None else environment.versions,
        python=None if environment is None else ".".join(map(str, environment.python_version)),
        plugins={} if environment is None else environment.plugins,
        status=looked.status,
        failure=looked.failure,
        programs=()
        if carried is None
        else tuple(_program(program, _limits(program, limits)) for program in carried.programs),
        recompiles=() if carried is None else carried.recompiles,
        problems=() if carried is None else carried.problems,
    )


def _limits(program: CarriedProgram, limits: Mapping[str, Budgets]) -> Budgets | None:
    name = program.name if program.recorded is None else program.recorded.name
    return limits.get(program.name) or limits.get(name) or limits.get("")


def _program(program: CarriedProgram, limits: Budgets | None) -> SideProgram:
    stages = program.stages
    if stages is None:
        return SideProgram(program.name, {}, program.error)
    spent = list(_spent(program, limits))
    return SideProgram(
        program.name,
        _figures(program),
        stages.compiled.failure,
        tuple(map(CiBudget.of, spent)),
        tuple(finding_of(finding) for spending in spent for finding in spending.findings),
        stages.account,
    )


def _figures(program: CarriedProgram) -> dict[str, float]:
    """Its figures, with how often a run compiled it."""
    assert program.stages is not None
    figures = dict(program.stages.figures)
    if program.recorded is not None:
        figures["compiles"] = program.recorded.compiles
    return figures


def _spent(program: CarriedProgram, limits: Budgets | None) -> Sequence[Spent]:
    stages = program.stages
    if limits is None or stages is None:
        return ()
    side, under = stages.compiled, stages.partitioner
    spent: list[Spent] = []
    if limits.limits_communication and side.collectives is not None:
        spent += communication_spent(limits, side.collectives, under)
    if limits.limits_memory and side.memory is not None:
        spent += replication_spent(limits, side.memory.tensors, under)
        spent += memory_spent(limits, side.memory.compiled.memory, side.memory.tensors, under)
    return spent


def _step(a: Looked, b: Looked, limits: Mapping[str, Budgets]) -> Step:
    assert a.carried is not None
    assert b.carried is not None
    failed = []
    if b.failure and not a.failure:
        failed.append(b.failure)
    pairing = paired(
        _candidates(a.carried),
        _candidates(b.carried),
        recorded=any(program.recorded for program in (*a.carried.programs, *b.carried.programs)),
    )
    programs = []
    excused = {}
    views = {}
    for before, after in pairing.pairs:
        if before.stages is None or after.stages is None:
            if before.stages is not None:
                failed.append(f"{after.name}: {after.error}")
            continue
        difference = compared(before.stages, after.stages, (a.label, b.label))
        difference = replace(difference, changes=figure_changes(_figures(before), _figures(after)))
        programs.append(difference)
        views[difference.name] = before.views, after.views
        excused[difference.name] = _allowed(after, _limits(after, limits))
    return Step(
        a.label,
        b.label,
        tuple(programs),
        (
            *(Unpaired(unpaired.words, a.label) for unpaired in pairing.only_a),
            *(Unpaired(unpaired.words, b.label) for unpaired in pairing.only_b),
        ),
        len(b.carried.recompiles) - len(a.carried.recompiles),
        tuple(failed),
        tuple(_packages(a, b)),
        excused,
        views,
    )


def _packages(a: Looked, b: Looked) -> Iterator[PackageChange]:
    if a.environment is None or b.environment is None:
        return
    ours, theirs = a.environment.others(), b.environment.others()
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            yield PackageChange(name, ours.get(name, ""), theirs.get(name, ""))


def _candidates(carried: Carried) -> list[PairCandidate[CarriedProgram]]:
    return [
        PairCandidate(
            program,
            program.name if program.recorded is None else program.recorded.name,
            () if program.stages is None else (program.stages.partitioner,),
            program.recorded,
        )
        for program in carried.programs
    ]


def _allowed(program: CarriedProgram, limits: Budgets | None) -> frozenset[str]:
    """The figures that may grow, since a budget says how far and is kept."""
    if limits is None or program.stages is None:
        return frozenset()
    spent = _spent(program, limits)
    if any(finding.severity == "error" for spending in spent for finding in spending.findings):
        return frozenset()
    figures = set()
    if limits.unlisted is not None:
        figures |= {"comms.bytes", "comms.count"}
    if limits.total is not None:
        figures.add("memory.total")
    return frozenset(figures)
