"""What `check` found, as a document and in paragraphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sdyscope.analysis.check import Check as Checked
from sdyscope.facts.account import Account
from sdyscope.facts.findings import Finding, Severity
from sdyscope.facts.program import Partitioner
from sdyscope.inspection import Inspection
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Tone
from sdyscope.values.source import SourceLocation
from sdyscope.words.counts import counted
from sdyscope.words.places import shown_name, source_text

_TONES: Mapping[Severity, Tone] = {"error": "bad", "warning": "warning", "note": "muted"}
_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class FindingDocument:
    """One thing found.

    Attributes:
      rule: stable name of the rule: `lowered-differs`.
      severity: `error`: the compiler was told something else than was asked for; `warning`: it was
        told the right thing and may do another; `note`: worth knowing.
      message: one sentence.
      tensor: path or scope of the tensor; empty for what is about the whole module.
      kind: what the tensor is; empty likewise.
      source: line of user code, where there is one.
      partitioner: whose module it is about; null for all.
      expected: what was asked for, in words; empty where the message says it all.
      found: what is there, in words; empty likewise.
      hint: what to do; empty where there is nothing to say.
    """

    rule: str
    severity: Severity
    message: str
    tensor: str
    kind: str
    source: SourceLocation | None
    partitioner: Partitioner | None
    expected: str
    found: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The document of `sdyscope check --json`.

    Attributes:
      schema: name and version of this form.
      name: the program's name, or the module's.
      passed: whether there is nothing worse than a note.
      partitioners: whose modules were compared.
      tensors: how many tensors were looked at.
      compared: how many comparisons of a request with a module were made.
      agreed: how many of those agree.
      findings: what was found, errors first.
      account: what is not known of the program, at the stages that were looked at.
    """

    schema: Literal["sdyscope.check/2"] = "sdyscope.check/2"
    name: str
    passed: bool
    partitioners: tuple[Partitioner, ...]
    tensors: int
    compared: int
    agreed: int
    findings: tuple[FindingDocument, ...]
    account: Account


def document(inspection: Inspection, checked: Checked) -> Check:
    """The document of what `Inspection.check` found."""
    findings = sorted(checked.findings, key=lambda finding: _ORDER.index(finding.severity))
    return Check(
        name=inspection.name,
        passed=checked.passed,
        partitioners=tuple(inspection.lowered),
        tensors=checked.tensors,
        compared=checked.compared,
        agreed=checked.agreed,
        findings=tuple(map(finding_document, findings)),
        account=inspection.account,
    )


def finding_document(finding: Finding) -> FindingDocument:
    """The document of one finding."""
    return FindingDocument(
        finding.rule,
        finding.severity,
        finding.message,
        finding.tensor,
        finding.kind,
        finding.source,
        finding.partitioner,
        finding.expected,
        finding.found,
        finding.hint,
    )


def paragraphs(check: Check) -> Iterator[Paragraph]:
    """The summary, then the findings by severity."""
    worst = check.findings[0].severity if check.findings else "note"
    yield Paragraph(summary(check), "good" if worst == "note" else _TONES[worst], hang=2)
    yield from finding_paragraphs(check.findings)


def finding_paragraphs(findings: Sequence[FindingDocument]) -> Iterator[Paragraph]:
    """Findings by severity, errors first."""
    for severity in _ORDER:
        found = [finding for finding in findings if finding.severity == severity]
        if not found:
            continue
        yield Paragraph("")
        tone = _TONES[severity]
        yield Paragraph(f"{len(found)} {severity}{'' if len(found) == 1 else 's'}", tone)
        yield from _group(found, tone)


def summary(check: Check) -> str:
    """`mlp: 44 comparisons under shardy and gspmd, all agree`."""
    under = " and ".join(check.partitioners)
    if not check.compared:
        if check.passed:
            return (
                f"{check.name}: {counted(check.tensors, 'tensor')} for {under} can be read; "
                "what was requested is not known"
            )
        return f"{check.name}: {counted(check.tensors, 'tensor')} for {under}, with findings"
    start = f"{check.name}: {counted(check.compared, 'comparison')} under {under}"
    wrong = check.compared - check.agreed
    if wrong:
        return f"{start}, {wrong:,} {'disagrees' if wrong == 1 else 'disagree'}"
    worse = [finding for finding in check.findings if finding.severity != "note"]
    return f"{start}, all agree" + (f"; {counted(len(worse), 'finding')} besides" if worse else "")


def _group(findings: Sequence[FindingDocument], tone: Tone) -> Iterator[Paragraph]:
    # A note stays quiet as a whole; of anything worse only the labels are.
    muted: Tone = "muted"
    plain: Tone = "muted" if tone == "muted" else "plain"
    told: set[str] = set()
    for finding, *others in _alike(findings):
        yield Paragraph("")
        subjects = Counter(map(_subject, (finding, *others)))
        for subject, times in subjects.items():
            words = f"{subject} ({times:,} alike)" if times > 1 else subject
            yield Paragraph(words, plain if tone == "muted" else "heading", 2, 2)
        yield Paragraph(finding.message, plain, 4)
        for label, words in (("expected", finding.expected), ("found", finding.found)):
            if words:
                yield Paragraph(f"{label + ':':<10}{words}", plain, 4, 10)
        if finding.hint and finding.hint not in told:
            told.add(finding.hint)
            yield Paragraph(finding.hint, muted, 4)


def _alike(findings: Sequence[FindingDocument]) -> Iterable[list[FindingDocument]]:
    """Findings that say the same of several tensors, together, where the first of them was."""
    groups: dict[tuple[str, ...], list[FindingDocument]] = {}
    for finding in findings:
        said = (finding.rule, finding.message, finding.expected, finding.found, finding.hint)
        groups.setdefault(said, []).append(finding)
    return groups.values()


def _subject(finding: FindingDocument) -> str:
    """`constraint layer0 at models/mlp.py:98 under gspmd [lowered-differs]`."""
    name = shown_name(finding.tensor, "")
    parts = [f"{finding.kind} {name}".strip() or "the module"]
    if finding.source is not None:
        parts.append(f"at {source_text(finding.source)}")
    if finding.partitioner is not None:
        parts.append(f"under {finding.partitioner}")
    return f"{' '.join(parts)} [{finding.rule}]"
