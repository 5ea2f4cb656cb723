"""Findings: below what a command prints, or all that `check` found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from sdyscope.facts.findings import SEVERITIES, Severity
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Tone
from sdyscope.words.counts import counted
from sdyscope.words.findings import Check, Finding, check_summary, subject_text

#: The tone of what is found, by how severe it is.
TONES: Final[Mapping[Severity, Tone]] = {"error": "bad", "warning": "warning", "note": "muted"}


def finding_paragraphs(findings: Sequence[Finding]) -> Iterator[Paragraph]:
    """Findings by severity, errors first."""
    for severity in SEVERITIES:
        of_severity = [finding for finding in findings if finding.severity == severity]
        if not of_severity:
            continue
        yield Paragraph("")
        tone = TONES[severity]
        yield Paragraph(counted(len(of_severity), severity), tone)
        yield from _group(of_severity, tone)


def _group(findings: Sequence[Finding], tone: Tone) -> Iterator[Paragraph]:
    # A note stays quiet as a whole; of anything worse only the labels are.
    muted: Tone = "muted"
    plain: Tone = "muted" if tone == "muted" else "plain"
    hints: set[str] = set()
    for finding, *others in _alike(findings):
        yield Paragraph("")
        subjects = Counter(map(subject_text, (finding, *others)))
        for subject, times in subjects.items():
            words = f"{subject} (×{times:,})" if times > 1 else subject
            yield Paragraph(words, plain if tone == "muted" else "heading", 2, 2)
        yield Paragraph(finding.message, plain, 4, 0)
        for label, words in (("expected", finding.expected), ("found", finding.found)):
            if words:
                yield Paragraph(f"{label + ':':<10}{words}", plain, 4, 10)
        if finding.hint and finding.hint not in hints:
            hints.add(finding.hint)
            yield Paragraph(finding.hint, muted, 4, 0)


def _alike(findings: Sequence[Finding]) -> Iterable[list[Finding]]:
    """Findings that say the same of several tensors, together, where the first of them was."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        said = (finding.rule, finding.message, finding.expected, finding.found, finding.hint)
        groups.setdefault(said, []).append(finding)
    return groups.values()


def check_paragraphs(check: Check) -> Iterator[Paragraph]:
    """The summary, then the findings by severity."""
    worst = check.findings[0].severity if check.findings else "note"
    yield Paragraph(check_summary(check), "good" if worst == "note" else TONES[worst])
    yield from finding_paragraphs(check.findings)
