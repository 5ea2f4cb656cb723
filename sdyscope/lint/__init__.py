"""Lint: rules that look for what people get wrong, or are surprised by, in a program's shardings.

Each rule has a stable name, a severity, an explanation, and the last stage that it needs. A rule
that can't be run is listed with the reason, never left out.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sdyscope.analysis.account import account_of
from sdyscope.analysis.collectives.account import collectives_unknowns
from sdyscope.analysis.fix.focus import Focus
from sdyscope.errors import (
    CompilerError,
    MissingStageError,
    SdyscopeError,
    TargetError,
    did_you_mean,
)
from sdyscope.facts.account import Account, Unknown
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.edits import EditKind
from sdyscope.facts.findings import SEVERITIES
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.lint import (
    arguments,
    axes,
    batch,
    constraints,
    custom_calls,
    layouts,
    links,
    logical,
    loops,
    rematerialization,
    requested,
    rng,
    slices,
    storage,
    unexpected,
    unreduced,
    unsplit,
    wasted,
)
from sdyscope.lint.logical import LogicalAxes as LogicalAxes
from sdyscope.lint.named import named_axes as named_axes
from sdyscope.lint.rule import NotApplicable
from sdyscope.lint.rule import Rule as Rule
from sdyscope.lint.subject import Subject
from sdyscope.staged import Staged
from sdyscope.values.source import PathWords
from sdyscope.words.findings import Finding, finding_of
from sdyscope.words.lint import NO_LOGICAL, NO_STAGE, NOT_COMPILED, ONE_PARTITIONER

#: Every rule of a module of this room by its name, those about the same thing beside each other.
RULES: Mapping[str, Rule] = {
    rule.name: rule
    for module in (
        requested,
        unreduced,
        constraints,
        axes,
        batch,
        arguments,
        storage,
        rematerialization,
        loops,
        wasted,
        unsplit,
        slices,
        unexpected,
        layouts,
        links,
        custom_calls,
        rng,
        logical,
    )
    for rule in vars(module).values()
    if isinstance(rule, Rule)
}


@dataclass(frozen=True, slots=True)
class NotRun:
    """A rule that was not run.

    Attributes:
        rule: its name.
        partitioner: under which; None of a compiled program's text.
        reason: why not, a sentence.
        applies: whether it could have found something: False where the program has nothing for it
            to look at.
    """

    rule: str
    partitioner: Partitioner | None
    reason: PathWords
    applies: bool


@dataclass(frozen=True)
class Linted:
    """What all rules found in a program.

    Attributes:
        name: the program's name, or the module's.
        passed: whether there is nothing worse than a note.
        findings: errors first, then in the order of the rules. What has no line of its own, as
            arguments and whole modules, has that of the program's function.
        rules: the rules that were chosen.
        not_run: those that could not be run.
        partitioners: under which the program was looked at; none of a compiled program's text.
        account: what is not known of the program, at the stages that were looked at.
        compiled: the compiled program that rules looked at, the first partitioner's; None where
            none did.
        hardware: what that was compiled for; null where there is none, or a recorded run did it.
        device_kind: what the compiler calls such a device; null where there is none.
        compiled_by: the JAX that compiled it, such as `JAX 0.10.2`; null likewise, and where a
            text does not say.
    """

    __document__ = (
        *("name", "passed", "partitioners", "findings", "not_run", "account"),
        *("hardware", "device_kind", "compiled_by"),
    )

    name: str
    findings: tuple[Finding, ...]
    rules: tuple[Rule, ...]
    not_run: tuple[NotRun, ...]
    partitioners: tuple[Partitioner, ...]
    account: Account
    compiled: Compiled | None = None
    compiled_by: str | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing was found that is worse than a note."""
        return all(finding.severity == "note" for finding in self.findings)

    @property
    def hardware(self) -> Hardware | None:
        """What the compiled program is for."""
        return None if self.compiled is None else self.compiled.hardware

    @property
    def device_kind(self) -> str | None:
        """What the compiler calls a device of that."""
        return None if self.compiled is None else self.compiled.device_kind or None


def rules_left_out(not_run: Iterable[NotRun], *, is_text: bool) -> tuple[str, ...]:
    """The names of rules that did not look at a program, each once.

    A rule whose kind of thing the program does not have has looked; on a compiled program's text
    (``is_text``) nobody knows whether it has.
    """
    return tuple(dict.fromkeys(each.rule for each in not_run if each.applies or is_text))


def rule(name: str) -> Rule:
    """The rule of a name.

    Raises:
        TargetError: there is none.
    """
    if name not in RULES:
        raise _unknown(name)
    return RULES[name]


def chosen_rules(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules whose names match a glob of ``select`` (by default all) and none of ``ignore``.

    Raises:
        TargetError: a glob matches no rule at all.
    """
    select, ignore = tuple(select), tuple(ignore)
    for pattern in (*select, *ignore):
        if not fnmatch.filter(RULES, pattern):
            raise _unknown(pattern)

    def matches(name: str, patterns: Iterable[str]) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    return tuple(
        rule
        for name, rule in RULES.items()
        if (not select or matches(name, select)) and not matches(name, ignore)
    )


def _unknown(name: str) -> TargetError:
    hint = did_you_mean(name, RULES, "sdyscope lint --rules lists them.", most=3, quoted=False)
    return TargetError(f"There is no rule {name!r}.", hint=hint)


#: The edits that remedy what a rule finds; any for other rules.
_REMEDIES: Mapping[str, frozenset[EditKind]] = {
    "all-reduce-then-slice": frozenset({"reduction and slice"}),
    "gathered-to-be-sliced": frozenset({"gather and slice"}),
    "mesh-order": frozenset({"mesh"}),
    "reduced-in-loop": frozenset({"reduction in a loop", "argument", "result"}),
    "reduced-twice": frozenset({"repeated reduction"}),
    "resharded-twice": frozenset({"constraint"}),
    "state-not-donated": frozenset({"donation"}),
    "threefry-not-partitionable": frozenset({"setting"}),
}


def focus_of_rule(program: Staged, name: str, on: Hardware | str | None = None) -> Focus | None:
    """What a rule finds in a program, for edits to be about; None where there is no such rule.

    Raises:
        CompilerError: the program can't be lowered at all.
        TargetError: the rule finds nothing in it.
    """
    if name not in RULES:
        return None
    findings = linted(program, select=[name], on=on).findings
    if not findings:
        raise TargetError(f"{name} finds nothing in {program.name}.")
    return Focus(
        name,
        frozenset(finding.tensor for finding in findings if finding.tensor),
        tuple(finding.source for finding in findings if finding.source is not None),
        kinds=_REMEDIES.get(name),
    )


def linted(
    program: Staged,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    compiled: bool = True,
    on: Hardware | str | None = None,
    logical: LogicalAxes | None = None,
    no_logical: str = NO_LOGICAL,
    not_compiled: str = NOT_COMPILED,
) -> Linted:
    """Runs the rules over a program, under each partitioner that it is lowered for.

    Of a compiled program's text those that need no stage before are run.

    Args:
        program: the program.
        select: globs of the rules to run; by default all.
        ignore: globs of rules to leave out.
        compiled: whether the program may be compiled; rules that need that are otherwise not run.
        on: what to compile for, as ``compiled`` takes it.
        logical: the logical axes of the program's tensors, for the rules about these.
        no_logical: why there are none, a sentence.
        not_compiled: why the program may not be compiled, a sentence.

    Raises:
        CompilerError: the program can't be lowered at all.
        TargetError: a glob matches no rule, or there is no such hardware.
    """
    rules = chosen_rules(select, ignore)
    findings: dict[Partitioner | None, dict[str, list[Finding]]] = {}
    not_run: list[NotRun] = []
    compiles: list[Compiled] = []
    unknowns: list[Unknown] = []
    for partitioner in program.compiled_under:
        # Of a compiled program's text nothing need be compiled.
        may = compiled or program.is_compiled
        in_the_way = _in_the_way(program, partitioner) if may and on is None else ""
        subject = Subject(
            program,
            partitioner,
            compiles=may and not in_the_way,
            on=on,
            logical=logical,
            no_logical=no_logical,
            not_compiled=in_the_way or not_compiled,
        )
        of_rules = findings[partitioner] = {}
        for rule in rules:
            of_rules[rule.name] = []
            reason = _missing(rule, subject)
            if reason is not None:
                not_run.append(NotRun(rule.name, partitioner, reason, True))
                continue
            try:
                if rule.needs != "compiled":
                    _ = program.lowered  # which a compiled program's text does not have
                for observation in rule.observations(subject):
                    of_rules[rule.name].append(finding_of(observation))
            except NotApplicable as error:
                not_run.append(NotRun(rule.name, partitioner, error.message, False))
            except MissingStageError:
                not_run.append(NotRun(rule.name, partitioner, NO_STAGE, True))
            except TargetError:
                raise
            except SdyscopeError as error:
                not_run.append(NotRun(rule.name, partitioner, error.message, True))
        if subject.compiled_already is not None:
            compiles.append(subject.compiled_already)
        if subject.sent_already is not None:
            unknowns += collectives_unknowns(subject.sent_already)
    under = tuple(partitioner for partitioner in findings if partitioner is not None)
    if "partitioners-differ" in {rule.name for rule in rules} and len(under) == 1:
        not_run.append(NotRun("partitioners-differ", under[0], ONE_PARTITIONER, False))
    located = tuple(
        replace(finding, source=program.defined_at) if finding.source is None else finding
        for finding in _merged(findings, rules)
    )
    first = next(iter(compiles), None)
    by = None if first is None else program.compiler_of(first)
    account = account_of(program) + Account.of(unknowns)
    return Linted(program.name, located, rules, tuple(not_run), under, account, first, by)


def _in_the_way(program: Staged, partitioner: Partitioner | None) -> str:
    """What is known to stand in the way of compiling for CPU devices, which nobody asked for."""
    try:
        program.check_compilable(partitioner)
    except TargetError as error:
        return " ".join(filter(None, (error.message, error.hint)))
    except CompilerError:
        pass  # what the compiler refuses each rule says that needs it
    return ""


def _missing(rule: Rule, subject: Subject) -> str | None:
    """Why a rule can't be run at all."""
    return subject.not_compiled if rule.needs == "compiled" and not subject.compiles else None


def _merged(
    findings: Mapping[Partitioner | None, Mapping[str, Sequence[Finding]]], rules: Sequence[Rule]
) -> tuple[Finding, ...]:
    """Every finding once; one that is there under every partitioner is about all of them."""
    merged: list[Finding] = []
    for rule in rules:
        times: dict[Finding, set[Partitioner | None]] = {}
        for partitioner, of_rules in findings.items():
            for finding in of_rules[rule.name]:
                alike = replace(finding, partitioner=None)
                about = findings if finding.partitioner is None else (partitioner,)
                times.setdefault(alike, set()).update(about)
        for finding, under in times.items():
            if under >= set(findings):  # one that is about all of them says so itself
                merged.append(finding)
            else:
                merged += [replace(finding, partitioner=each) for each in findings if each in under]
    return tuple(sorted(merged, key=lambda finding: SEVERITIES.index(finding.severity)))
