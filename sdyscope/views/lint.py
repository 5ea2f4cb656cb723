"""What `lint` found, as a document and in paragraphs; and its rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sdyscope.facts.account import Account
from sdyscope.facts.findings import Severity
from sdyscope.facts.program import Partitioner
from sdyscope.lint import Lint as Linted
from sdyscope.lint import NotRun, Rule
from sdyscope.lint.rule import Needs
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.views.check import finding_paragraphs
from sdyscope.words.counts import counted
from sdyscope.words.findings import SEVERITIES, Finding

#: How many tensors a finding names that is alike for several.
_NAMED = 3
#: What differs in what is said of two tensors alike: their paths, and numbers.
_VARYING = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\]|\.\w+)+|\d[\d,]*")


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
      partitioners: under which the program was looked at.
      rules: the rules that were chosen.
      findings: what was found, errors first.
      not_run: the rules that were not run.
      account: what is not known of the program, at the stages that were looked at.
    """

    schema: Literal["sdyscope.lint/2"] = "sdyscope.lint/2"
    name: str | None
    passed: bool
    partitioners: tuple[Partitioner, ...]
    rules: tuple[RuleDocument, ...]
    findings: tuple[Finding, ...]
    not_run: tuple[NotRun, ...]
    account: Account


def document(name: str, linted: Linted, account: Account) -> Lint:
    """The document of what the rules found in a program."""
    counts = {one.name: 0 for one in linted.rules}
    for finding in linted.findings:
        counts[finding.rule] += 1
    return Lint(
        name=name,
        passed=linted.passed,
        partitioners=linted.partitioners,
        rules=tuple(_rule(one, counts[one.name]) for one in linted.rules),
        findings=linted.findings,
        not_run=linted.not_run,
        account=account,
    )


def rules_document(rules: Sequence[Rule]) -> Lint:
    """The document of rules alone."""
    return Lint(
        name=None,
        passed=True,
        partitioners=(),
        rules=tuple(_rule(one, None) for one in rules),
        findings=(),
        not_run=(),
        account=Account(),
    )


def _rule(rule: Rule, findings: int | None) -> RuleDocument:
    return RuleDocument(
        rule.name, rule.severity, rule.needs, rule.summary, rule.explanation, findings
    )


def paragraphs(lint: Lint) -> Iterator[Paragraph]:
    """The summary, the findings by severity, and what was not run."""
    worst = lint.findings[0].severity if lint.findings else "note"
    told = tuple(folded(lint.findings))
    yield Paragraph(_summary(lint, told), "good" if worst == "note" else _tone(worst), hang=2)
    yield from finding_paragraphs(told)
    missing: dict[str, list[str]] = {}
    idle: list[str] = []
    for one in lint.not_run:
        if one.applies:
            missing.setdefault(one.reason, []).append(one.rule)
        else:
            idle.append(one.rule)
    if missing:
        yield Paragraph("")
        yield Paragraph("not run", "heading")
    for reason, names in missing.items():
        listed = ", ".join(dict.fromkeys(names))
        yield Paragraph(f"{listed}: {reason}", "muted", 2, 2)
    if idle:
        yield Paragraph("")
        listed = ", ".join(dict.fromkeys(idle))
        yield Paragraph(f"nothing here to look at for {listed}", "muted", 0, 2)
    if lint.findings:
        yield Paragraph("")
        name = lint.findings[0].rule
        yield Paragraph(f"sdyscope lint --explain {name} says more about a rule.", "muted", 0, 2)


def _tone(severity: Severity) -> Literal["bad", "warning"]:
    return "bad" if severity == "error" else "warning"


def _summary(lint: Lint, told: Sequence[Finding]) -> str:
    """`mlp: 35 rules under shardy, 2 warnings`."""
    run = len(lint.rules)
    start = f"{lint.name}: {run} rule{'' if run == 1 else 's'} under "
    start += " and ".join(lint.partitioners)
    counts = {each: sum(one.severity == each for one in told) for each in SEVERITIES}
    found = [counted(count, severity) for severity, count in counts.items() if count]
    return f"{start}, {', '.join(found) or 'nothing found'}"


def folded(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings of which those that say the same of several tensors are one, which names them."""
    groups: dict[object, list[Finding]] = {}
    for one in findings:
        said = (one.message, one.expected, one.found, one.hint)
        key = (
            replace(one, tensor="", message="", expected="", found="", hint=""),
            one.tensor if one.kind not in ("argument", "result") else "",
            *(_VARYING.sub("#", text) for text in said),
        )
        groups.setdefault(key, []).append(one)
    for first, *rest in groups.values():
        if not rest:
            yield first
            continue
        names = list(dict.fromkeys(one.tensor for one in rest if one.tensor != first.tensor))
        more = len(names) - _NAMED
        listed = ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        alike = f" Alike: {listed}." if names else f" {len(rest):,} more are alike."
        yield replace(first, message=first.message + alike)


def rules_paragraphs(rules: Sequence[Rule]) -> Iterator[Paragraph]:
    """A line a rule, by severity."""
    width = max(len(one.name) for one in rules)
    for severity in SEVERITIES:
        chosen = [one for one in rules if one.severity == severity]
        if not chosen:
            continue
        yield Paragraph(f"{severity}s", "heading")
        for one in chosen:
            yield Paragraph(f"{one.name:<{width}}  {one.summary}", "plain", 2, width + 2)
        yield Paragraph("")
    yield Paragraph("sdyscope lint --explain RULE says more.", "muted")


_STAGES: dict[Needs, str] = {
    "lowered": "the lowered module",
    "propagated": "propagated shardings",
    "compiled": "the compiled program",
}


def explained(rule: Rule) -> Iterator[Paragraph]:
    """All that there is to say about a rule."""
    yield Paragraph(rule.name, "heading")
    yield Paragraph(f"{rule.severity}, looks at {_STAGES[rule.needs]}", "muted")
    yield Paragraph("")
    yield Paragraph(rule.summary)
    for part in rule.explanation.split("\n\n"):
        yield Paragraph("")
        yield Paragraph(part)
