"""What `ci` found, on a terminal: a line a target, then what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sdyscope.ci import Check, Config
from sdyscope.views.check import FindingDocument, finding_paragraphs
from sdyscope.views.ci import Ci, CiBudget, CiCheck, CiFinding, CiTarget, Status
from sdyscope.views.paragraphs import Paragraph
from sdyscope.views.table import Cell, Column, Table, Tone, number, size

CHECKS: tuple[Check, ...] = ("check", "lint", "snapshot", "budgets")

_STATUS: dict[str, Tone] = {
    "passed": "good",
    "updated": "good",
    "failed": "bad",
    "error": "bad",
    "skipped": "muted",
}


def listed(config: Config) -> Table:
    """The targets of a configuration, and what is done with each."""
    columns = (Column("name"), Column("target"), Column("checks"))
    rows = ((one.name, one.word, ", ".join(one.checks) or "none") for one in config.targets)
    return Table(columns, tuple(rows))


def overview(found: Ci) -> Table:
    """A row a target."""
    checks = (Column(check, fold=False) for check in CHECKS)
    columns = (Column("target"), *checks, number("time"))
    return Table(columns, tuple(map(_row, found.targets)))


def _row(target: CiTarget) -> tuple[Cell, ...]:
    cells = [Cell(target.name, _STATUS[target.status])]
    by_check = {one.check: one for one in target.checks}
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
    worse = [one.finding for one in findings if one.check == done.check and is_worse(one)]
    if not worse:
        return Cell("ok", "good")
    return Cell(counted(worse), "bad" if done.status == "failed" else "warning")


def counted(findings: Sequence[FindingDocument]) -> str:
    """`2 errors`: how many there are of the worst severity."""
    severity = min((one.severity for one in findings), key=("error", "warning", "note").index)
    count = sum(one.severity == severity for one in findings)
    return f"{count:,} {severity}{'' if count == 1 else 's'}"


def is_worse(one: CiFinding) -> bool:
    """Whether a finding is worse than a note, and not ignored."""
    return not one.ignored and one.finding.severity != "note"


def summary(found: Ci) -> str:
    """`3 targets: 2 passed, 1 failed; 4 findings are ignored`."""
    statuses = Counter(one.status for one in found.targets)
    told: dict[Status, str] = {
        "passed": "passed",
        "failed": "failed",
        "error": "could not be done",
    }
    parts = [f"{statuses[key]:,} {words}" for key, words in told.items() if statuses[key]]
    if statuses["skipped"]:
        parts.append(f"{statuses['skipped']:,} skipped")
    ignored = sum(bool(one.ignored) for one in found.every_finding)
    count = len(found.targets)
    words = f"{count:,} target{'' if count == 1 else 's'}: {', '.join(parts)}"
    if ignored:
        words += f"; {_findings(ignored)} ignored"
    return words


def _findings(count: int) -> str:
    return f"{count:,} finding{' is' if count == 1 else 's are'}"


def paragraphs(found: Ci, *, notes: bool = False) -> Iterator[Paragraph]:
    """The summary, and what was found of each target.

    Args:
      found: what was found.
      notes: whether notes are told, too.
    """
    yield Paragraph("")
    yield Paragraph(summary(found), "good" if found.passed else "bad", hang=2)
    hidden = sum(one.finding.severity == "note" and not one.ignored for one in found.every_finding)
    if hidden and not notes:
        yield Paragraph(f"{hidden:,} note{'' if hidden == 1 else 's'}: --notes", "muted", hang=2)
    for file in found.updated:
        yield Paragraph(f"{file} is written anew", "good", hang=2)
    if found.findings:
        yield Paragraph("")
        yield Paragraph(found.config, "heading")
        yield from _told(found.findings, notes)
    for target in found.targets:
        yield from _target(target, notes)


def _target(target: CiTarget, notes: bool) -> Iterator[Paragraph]:
    errors = [(one.check, one.error.text) for one in target.checks if one.error is not None]
    findings = list(_told(target.findings, notes))
    not_run = [line for one in target.checks for line in one.not_run] if notes else []
    if not (target.skipped or target.error or errors or findings or not_run):
        return
    yield Paragraph("")
    yield Paragraph(
        " - ".join(filter(None, (target.name, target.mesh, target.hardware))), "heading"
    )
    if target.skipped:
        yield Paragraph(target.skipped, "muted", 2)
    if target.error is not None:
        yield Paragraph(target.error.text, "bad", 2)
    for check, error in errors:
        yield Paragraph(f"{check} could not be done: {error}", "bad", 2, 2)
    yield from findings
    for line in not_run:
        yield Paragraph(f"not run: {line}", "muted", 2, 2)


def _told(findings: Sequence[CiFinding], notes: bool) -> Iterator[Paragraph]:
    told = [
        one.finding
        for one in findings
        if not one.ignored and (notes or one.finding.severity != "note")
    ]
    yield from finding_paragraphs(told)


def budgets(target: CiTarget) -> Table:
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
            Cell(budget_words(one)),
            Cell(one.partitioner, "muted"),
            Cell("not known" if one.used is None else amount(one, one.used)),
            Cell(amount(one, one.allowed)),
            Cell(share(one), "bad" if is_over(one) else "plain"),
        )
        for one in target.budgets
    )
    return Table(columns, tuple(rows), f"{target.name}: budgets, for each device and step")


def budget_words(one: CiBudget) -> str:
    """What a budget is about: `all-gather over model, count`."""
    return f"{one.words}, count" if one.unit == "collectives" else one.words


def is_over(one: CiBudget) -> bool:
    """Whether more is used than is allowed."""
    return one.used is not None and one.used > one.allowed


def amount(one: CiBudget, count: int) -> str:
    """`16.0 KiB` of bytes, else a number."""
    return size(count) if one.unit == "bytes" else f"{count:,}"


def share(one: CiBudget) -> str:
    """`82 %` of what is allowed."""
    if one.used is None or not one.allowed:
        return "-" if not one.used else "over"
    return f"{100 * one.used / one.allowed:,.0f} %"
