"""What `upgrade` found: of all versions in sum, and of one program as `report A B` has it."""

from __future__ import annotations

from typing import Any

from sdyscope.analysis.diff.stages import FigureChange
from sdyscope.errors import TargetError
from sdyscope.page.page import compared_page
from sdyscope.process.output import say
from sdyscope.upgrade.document import Upgrade
from sdyscope.upgrade.forms import text

__all__ = ["render"]


def render(found: Upgrade, program: str) -> bytes:
    """The page: all versions in sum, and one program as the last two have it that were compared.

    Args:
        found: what was found.
        program: the program; empty for the one that differs most.

    Raises:
        TargetError: nothing was compared.
    """
    if not found.steps:
        raise TargetError("No two versions were compared, so there is no page to write.")
    step = found.steps[-1]
    fitting = [one for one in step.programs if program in ("", one.name)] or list(step.programs)
    if not fitting:
        raise TargetError(f"{step.a} and {step.b} have no program in common.")
    chosen = max(fitting, key=lambda one: (one.has_details, abs(_sent(one.changes))))
    if len(step.programs) > 1 and not program:
        say(f"note: the page is about {chosen.name}; --program names another one.")
    return compared_page(chosen, (step.a, step.b), _summary(found)).encode()


def _summary(found: Upgrade) -> dict[str, Any]:
    """What `reports/js/differences/view.js` shows above the comparison."""
    table = text.figures(found)
    return {
        "lines": [{"words": one.text, "tone": one.tone} for one in text.summary(found)],
        "header": [] if table is None else [column.header for column in table.columns],
        "rows": [] if table is None else list(text.row_texts(table)),
    }


def _sent(changes: tuple[FigureChange, ...]) -> float:
    """How many more bytes are sent."""
    return sum((one.b or 0) - (one.a or 0) for one in changes if one.figure == "comms.bytes")
