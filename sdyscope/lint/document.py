"""What the rules found as a document: of one program, of each of a directory's, or of none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sdyscope.facts.account import Account, Unknown
from sdyscope.facts.findings import Severity
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.lint import Linted, NotRun, Rule
from sdyscope.lint.rule import Needs
from sdyscope.words.findings import Finding


@dataclass(frozen=True, slots=True)
class RuleDocument:
    """A rule.

    Attributes:
        name: its stable name.
        severity: of its findings, the worst where they differ.
        needs: the last stage that it can't do without: `lowered`, `propagated`, `compiled`.
        summary: what is wrong where it is found, in a line.
        explanation: why that matters, what to do, and what is not found; Markdown, in paragraphs.
        findings: how many there are of it; null where no program was looked at.
    """

    name: str
    severity: Severity
    needs: Needs
    summary: str
    explanation: str
    findings: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """The document of `sdyscope lint --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name, or the module's; null where only rules are listed.
        passed: whether there is nothing worse than a note.
        partitioners: under which the program was looked at; none of a compiled program's text.
        rules: the rules that were chosen.
        findings: what was found, errors first.
        not_run: the rules that were not run.
        account: what is not known of the program, at the stages that were looked at; of a directory
            which files could not be read.
        programs: of a directory, what was found in each of its programs and what was not run there;
            nothing of one program alone.
        hardware: what the compiled program that rules looked at was compiled for; null where none
            did, or a recorded run compiled it.
        device_kind: what the compiler calls such a device; null where no rule looked at a compiled
            program.
        compiled_by: the JAX that compiled it, such as `JAX 0.10.2`; null likewise.
    """

    schema: Literal["sdyscope.lint/3"] = "sdyscope.lint/3"
    name: str | None
    passed: bool
    partitioners: tuple[Partitioner, ...]
    rules: tuple[RuleDocument, ...]
    findings: tuple[Finding, ...]
    not_run: tuple[NotRun, ...]
    account: Account
    programs: tuple[Linted, ...] = ()
    hardware: Hardware | None = None
    device_kind: str | None = None
    compiled_by: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether all is known of what was looked at."""
        return not self.account and not any(program.account for program in self.programs)


def lint_document(linted: Linted) -> Lint:
    """The document of what the rules found in a program."""
    return Lint(
        name=linted.name,
        passed=linted.passed,
        partitioners=linted.partitioners,
        rules=_rules(linted),
        findings=linted.findings,
        not_run=linted.not_run,
        account=linted.account,
        hardware=linted.hardware,
        device_kind=linted.device_kind,
        compiled_by=linted.compiled_by,
    )


def directory_document(name: str, programs: Sequence[Linted], unread: Mapping[str, str]) -> Lint:
    """The document of what the rules found in each program of a directory.

    Args:
        name: the directory, as it was named.
        programs: what they found in its programs, one at least.
        unread: why a file of it could not be read.
    """
    under = (partitioner for program in programs for partitioner in program.partitioners)
    return Lint(
        name=name,
        passed=all(program.passed for program in programs),
        partitioners=tuple(dict.fromkeys(under)),
        rules=_rules(*programs),
        findings=(),
        not_run=(),
        account=Account(
            tuple(
                Unknown("left out", "lowered", reason, subject="file", name=file)
                for file, reason in unread.items()
            )
        ),
        programs=tuple(programs),
    )


def rules_document(rules: Sequence[Rule]) -> Lint:
    """The document of rules alone."""
    return Lint(
        name=None,
        passed=True,
        partitioners=(),
        rules=tuple(_rule(rule, None) for rule in rules),
        findings=(),
        not_run=(),
        account=Account(),
    )


def _rules(*programs: Linted) -> tuple[RuleDocument, ...]:
    """The rules that were chosen, alike for all programs, with what they found in these."""
    counts = Counter(finding.rule for program in programs for finding in program.findings)
    return tuple(_rule(rule, counts[rule.name]) for rule in programs[0].rules)


def _rule(rule: Rule, findings: int | None) -> RuleDocument:
    return RuleDocument(
        rule.name, rule.severity, rule.needs, rule.summary, rule.explanation, findings
    )
