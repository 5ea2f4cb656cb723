"""What `ci` found, on a terminal: a line a target, then what was found."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Sequence

from sdyscope.ci.config import CHECKS, Config
from sdyscope.ci.document import (
    Ci,
    CiBudget,
    CiCheck,
    CiFinding,
    CiRemedy,
    CiTarget,
    Section,
    Status,
)
from sdyscope.ci.forms.renderer import Reader
from sdyscope.facts.findings import SEVERITIES
from sdyscope.process.output import Output
from sdyscope.terminal.findings import finding_paragraphs
from sdyscope.terminal.paragraphs import Paragraph, print_paragraphs
from sdyscope.terminal.table import Cell, Column, Table, Tone, number, print_table
from sdyscope.words.ci import BUDGETS
from sdyscope.words.counts import counted, size
from sdyscope.words.findings import Finding
from sdyscope.words.partitioners import partitioner_name

_STATUS: dict[str, Tone] = {
    "passed": "good",
    "updated": "good",
    "failed": "bad",
    "error": "bad",
    "skipped": "muted",
}


_OUTCOMES: dict[Status, str] = {
    "passed": "passed",
    "failed": "failed",
    "error": "errored",
    "skipped": "skipped",
}


def render(document: Ci, reader: Reader) -> bytes:
    """The tables and sentences, as wide as the reader's terminal."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=reader.encoding, errors="backslashreplace")
    here = Output(stream, reader.terminal, reader.columns)
    print_table(overview(document), here)
    print_paragraphs(_paragraphs(document, reader.notes), here)
    for target in document.targets:
        if target.remedy is not None:
            here.write("")
            print_paragraphs(_remedy(target.name, target.remedy), here)
            here.write("")
            here.write(target.remedy.patch.rstrip("\n"))
    for target in (target for target in document.targets if reader.budgets and target.budgets):
        here.write("")
        print_table(_budgets(target), here)
    stream.flush()
    return raw.getvalue()


def listed(config: Config) -> Table:
    """The targets of a configuration, and what is done with each."""
    columns = (Column("name"), Column("target"), Column("checks"))
    rows = (
        (target.name, target.word, ", ".join(target.checks) or "none") for target in config.targets
    )
    return Table(columns, tuple(rows))


def overview(document: Ci) -> Table:
    """A row a target."""
    checks = (Column(check, fold=False) for check in CHECKS)
    columns = (Column("target"), *checks, number("time"))
    return Table(columns, tuple(map(_row, document.targets)))


def _row(target: CiTarget) -> tuple[Cell, ...]:
    cells = [Cell(target.name, _STATUS[target.status])]
    by_check = {check.check: check for check in target.checks}
    for check in CHECKS:
        done = by_check.get(check)
        if done is None:
            word = "-"
            if check in target.configured and not by_check:
                word = {"error": "error", "skipped": "skipped"}.get(target.status, word)
            cells.append(Cell(word, "bad" if word == "error" else "muted"))
        else:
            cells.append(_cell(done, target.findings))
    return (*cells, Cell(f"{target.seconds:.1f} s" if target.seconds else "-", "muted"))


def _cell(done: CiCheck, findings: Sequence[CiFinding]) -> Cell:
    if done.status in ("error", "updated"):
        return Cell(done.status, _STATUS[done.status])
    worse = [
        finding.finding
        for finding in findings
        if finding.check == done.check and finding.is_shown()
    ]
    if not worse:
        return Cell("ok", "good")
    return Cell(_worst(worse), "bad" if done.status == "failed" else "warning")


def _worst(findings: Sequence[Finding]) -> str:
    """`2 errors`: how many there are of the worst severity."""
    severity = min((finding.severity for finding in findings), key=SEVERITIES.index)
    return counted(sum(finding.severity == severity for finding in findings), severity)


def summary(document: Ci) -> str:
    """`3 targets: 2 passed, 1 failed; 4 findings ignored`."""
    statuses = Counter(target.status for target in document.targets)
    parts = [f"{statuses[key]:,} {word}" for key, word in _OUTCOMES.items() if statuses[key]]
    ignored = sum(bool(entry.ignored) for entry in document.every_finding)
    more = f"; {counted(ignored, 'finding')} ignored" if ignored else ""
    return f"{counted(len(document.targets), 'target')}: {', '.join(parts)}{more}"


def _paragraphs(document: Ci, notes: bool) -> Iterator[Paragraph]:
    """The summary, and what was found of each target."""
    yield Paragraph("")
    yield Paragraph(summary(document), "good" if document.passed else "bad")
    hidden = sum(
        entry.is_shown(True) and not entry.is_shown(notes) for entry in document.every_finding
    )
    if hidden:
        yield Paragraph(f"{counted(hidden, 'note')}: --notes", "muted")
    for file in document.updated:
        yield Paragraph(f"{file} is rewritten", "good")
    for section in document.sections(notes):
        yield from _section(section)


def _section(section: Section) -> Iterator[Paragraph]:
    yield Paragraph("")
    heading = " - ".join(filter(None, (section.name, section.mesh, section.hardware)))
    yield Paragraph(heading, "heading")
    if section.skipped:
        yield Paragraph(section.skipped, "muted", 2)
    for error in section.errors:
        yield Paragraph(error, "bad", 2, 2)
    yield from finding_paragraphs([finding.finding for finding in section.findings])
    for line in section.not_run:
        yield Paragraph(f"not run: {line}", "muted", 2, 2)


def _remedy(name: str, remedy: CiRemedy) -> Iterator[Paragraph]:
    yield Paragraph(f"{name} - remedy", "heading")
    yield Paragraph(remedy.edits, indent=2)
    yield Paragraph(remedy.gain, "good", 2, 2)
    for text in remedy.proof:
        yield Paragraph(text, "muted", 2, 2)


def _budgets(target: CiTarget) -> Table:
    """The budgets of one target: what is used, and what is allowed."""
    columns = (
        Column("budget"),
        Column("under", fold=False),
        number("used"),
        number("allowed"),
        number("share"),
    )
    rows = (
        (
            Cell(budget_words(budget)),
            Cell(partitioner_name(budget.partitioner), "muted"),
            Cell("not known" if budget.used is None else amount(budget, budget.used)),
            Cell(amount(budget, budget.allowed)),
            Cell(share(budget), "bad" if is_over(budget) else "plain"),
        )
        for budget in target.budgets
    )
    return Table(columns, tuple(rows), f"{target.name}: {BUDGETS}")


def budget_words(ci_budget: CiBudget) -> str:
    """What a budget is about: `all-gather over model, count`."""
    return f"{ci_budget.words}, count" if ci_budget.unit == "collectives" else ci_budget.words


def is_over(ci_budget: CiBudget) -> bool:
    """Whether more is used than is allowed."""
    return ci_budget.used is not None and ci_budget.used > ci_budget.allowed


def amount(ci_budget: CiBudget, count: int) -> str:
    """`16.0 KiB` of bytes, else a number."""
    return size(count) if ci_budget.unit == "bytes" else f"{count:,}"


def share(ci_budget: CiBudget) -> str:
    """`82%` of what is allowed."""
    if ci_budget.used is None or not ci_budget.allowed:
        return "-" if not ci_budget.used else "over"
    return f"{100 * ci_budget.used / ci_budget.allowed:,.0f}%"
