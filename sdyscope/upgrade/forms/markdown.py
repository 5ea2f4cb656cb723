"""What `upgrade` found, as GitHub's Markdown: for a pull request's comment."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

from sdyscope.page.markdown import LIMIT, MARKS, environment
from sdyscope.process.output import Output
from sdyscope.terminal.paragraphs import Paragraph, print_parts
from sdyscope.terminal.table import Table
from sdyscope.upgrade.document import Upgrade
from sdyscope.upgrade.forms import text
from sdyscope.words.remarks import remark_texts

#: How wide details are, which stand as on a terminal, and how many lines of each.
_COLUMNS = 100
_LINES = 400


def render(upgrade: Upgrade) -> bytes:
    """What was found, in UTF-8, never longer than a comment may be.

    Details get shorter until it fits; what is left out is counted.
    """
    lines = _LINES
    while True:
        data = _render(upgrade, lines).encode()
        if len(data) < LIMIT or not lines:
            return data
        lines //= 2


def _render(upgrade: Upgrade, lines: int) -> str:
    table = text.figures(upgrade)
    details = [
        (f"{step.a} → {step.b}", _block(text.details(upgrade, step), lines))
        for step in upgrade.steps
        if not step.same
    ]
    if not_known := sum(sum(known.account.counts.values()) for known in upgrade.accounts):
        title = f"not known ({not_known:,})"
        details.append((title, _block(text.accounts(upgrade.accounts), lines)))
    if upgrade.bisection is not None:
        details.append(("where it began", _block(text.bisected(upgrade.bisection), lines)))
    return (
        environment()
        .get_template("upgrade.md.j2")
        .render(
            mark=MARKS["good" if upgrade.passed else "bad"],
            bad=MARKS["bad"],
            target=upgrade.target,
            headlines=[text.headline(upgrade.target, step).text for step in upgrade.steps],
            versions=text.versions_text(upgrade.sides),
            failures=[
                *(side.failure for side in upgrade.sides if side.failure),
                *(
                    f"{side.label}: {problem}"
                    for side in upgrade.sides
                    for problem in remark_texts(side.problems)
                ),
                *(
                    [f"not bisected: {upgrade.bisection_missing}"]
                    if upgrade.bisection_missing
                    else []
                ),
            ],
            header=() if table is None else [column.header for column in table.columns],
            rows=() if table is None else list(text.row_texts(table)),
            over=[
                finding
                for program in (upgrade.sides[-1].programs if upgrade.sides else ())
                for finding in program.over
            ],
            details=details,
        )
    )


def _block(parts: Iterable[Paragraph | Table], most: int) -> str:
    """Tables and paragraphs as a block of code, whatever is in them."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8")
    here = Output(stream, terminal=False, columns=_COLUMNS)
    print_parts(parts, here)
    stream.flush()
    lines = raw.getvalue().decode().strip("\n").splitlines()
    shown = [line.rstrip() for line in lines[:most]]
    if len(lines) > most:
        shown.append(f"and {len(lines) - most:,} more lines")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", "\n".join(shown))), default=0))
    return "\n".join((f"{fence}text", *shown, fence))
