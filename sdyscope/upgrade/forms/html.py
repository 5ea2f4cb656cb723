"""What `upgrade` found of one program, as the page of two sides that `report A B` writes."""

from __future__ import annotations

from sdyscope.analysis.diff.stages import FigureChange
from sdyscope.errors import TargetError
from sdyscope.page.page import compared_page
from sdyscope.process.output import say
from sdyscope.upgrade.document import Upgrade

__all__ = ["render"]


def render(found: Upgrade, program: str) -> bytes:
    """The page of one program, as the first and the last version have it that were compared.

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
    return compared_page(chosen, (step.a, step.b)).encode()


def _sent(changes: tuple[FigureChange, ...]) -> float:
    """How many more bytes are sent."""
    return sum((one.b or 0) - (one.a or 0) for one in changes if one.figure == "comms.bytes")
