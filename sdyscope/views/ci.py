"""What `ci` found, as a document; every other form of it is made from that."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from sdyscope.analysis.budgets import Unit
from sdyscope.ci import Check, CheckOutcome, Config, Found, Outcome, Target, Trouble
from sdyscope.findings import Finding, Severity
from sdyscope.program import Partitioner
from sdyscope.source import SourceLocation
from sdyscope.views.check import FindingDocument, finding_document

__all__ = [
    "CheckStatus",
    "Ci",
    "CiBudget",
    "CiCheck",
    "CiError",
    "CiFinding",
    "CiTarget",
    "Status",
    "document",
    "root_folder",
]

Status: TypeAlias = Literal["passed", "failed", "error", "skipped"]
CheckStatus: TypeAlias = Literal["passed", "failed", "error", "updated"]

_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


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

    target: str
    check: Check
    finding: FindingDocument
    file: str
    line: int | None
    column: int | None
    ignored: str
    fails: bool
    fingerprint: str


@dataclass(frozen=True, slots=True)
class CiError:
    """Why something could not be done.

    Attributes:
      text: the error.
      file: file to look at, as of a finding.
      line: line in it, from 1.
    """

    text: str
    file: str
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
      partitioner: under which.
      used: how much; null where the compiler does not say.
      allowed: how much may be.
    """

    limit: str
    words: str
    unit: Unit
    partitioner: Partitioner
    used: int | None
    allowed: int


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
    """

    name: str
    target: str
    status: Status
    skipped: str
    error: CiError | None
    program: str
    mesh: str
    partitioners: tuple[Partitioner, ...]
    hardware: str
    seconds: float
    file: str
    line: int
    configured: tuple[Check, ...]
    checks: tuple[CiCheck, ...]
    budgets: tuple[CiBudget, ...]
    findings: tuple[CiFinding, ...]


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

    schema: Literal["sdyscope.ci/1"] = "sdyscope.ci/1"
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
        return (*self.findings, *(one for target in self.targets for one in target.findings))


def root_folder(config: Path) -> Path:
    """What paths are told from: the repository's root, as GitHub has it, or the nearest `.git`."""
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    if workspace and config.resolve().is_relative_to(Path(workspace).resolve()):
        return Path(workspace).resolve()
    folder = config.resolve().parent
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def document(
    config: Config,
    outcomes: Mapping[str, Outcome],
    skipped: Mapping[str, str],
    general: Sequence[Found],
    *,
    version: str,
    jax: str,
    seconds: float,
    updated: Sequence[Path] = (),
    is_update: bool = False,
) -> Ci:
    """The document of what came of all targets.

    Args:
      config: the configuration.
      outcomes: what came of each target that was looked at, by name.
      skipped: why others were not, by name.
      general: findings about the configuration itself.
      version: sdyscope's version.
      jax: version of JAX.
      seconds: how long it took.
      updated: golden files that were written.
      is_update: whether golden files were to be written where they differ.
    """
    making = _Making(config.file, is_update)
    wanted = [one for one in config.targets if one.name in outcomes or one.name in skipped]
    targets = tuple(
        making.target(one, outcomes[one.name])
        if one.name in outcomes
        else making.skipped(one, skipped[one.name])
        for one in wanted
    )
    findings = making.findings(general, None)
    is_error = any(one.status == "error" for one in targets)
    failed = any(one.status == "failed" for one in targets) or any(one.fails for one in findings)
    return Ci(
        passed=not is_error and not failed,
        exit_status=2 if is_error else 1 if failed else 0,
        version=version,
        jax=jax,
        config=making.path(str(config.file)) or str(config.file),
        seconds=seconds,
        targets=targets,
        findings=findings,
        updated=tuple(making.path(str(path)) or str(path) for path in updated),
    )


class _Making:
    def __init__(self, config: Path, is_update: bool) -> None:
        self.folder = config.parent
        self.root = root_folder(config)
        self.is_update = is_update

    def path(self, file: str) -> str | None:
        """A path from the root on; None for what is not in it, or not there."""
        # The processes that looked at targets worked in the configuration's folder.
        path = Path(os.path.abspath(self.folder / file))
        for candidate in (path, path.resolve()):
            if candidate.is_relative_to(self.root) and candidate.is_file():
                return candidate.relative_to(self.root).as_posix()
        return None

    def shortened(self, finding: Finding) -> Finding:
        """The finding with the paths in its words from the root on."""
        return replace(
            finding,
            message=self.told(finding.message),
            expected=self.told(finding.expected),
            found=self.told(finding.found),
        )

    def skipped(self, target: Target, reason: str) -> CiTarget:
        return self._target(target, Outcome(target.name), "skipped", reason, (), ())

    def target(self, target: Target, outcome: Outcome) -> CiTarget:
        findings = self.findings(outcome.found, target)
        checks = tuple(self.check(one, findings, target) for one in outcome.checks)
        status: Status = "passed"
        if outcome.trouble is not None or any(one.status == "error" for one in checks):
            status = "error"
        elif any(one.fails for one in findings):
            status = "failed"
        if self.is_update:
            # They are written, and no longer there.
            findings = tuple(one for one in findings if one.check != "snapshot")
        return self._target(target, outcome, status, "", checks, findings)

    def _target(
        self,
        target: Target,
        outcome: Outcome,
        status: Status,
        skipped: str,
        checks: tuple[CiCheck, ...],
        findings: tuple[CiFinding, ...],
    ) -> CiTarget:
        return CiTarget(
            name=target.name,
            target=target.word,
            status=status,
            skipped=skipped,
            error=self.error(outcome.trouble, target),
            program=outcome.program,
            mesh=outcome.mesh,
            partitioners=outcome.partitioners,
            hardware=outcome.hardware,
            seconds=outcome.seconds,
            file=self.path(target.place.file) or target.place.file,
            line=target.place.line,
            configured=target.checks,
            checks=checks,
            budgets=tuple(
                CiBudget(
                    ".".join(map(str, one.limit)),
                    one.words,
                    one.unit,
                    one.partitioner,
                    one.used,
                    one.allowed,
                )
                for one in outcome.spent
            ),
            findings=findings,
        )

    def error(self, trouble: Trouble | None, target: Target) -> CiError | None:
        if trouble is None:
            return None
        place = trouble.place or target.place
        file = self.path(place.file)
        if file is None:
            place = target.place
            file = self.path(place.file) or place.file
        return CiError(self.told(trouble.text), file, place.line)

    def told(self, words: str) -> str:
        """Words with the paths in them from the root on."""
        return words.replace(f"{self.root}{os.sep}", "")

    def check(self, done: CheckOutcome, findings: Sequence[CiFinding], target: Target) -> CiCheck:
        own = [one for one in findings if one.check == done.check]
        status: CheckStatus = "passed"
        if done.trouble is not None:
            status = "error"
        elif any(one.fails for one in own):
            status = "failed"
        elif own and done.check == "snapshot" and self.is_update:
            status = "updated"
        error = self.error(done.trouble, target)
        return CiCheck(done.check, status, done.words, done.seconds, error, done.not_run)

    def findings(self, found: Iterable[Found], target: Target | None) -> tuple[CiFinding, ...]:
        times: Counter[str] = Counter()
        made: list[CiFinding] = []
        ordered = sorted(found, key=lambda one: _ORDER.index(one.finding.severity))
        for one in ordered:
            key = _key(one, target)
            times[key] += 1
            made.append(self.finding(one, target, f"{key} {times[key]}"))
        return tuple(made)

    def finding(self, one: Found, target: Target | None, key: str) -> CiFinding:
        least = "warning" if target is None else target.fail_on
        fails = _ORDER.index(one.finding.severity) <= _ORDER.index(least) and not one.ignored
        if self.is_update and one.check == "snapshot":
            fails = False
        place = one.place
        file = self.path(place.file)
        if file is None:
            place = one.otherwise
            file = self.path(place.file)
        return CiFinding(
            target="" if target is None else target.name,
            check=one.check,
            finding=finding_document(self.shortened(one.finding)),
            file=file or place.file,
            line=place.line or None,
            column=_column(place),
            ignored=one.ignored,
            fails=fails,
            fingerprint=hashlib.sha256(key.encode()).hexdigest(),
        )


def _column(place: SourceLocation) -> int | None:
    # Counted from 0, and 0 where it is not known.
    return place.column + 1 if place.column else None


def _key(one: Found, target: Target | None) -> str:
    finding = one.finding
    name = "" if target is None else target.name
    words = [name, finding.rule, finding.kind, finding.tensor, finding.partitioner]
    return json.dumps(words)
