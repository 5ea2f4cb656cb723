"""What `upgrade` found: of all versions in sum, and of one program as `report A B` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sdyscope.analysis.diff.stages import FigureChange
from sdyscope.errors import TargetError
from sdyscope.page.page import compared_page
from sdyscope.terminal.messages import tell
from sdyscope.upgrade.document import Upgrade
from sdyscope.upgrade.forms import text
from sdyscope.words import upgrade as upgrade_words


def render(upgrade: Upgrade, program: str) -> bytes:
    """The page: all versions in sum, and one program as the last two have it that were compared.

    Args:
        upgrade: what was found.
        program: the program; empty for the one that differs most.

    Raises:
        TargetError: nothing was compared.
    """
    if not upgrade.steps:
        raise TargetError("No two versions were compared, so there is no page to write.")
    step = upgrade.steps[-1]
    fitting = [each for each in step.programs if program in ("", each.name)] or list(step.programs)
    if not fitting:
        raise TargetError(f"{step.a} and {step.b} have no program in common.")
    chosen = max(fitting, key=lambda each: (each.has_details, abs(_sent(each.changes))))
    if len(step.programs) > 1 and not program:
        tell(f"note: the page is about {chosen.name}; --program names another one.")
    a, b = step.views.get(chosen.name, ((), ()))
    labels = step.a, step.b
    without: dict[str, list[str]] = {}
    for label, views in zip(labels, (a, b), strict=True):
        if isinstance(views, str):
            without.setdefault(views, []).append(label)
    missing = [upgrade_words.no_views_text(of, why) for why, of in without.items()]
    sides = None if isinstance(a, str) or isinstance(b, str) else (a, b)
    return compared_page(chosen, labels, _summary(upgrade, missing), sides).encode()


def _summary(upgrade: Upgrade, missing: Sequence[str]) -> dict[str, Any]:
    """What `reports/js/differences/view.js` shows above the comparison."""
    table = text.figures(upgrade)
    paragraphs = [*text.summary(upgrade), *text.accounts(upgrade.accounts)]
    lines = [{"words": line.text, "tone": line.tone} for line in paragraphs if line.text]
    return {
        "lines": [*lines, *({"words": words, "tone": "muted"} for words in missing)],
        "header": [] if table is None else [column.header for column in table.columns],
        "rows": [] if table is None else list(text.row_texts(table)),
    }


def _sent(changes: tuple[FigureChange, ...]) -> float:
    """How many more bytes are sent."""
    return sum(
        (change.b or 0) - (change.a or 0) for change in changes if change.figure == "comms.bytes"
    )
