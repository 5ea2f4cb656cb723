"""What `check` found, in paragraphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sdyscope.facts.findings import Severity
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import Tone
from sdyscope.words.counts import counted
from sdyscope.words.findings import SEVERITIES, Check, Finding, subject_text

_TONES: Mapping[Severity, Tone] = {"error": "bad", "warning": "warning", "note": "muted"}


def paragraphs(check: Check) -> Iterator[Paragraph]:
    """The summary, then the findings by severity."""
    worst = check.findings[0].severity if check.findings else "note"
    yield Paragraph(summary(check), "good" if worst == "note" else _TONES[worst], hang=2)
    yield from finding_paragraphs(check.findings)


def finding_paragraphs(findings: Sequence[Finding]) -> Iterator[Paragraph]:
    """Findings by severity, errors first."""
    for severity in SEVERITIES:
        found = [finding for finding in findings if finding.severity == severity]
        if not found:
            continue
        yield Paragraph("")
        tone = _TONES[severity]
        yield Paragraph(counted(len(found), severity), tone)
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
    return f"{start}, all agree" + (f"; {counted(len(worse), 'other finding')}" if worse else "")


def _group(findings: Sequence[Finding], tone: Tone) -> Iterator[Paragraph]:
    # A note stays quiet as a whole; of anything worse only the labels are.
    muted: Tone = "muted"
    plain: Tone = "muted" if tone == "muted" else "plain"
    told: set[str] = set()
    for finding, *others in _alike(findings):
        yield Paragraph("")
        subjects = Counter(map(subject_text, (finding, *others)))
        for subject, times in subjects.items():
            words = f"{subject} (×{times:,})" if times > 1 else subject
            yield Paragraph(words, plain if tone == "muted" else "heading", 2, 2)
        yield Paragraph(finding.message, plain, 4)
        for label, words in (("expected", finding.expected), ("found", finding.found)):
            if words:
                yield Paragraph(f"{label + ':':<10}{words}", plain, 4, 10)
        if finding.hint and finding.hint not in told:
            told.add(finding.hint)
            yield Paragraph(finding.hint, muted, 4)


def _alike(findings: Sequence[Finding]) -> Iterable[list[Finding]]:
    """Findings that say the same of several tensors, together, where the first of them was."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        said = (finding.rule, finding.message, finding.expected, finding.found, finding.hint)
        groups.setdefault(said, []).append(finding)
    return groups.values()
