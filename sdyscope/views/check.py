"""What `check` found, in paragraphs."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.terminal.findings import TONES, finding_paragraphs
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.words.findings import Check, check_summary


def paragraphs(check: Check) -> Iterator[Paragraph]:
    """The summary, then the findings by severity."""
    worst = check.findings[0].severity if check.findings else "note"
    yield Paragraph(check_summary(check), "good" if worst == "note" else TONES[worst])
    yield from finding_paragraphs(check.findings)
