"""What `ci` found, as GitHub's Markdown: for a step's summary or a pull request's comment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdyscope.views.ci import Ci, CiBudget, CiCheck, CiFinding, CiTarget
from sdyscope.views.ci_text import CHECKS, amount, budget_words, is_over, overview, share, summary
from sdyscope.views.report_markdown import LIMIT, MARKS, ROWS, environment
from sdyscope.views.shardings import shown_name

__all__ = ["markdown"]


@dataclass(frozen=True)
class _Told:
    """The configuration, told as a target is."""

    name: str
    findings: tuple[CiFinding, ...]
    mesh: str = ""
    hardware: str = ""
    skipped: str = ""
    error: None = None
    checks: tuple[CiCheck, ...] = ()


def markdown(found: Ci, *, notes: bool = False) -> str:
    """What was found, never longer than a comment may be.

    Lists get shorter until it fits; what is left out is counted.

    Args:
      found: what was found.
      notes: whether notes are told, too.
    """
    rows = most = ROWS * 8
    while True:
        text = _render(found, rows, most, notes)
        if len(text) <= LIMIT or most == 0:
            return text[:LIMIT]
        # What was found counts more than the list of targets.
        rows, most = rows // 2, most if rows else most // 2


def _render(found: Ci, rows: int, most: int, notes: bool) -> str:
    targets: list[_Told | CiTarget] = [_Told(found.config, found.findings), *found.targets]

    def shown(findings: Sequence[CiFinding]) -> list[CiFinding]:
        return [
            one for one in findings if not one.ignored and (notes or one.finding.severity != "note")
        ]

    def is_told(target: _Told | CiTarget) -> bool:
        errors = any(check.error for check in target.checks)
        return bool(target.skipped or target.error or errors or shown(target.findings))

    return (
        environment()
        .get_template("ci.md.j2")
        .render(
            found=found,
            rows=rows,
            most=most,
            marks=MARKS,
            mark=lambda status: MARKS[("good", "bad", "bad")[status]],
            summary=summary(found),
            checks=CHECKS,
            table=[[cell.text for cell in row] for row in overview(found).cells],
            told=[one for one in targets if is_told(one)],
            shown=shown,
            shown_name=shown_name,
            place=_place,
            budgets=_budgets,
            amount=amount,
            budget_words=budget_words,
            is_over=is_over,
            share=share,
            ignored_of=lambda of: [one for one in of.every_finding if one.ignored],
        )
    )


def _place(one: CiFinding) -> str:
    return one.file if one.line is None else f"{one.file}:{one.line}"


def _budgets(found: Ci) -> list[tuple[str, CiBudget]]:
    return [(target.name, one) for target in found.targets for one in target.budgets]
