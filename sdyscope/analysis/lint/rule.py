"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from sdyscope.errors import SdyscopeError
from sdyscope.findings import Finding, Severity

if TYPE_CHECKING:
    from sdyscope.analysis.lint.subject import Subject

__all__ = ["Look", "Needs", "NotApplicable", "Rule", "Unavailable"]

Needs: TypeAlias = Literal["lowered", "propagated", "compiled"]
"""The last stage that a rule can't do without. What is compiled is propagated and lowered, too."""

Look: TypeAlias = "Callable[[Subject], Iterable[Finding]]"
"""Looks at one program under one partitioner.

It raises an ``SdyscopeError`` where a stage that it needs is not there: the rule then was not run.
"""


class NotApplicable(SdyscopeError):  # noqa: N818 - a result, named for what it says
    """A rule has nothing to look at in this program; the message says why."""


class Unavailable(SdyscopeError):  # noqa: N818 - likewise
    """What a rule needs was not asked for, or can't be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for.

    Attributes:
        name: stable name, in kebab-case.
        severity: of its findings, the worst where they differ.
        needs: what it looks at.
        summary: what is wrong where it is found, in a line.
        explanation: why that matters, what to do, and what is not found, in paragraphs.
        look: finds it. Findings have the rule's name.
    """

    name: str
    severity: Severity
    needs: Needs
    summary: str
    explanation: str
    look: Look
