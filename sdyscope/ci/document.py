"""What `ci` found, as a document: targets' own processes make its parts, forms are made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.analysis.budgets import Spent, Unit
from sdyscope.ci.config import Check
from sdyscope.facts.account import Account
from sdyscope.facts.program import Partitioner
from sdyscope.patches.diff import Replacement
from sdyscope.values.source import FilePath, PathWords
from sdyscope.words.findings import Finding, budget_text
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.places import shown_name

Status: TypeAlias = Literal["passed", "failed", "error", "skipped"]
CheckStatus: TypeAlias = Literal["passed", "failed", "error", "updated"]


@dataclass(frozen=True, slots=True)
class CiFinding:
    """One thing found.

    Attributes:
        target: name of the target; empty for what is about the configuration itself.
        check: what found it.
        finding: what was found.
        file: file to look at: of the program, a golden file or the configuration; from the root of
            the repository on where it is in there.
        line: line in it, from 1; null where it is not known.
        column: column, from 1; null likewise.
        ignored: why it is ignored; empty where it is not.
        fails: whether it makes the target fail.
        fingerprint: the same for the same rule and tensor of the same target, whatever the line.
    """

    target: PathWords
    check: Check
    finding: Finding
    file: FilePath
    line: int | None
    column: int | None
    ignored: str
    fails: bool
    fingerprint: str

    @property
    def name(self) -> str:
        """The tensor, without the program's own scope; empty for the module."""
        return shown_name(self.finding.tensor, "")

    @property
    def subject(self) -> str:
        """What it is about: `constraint layer0/attention`; empty for the module."""
        return f"{self.finding.kind} {self.name}".strip()

    @property
    def text(self) -> str:
        """All that it says, in lines."""
        finding = self.finding
        under = f" ({partitioner_name(finding.partitioner)})" if finding.partitioner else ""
        lines = [
            finding.message + under,
            f"Expected: {finding.expected}" if finding.expected else "",
            f"Found: {finding.found}" if finding.found else "",
            finding.hint,
        ]
        return "\n".join(filter(None, lines))

    def is_shown(self, notes: bool = False) -> bool:
        """Whether it is not ignored, and no note unless these are wanted."""
        return not self.ignored and (notes or self.finding.severity != "note")


@dataclass(frozen=True, slots=True)
class CiError:
    """Why something could not be done.

    Attributes:
        text: the error.
        file: file to look at, as of a finding.
        line: line in it, from 1.
    """

    text: str
    file: FilePath
    line: int


@dataclass(frozen=True, slots=True)
class CiCheck:
    """One check of a target.

    Attributes:
        check: which.
        status: `error` when it could not be done, `updated` when the golden file was written anew.
        words: what was looked at.
        seconds: how long it took, with whatever stage was first asked for.
        error: why it could not be done; null where it could.
        not_run: rules that could not be run, each with the reason.
    """

    check: Check
    status: CheckStatus
    words: str
    seconds: float
    error: CiError | None
    not_run: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CiBudget:
    """How much of one limit a target takes.

    Attributes:
        limit: the limit, by the keys that it is written under.
        words: what it is about: `all-gather over model`.
        unit: what is counted.
        partitioner: under which; null for a compiled program's text.
        used: how much; null where the compiler does not say.
        allowed: how much may be.
    """

    limit: str
    words: str
    unit: Unit
    partitioner: Partitioner | None
    used: int | None
    allowed: int

    @classmethod
    def of(cls, spent: Spent) -> CiBudget:
        """What was counted."""
        return cls(
            ".".join(map(str, spent.limit)),
            budget_text(spent.subject),
            spent.unit,
            spent.partitioner,
            spent.used,
            spent.allowed,
        )


@dataclass(frozen=True, slots=True)
class CiChange:
    """What of a file an edit is.

    Attributes:
        file: the file, from the root of the repository on.
        replacements: lines that are replaced, from the top down.
    """

    file: FilePath
    replacements: tuple[Replacement, ...]


@dataclass(frozen=True, slots=True)
class CiRemedy:
    """Edits of a program's source after which a step sends or holds less.

    Attributes:
        edits: the edits.
        gain: what they change.
        proof: how that is known.
        proven: whether the edited source was compiled to that, and computes the same numbers.
        patch: a unified diff, of the repository's root.
        changes: the same by file.
    """

    edits: str
    gain: str
    proof: tuple[str, ...]
    proven: bool
    patch: str
    changes: tuple[CiChange, ...]


@dataclass(frozen=True, slots=True)
class CiTarget:
    """What came of one target.

    Attributes:
        name: its name.
        target: the program, as the command line names it.
        status: `error` when something could not be done, `skipped` when it is not for this JAX.
        skipped: why it is skipped; empty where it is not.
        error: why nothing could be done; null otherwise.
        program: the program's own name.
        mesh: its meshes in words.
        partitioners: under which it was lowered.
        hardware: what it was compiled for; empty where it was not.
        seconds: how long it took.
        file: where it is configured.
        line: the line there.
        configured: what is to be done with it.
        checks: what was done with it; nothing where it could not be looked at at all.
        budgets: its budgets.
        findings: what was found, errors first, the ignored ones included.
        account: what is not known of the program, at the stages that were looked at.
        remedy: the best proven edit; null where there is none, or none was looked for.
        compiled_by: the JAX that compiled it, such as `JAX 0.10.2`; empty where it was not.
    """

    name: str
    target: PathWords
    status: Status
    skipped: str
    error: CiError | None
    program: str
    mesh: str
    partitioners: tuple[Partitioner, ...]
    hardware: str
    seconds: float
    file: FilePath
    line: int
    configured: tuple[Check, ...]
    checks: tuple[CiCheck, ...]
    budgets: tuple[CiBudget, ...]
    findings: tuple[CiFinding, ...]
    account: Account
    remedy: CiRemedy | None = None
    compiled_by: str = ""

    @property
    def errors(self) -> Iterator[tuple[str, CiError]]:
        """What could not be done, `target` for all of it, and why."""
        if self.error is not None:
            yield "target", self.error
        for check in self.checks:
            if check.error is not None:
                yield check.check, check.error


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the process that looked at a target hands over.

    Attributes:
        target: what came of it.
        used_ignores: which of the ignores for all targets matched something, by number.
        snapshot: the text of its snapshot; empty without one.
    """

    target: CiTarget
    used_ignores: tuple[int, ...] = ()
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """What is shown of one target, or of the configuration itself.

    Attributes:
        name: the target's, or the configuration's file.
        mesh: its meshes in words.
        hardware: what it was compiled for; empty where it was not.
        skipped: why it is skipped; empty where it is not.
        errors: why something could not be done.
        findings: what was found.
        not_run: rules that could not be run, each with the reason.
    """

    name: str
    mesh: str = ""
    hardware: str = ""
    skipped: str = ""
    errors: tuple[str, ...] = ()
    findings: tuple[CiFinding, ...] = ()
    not_run: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ci:
    """What `sdyscope ci --json` prints.

    Attributes:
        schema: name and version of this form.
        passed: whether no target failed, and everything could be done.
        exit_status: 0, 1 where something failed, 2 where something could not be done.
        version: sdyscope's.
        jax: version of JAX.
        config: the file with the configuration.
        seconds: how long all of it took.
        targets: the targets, in the order of the configuration.
        findings: what is about the configuration itself.
        updated: golden files that were written.
    """

    schema: Literal["sdyscope.ci/2"] = "sdyscope.ci/2"
    passed: bool
    exit_status: int
    version: str
    jax: str
    config: str
    seconds: float
    targets: tuple[CiTarget, ...]
    findings: tuple[CiFinding, ...]
    updated: tuple[str, ...]

    @property
    def every_finding(self) -> tuple[CiFinding, ...]:
        """All of them, target by target."""
        return (
            *self.findings,
            *(finding for target in self.targets for finding in target.findings),
        )

    def sections(self, notes: bool = False) -> Iterator[Section]:
        """What of it is shown: of the configuration and of each target that has something.

        Args:
            notes: whether notes, and rules that were not run, are shown.
        """

        def shown(findings: Sequence[CiFinding]) -> tuple[CiFinding, ...]:
            return tuple(finding for finding in findings if finding.is_shown(notes))

        if own := shown(self.findings):
            yield Section(self.config, findings=own)
        for target in self.targets:
            section = Section(
                target.name,
                target.mesh,
                target.hardware,
                target.skipped,
                tuple(
                    error.text if what == "target" else f"{what} errored: {error.text}"
                    for what, error in target.errors
                ),
                shown(target.findings),
                tuple(line for check in target.checks for line in check.not_run) if notes else (),
            )
            if section.skipped or section.errors or section.findings or section.not_run:
                yield section
