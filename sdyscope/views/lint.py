"""What `lint` found, as a document and in paragraphs; and its rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sdyscope.facts.account import Account, Unknown
from sdyscope.facts.findings import Severity
from sdyscope.facts.program import Partitioner
from sdyscope.lint import Lint as Linted
from sdyscope.lint import NotRun, Rule
from sdyscope.lint.rule import Needs
from sdyscope.terminal.account import account_paragraphs
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Tone
from sdyscope.views.check import finding_paragraphs
from sdyscope.words.counts import counted
from sdyscope.words.findings import SEVERITIES, Finding

#: How many rules that had nothing to look at are named.
_FEW = 3
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


@dataclass(frozen=True, slots=True)
class LintedProgram:
    """What was found in one program of a directory.

    Attributes:
      name: the program's name.
      passed: whether there is nothing worse than a note.
      partitioners: under which the program was looked at.
      findings: what was found, errors first.
      not_run: the rules that were not run.
      account: what is not known of the program, at the stages that were looked at.
    """

    name: str
    passed: bool
    partitioners: tuple[Partitioner, ...]
    findings: tuple[Finding, ...]
    not_run: tuple[NotRun, ...]
    account: Account


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
      account: what is not known of the program, at the stages that were looked at; of a directory
        which files could not be read.
      programs: of a directory, what was found in each of its programs and what was not run there;
        nothing of one program alone.
    """

    schema: Literal["sdyscope.lint/3"] = "sdyscope.lint/3"
    name: str | None
    passed: bool
    partitioners: tuple[Partitioner, ...]
    rules: tuple[RuleDocument, ...]
    findings: tuple[Finding, ...]
    not_run: tuple[NotRun, ...]
    account: Account
    programs: tuple[LintedProgram, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether all is known of what was looked at."""
        return not self.account and not any(program.account for program in self.programs)


def document(name: str, linted: Linted, account: Account) -> Lint:
    """The document of what the rules found in a program."""
    counts = {rule.name: 0 for rule in linted.rules}
    for finding in linted.findings:
        counts[finding.rule] += 1
    return Lint(
        name=name,
        passed=linted.passed,
        partitioners=linted.partitioners,
        rules=tuple(_rule(rule, counts[rule.name]) for rule in linted.rules),
        findings=linted.findings,
        not_run=linted.not_run,
        account=account,
    )


def directory_document(name: str, programs: Sequence[Lint], unread: Mapping[str, str]) -> Lint:
    """The document of what the rules found in each program of a directory.

    Args:
        name: the directory, as it was named.
        programs: the documents of its programs, one at least.
        unread: why a file of it could not be read.
    """
    counts = [{rule.name: rule.findings or 0 for rule in program.rules} for program in programs]
    rules = tuple(
        replace(rule, findings=sum(count[rule.name] for count in counts))
        for rule in programs[0].rules
    )
    return Lint(
        name=name,
        passed=all(program.passed for program in programs),
        partitioners=tuple(
            dict.fromkeys(
                partitioner for program in programs for partitioner in program.partitioners
            )
        ),
        rules=rules,
        findings=(),
        not_run=(),
        account=Account(
            tuple(
                Unknown("left out", "lowered", reason, subject="file", name=file)
                for file, reason in unread.items()
            )
        ),
        programs=tuple(
            LintedProgram(
                program.name or "",
                program.passed,
                program.partitioners,
                program.findings,
                program.not_run,
                program.account,
            )
            for program in programs
        ),
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


def _rule(rule: Rule, findings: int | None) -> RuleDocument:
    return RuleDocument(
        rule.name, rule.severity, rule.needs, rule.summary, rule.explanation, findings
    )


def paragraphs(lint: Lint) -> Iterator[Paragraph]:
    """The summary, the findings by severity, and what was not run."""
    if lint.programs:
        yield from _of_programs(lint)
    else:
        yield from _of_one(lint, len(lint.rules))
        yield from _not_run([f"{', '.join(names)}: {why}" for why, names in _missing(lint).items()])
        idle = dict.fromkeys(one.rule for one in lint.not_run if not one.applies)
        if idle:
            which = (
                ", ".join(idle) if len(idle) <= _FEW else f"{len(idle)} of them (--json has which)"
            )
            yield Paragraph("")
            yield Paragraph(f"not applicable: {which}", "muted", 0, 2)
    if rule := next((rule.name for rule in lint.rules if rule.findings), None):
        yield Paragraph("")
        yield Paragraph(f"sdyscope lint --explain {rule} says more about a rule.", "muted", 0, 2)


def _of_programs(lint: Lint) -> Iterator[Paragraph]:
    """A line for the directory, each program with findings, and then what is alike in several."""
    counts = Counter(one.severity for program in lint.programs for one in folded(program.findings))
    programs = counted(len(lint.programs), "program")
    yield Paragraph(f"{lint.name}: {programs}, {_counts(counts)}", _summary_tone(counts), hang=2)
    for one in lint.programs:
        if one.findings:
            yield Paragraph("")
            yield from _of_one(one, len(lint.rules))
    clean = [program.name for program in lint.programs if not program.findings]
    if clean and counts:
        yield Paragraph("")
        yield Paragraph(f"nothing found in {', '.join(clean)}", "good", hang=2)
    missing: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in lint.programs:
        for reason, rules in _missing(one).items():
            missing.setdefault((reason, tuple(rules)), []).append(one.name)
    texts = []
    for (reason, listed), names in missing.items():
        of = "" if len(names) == len(lint.programs) else f"of {', '.join(names)}: "
        texts.append(f"{of}{', '.join(listed)}: {reason}")
    yield from _not_run(texts)
    for one in lint.programs:
        yield from account_paragraphs(one.account, of=one.name)


def _not_run(texts: Sequence[str]) -> Iterator[Paragraph]:
    """What was not run, and why."""
    if texts:
        yield Paragraph("")
        yield Paragraph("not run", "heading")
        yield from (Paragraph(text, "muted", 2, 2) for text in texts)


def _missing(lint: Lint | LintedProgram) -> dict[str, list[str]]:
    """The rules that could not be run, by the reason."""
    found: dict[str, list[str]] = {}
    for one in lint.not_run:
        if one.applies and one.rule not in found.setdefault(one.reason, []):
            found[one.reason].append(one.rule)
    return found


def _of_one(lint: Lint | LintedProgram, rules: int) -> Iterator[Paragraph]:
    """The summary of one program, with as many rules, and its findings by severity."""
    told = tuple(folded(lint.findings))
    tone = _summary_tone(Counter(one.severity for one in told))
    yield Paragraph(_summary(lint, rules, told), tone, hang=2)
    yield from finding_paragraphs(told)


def _summary(lint: Lint | LintedProgram, rules: int, findings: Sequence[Finding]) -> str:
    """`mlp: 35 rules under shardy, 2 warnings`."""
    start = f"{lint.name}: {counted(rules, 'rule')} under "
    start += " and ".join(lint.partitioners)
    return f"{start}, {_counts(Counter(finding.severity for finding in findings))}"


def _counts(counts: Mapping[Severity, int]) -> str:
    """`2 warnings, 1 note`."""
    found = [counted(counts[each], each) for each in SEVERITIES if counts[each]]
    return ", ".join(found) or "nothing found"


def _summary_tone(counts: Mapping[Severity, int]) -> Tone:
    return "bad" if counts["error"] else "warning" if counts["warning"] else "good"


def folded(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings of which those that say the same of several tensors are one, which names them."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        said = (finding.message, finding.expected, finding.found, finding.hint)
        key = (
            replace(finding, tensor="", message="", expected="", found="", hint=""),
            finding.tensor if finding.kind not in ("argument", "result") else "",
            *(_VARYING.sub("#", text) for text in said),
        )
        groups.setdefault(key, []).append(finding)
    for first, *rest in groups.values():
        if not rest:
            yield first
            continue
        names = list(dict.fromkeys(one.tensor for one in rest if one.tensor != first.tensor))
        more = len(names) - _NAMED
        listed = ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        alike = f" Likewise: {listed}." if names else f" Likewise {len(rest):,} more."
        yield replace(first, message=first.message + alike)


def rules_paragraphs(rules: Sequence[Rule]) -> Iterator[Paragraph]:
    """A line a rule, by severity."""
    width = max(len(rule.name) for rule in rules)
    for severity in SEVERITIES:
        chosen = [rule for rule in rules if rule.severity == severity]
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
