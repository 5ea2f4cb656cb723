"""What `lint` found, in paragraphs; and its rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sdyscope.facts.findings import SEVERITIES, Severity
from sdyscope.lint import Linted, Rule, rules_left_out
from sdyscope.lint.document import Lint
from sdyscope.lint.rule import Needs
from sdyscope.terminal.answer import account_paragraphs
from sdyscope.terminal.findings import finding_paragraphs
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Tone
from sdyscope.words.counts import counted
from sdyscope.words.findings import Finding, folded, rules_text
from sdyscope.words.hardware import compiled_text
from sdyscope.words.partitioners import partitioner_names

#: How many rules that had nothing to look at are named.
_FEW = 3

#: And of those that could not be run.
_MANY = 16


def paragraphs(lint: Lint) -> Iterator[Paragraph]:
    """The summary, the findings by severity, and what was not run."""
    if lint.programs:
        yield from _of_programs(lint)
    else:
        yield from _of_one(lint, len(lint.rules))
        missing = _missing(lint).items()
        yield from _not_run([f"{_named(rules, _MANY)}: {why}" for why, rules in missing])
        idle = dict.fromkeys(skipped.rule for skipped in lint.not_run if not skipped.applies)
        if idle:
            yield Paragraph("")
            yield Paragraph(f"not applicable: {_named([*idle], _FEW)}", "muted", 0, 2)
    if rule := next((rule.name for rule in lint.rules if rule.findings), None):
        yield Paragraph("")
        yield Paragraph(f"sdyscope lint --explain {rule} says more about a rule.", "muted", 0, 2)


def _named(rules: Sequence[str], most: int) -> str:
    return ", ".join(rules) if len(rules) <= most else f"{len(rules)} rules (--json lists them)"


def _of_programs(lint: Lint) -> Iterator[Paragraph]:
    """A line for the directory, each program with findings, and then what is alike in several."""
    counts = Counter(
        finding.severity for program in lint.programs for finding in folded(program.findings)
    )
    programs = counted(len(lint.programs), "program")
    yield Paragraph(f"{lint.name}: {programs}, {_counts(counts)}", _summary_tone(counts))
    for program in lint.programs:
        if program.findings:
            yield Paragraph("")
            yield from _of_one(program, len(lint.rules))
    clean = [program.name for program in lint.programs if not program.findings]
    if clean and counts:
        yield Paragraph("")
        yield Paragraph(f"nothing found in {', '.join(clean)}", "good")
    missing: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for program in lint.programs:
        for reason, rules in _missing(program).items():
            missing.setdefault((reason, tuple(rules)), []).append(program.name)
    texts = []
    for (reason, listed), names in missing.items():
        of = "" if len(names) == len(lint.programs) else f"of {', '.join(names)}: "
        texts.append(f"{of}{_named(listed, _MANY)}: {reason}")
    yield from _not_run(texts)
    for program in lint.programs:
        yield from account_paragraphs(program.account, of=program.name)


def _not_run(texts: Sequence[str]) -> Iterator[Paragraph]:
    """What was not run, and why."""
    if texts:
        yield Paragraph("")
        yield Paragraph("not run", "heading")
        yield from (Paragraph(text, "muted", 2, 2) for text in texts)


def _missing(lint: Lint | Linted) -> dict[str, list[str]]:
    """The rules that could not be run, by the reason."""
    rules: dict[str, list[str]] = {}
    for skipped in lint.not_run:
        if skipped.applies and skipped.rule not in rules.setdefault(skipped.reason, []):
            rules[skipped.reason].append(skipped.rule)
    return rules


def _of_one(lint: Lint | Linted, rules: int) -> Iterator[Paragraph]:
    """The summary of one program, with as many rules, and its findings by severity."""
    findings = tuple(folded(lint.findings))
    tone = _summary_tone(Counter(finding.severity for finding in findings))
    yield Paragraph(_summary(lint, rules, findings), tone)
    yield from finding_paragraphs(findings)


def _summary(lint: Lint | Linted, rules: int, findings: Sequence[Finding]) -> str:
    """`mlp: 35 rules under Shardy, 2 warnings; compiled for cpu:8 by JAX 0.10.2`.

    Where some could not be run, `jit_step: 3 of 41 rules, nothing found`.
    """
    not_run = rules_left_out(lint.not_run, is_text=not lint.partitioners)
    under = f" under {partitioner_names(lint.partitioners)}" if lint.partitioners else ""
    start = f"{lint.name}: {rules_text(rules, not_run)}{under}"
    counts = _counts(Counter(finding.severity for finding in findings))
    compiled = compiled_text(lint.hardware, lint.device_kind, by=lint.compiled_by)
    return "; ".join(filter(None, (f"{start}, {counts}", compiled)))


def _counts(counts: Mapping[Severity, int]) -> str:
    """`2 warnings, 1 note`."""
    parts = [counted(counts[each], each) for each in SEVERITIES if counts[each]]
    return ", ".join(parts) or "nothing found"


def _summary_tone(counts: Mapping[Severity, int]) -> Tone:
    return "bad" if counts["error"] else "warning" if counts["warning"] else "good"


def rules_paragraphs(rules: Sequence[Rule]) -> Iterator[Paragraph]:
    """A line a rule, by severity."""
    width = max(len(rule.name) for rule in rules)
    for severity in SEVERITIES:
        chosen = [rule for rule in rules if rule.severity == severity]
        if not chosen:
            continue
        yield Paragraph(f"{severity}s", "heading")
        for rule in chosen:
            yield Paragraph(f"{rule.name:<{width}}  {rule.summary}", "plain", 2, width + 2)
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
