"""What `ci` found, as GitHub's Markdown: for a step's summary or a pull request's comment."""

from __future__ import annotations

from sdyscope.ci.config import CHECKS
from sdyscope.ci.document import Ci, CiFinding
from sdyscope.ci.forms import text
from sdyscope.ci.forms.renderer import Reader
from sdyscope.page.markdown import LIMIT, MARKS, ROWS, environment


def render(document: Ci, reader: Reader) -> bytes:
    """What was found, in UTF-8, never longer than a comment may be.

    Lists get shorter until it fits; what is left out is counted.
    """
    rows = most = ROWS * 8
    while True:
        page = _render(document, rows, most, reader.notes)
        if len(page) < LIMIT or most == 0:
            return f"{page[: LIMIT - 1]}\n".encode()
        # What was found counts more than the list of targets.
        rows, most = rows // 2, most if rows else most // 2


def _render(document: Ci, rows: int, most: int, notes: bool) -> str:
    return (
        environment()
        .get_template("ci.md.j2")
        .render(
            found=document,
            rows=rows,
            most=most,
            marks=MARKS,
            mark=lambda status: MARKS[("good", "bad", "bad")[status]],
            summary=text.summary(document),
            checks=CHECKS,
            table=[[cell.text for cell in row] for row in text.overview(document).cells],
            sections=list(document.sections(notes)),
            place=_place,
            budgets=[
                (target.name, budget) for target in document.targets for budget in target.budgets
            ],
            amount=text.amount,
            budget_words=text.budget_words,
            is_over=text.is_over,
            share=text.share,
            remedies=[target for target in document.targets if target.remedy is not None],
            ignored=[finding for finding in document.every_finding if finding.ignored],
        )
    )


def _place(finding: CiFinding) -> str:
    return finding.file if finding.line is None else f"{finding.file}:{finding.line}"
