"""What came of a target, as it is handed from the process that looked at it."""

from __future__ import annotations

from dataclasses import dataclass

from sdyscope.analysis.budgets import Spent
from sdyscope.ci.config import Check
from sdyscope.errors import SdyscopeError
from sdyscope.findings import Finding
from sdyscope.program import Partitioner
from sdyscope.source import SourceLocation

__all__ = ["CheckOutcome", "Found", "Outcome", "Trouble"]


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, and where to show it.

    Attributes:
        check: what found it.
        finding: the finding.
        place: the line of the program, of the golden file or of the configuration that is to be
            looked at.
        otherwise: the line to look at where that one is in a file of somebody else's.
        ignored: why it is ignored; empty where it is not.
    """

    check: Check
    finding: Finding
    place: SourceLocation
    otherwise: SourceLocation
    ignored: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something could not be done.

    Attributes:
        text: the error.
        place: the line that it is about, where there is one.
    """

    text: str
    place: SourceLocation | None = None

    @classmethod
    def of(cls, error: SdyscopeError) -> Trouble:
        """What an error says."""
        if error.file is None or error.line is None:
            return cls(str(error))
        return cls(str(error), SourceLocation(error.file, error.line, (error.column or 1) - 1))


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What one check of a target came to.

    Attributes:
        check: which.
        words: what was looked at: ``44 comparisons``.
        seconds: how long it took, with whatever stage was first asked for.
        trouble: why it could not be done; None where it could.
        not_run: rules that could not be run, each with the reason.
    """

    check: Check
    words: str
    seconds: float
    trouble: Trouble | None = None
    not_run: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one target.

    Attributes:
        name: the target's.
        program: the program's name.
        jax: the version of JAX.
        mesh: the meshes in words.
        partitioners: under which it was lowered.
        hardware: what it was compiled for; empty where it was not.
        seconds: how long all of it took, with the program's own making.
        checks: the checks, in order.
        found: all findings, the ignored ones included.
        spent: the budgets.
        used_ignores: which of the ignores for all targets matched something, by number.
        snapshot: the text of its snapshot; empty without one.
        trouble: why nothing could be done; None otherwise.
    """

    name: str
    program: str = ""
    jax: str = ""
    mesh: str = ""
    partitioners: tuple[Partitioner, ...] = ()
    hardware: str = ""
    seconds: float = 0.0
    checks: tuple[CheckOutcome, ...] = ()
    found: tuple[Found, ...] = ()
    spent: tuple[Spent, ...] = ()
    used_ignores: tuple[int, ...] = ()
    snapshot: str = ""
    trouble: Trouble | None = None
