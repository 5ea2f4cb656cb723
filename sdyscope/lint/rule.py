"""What a rule is: its documentation and how it looks, in one place; ``words.lint`` says it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from sdyscope.errors import SdyscopeError
from sdyscope.facts.findings import Fact, Observation, Severity
from sdyscope.facts.program import Partitioner
from sdyscope.values.source import SourceLocation

if TYPE_CHECKING:
    from sdyscope.lint.subject import Subject

Needs: TypeAlias = Literal["lowered", "propagated", "compiled"]
"""The last stage that a rule can't do without. What is compiled is propagated and lowered, too."""

Look: TypeAlias = "Callable[[Subject], Iterable[Sighting | Observation]]"
"""Looks at one program under one partitioner; what was seen elsewhere is an ``Observation``.

It raises an ``SdyscopeError`` where a stage that it needs is not there: the rule then was not run.
"""

#: Below this many bytes a step nobody would notice.
FEW_BYTES = 1 << 16


def severity_of(sent: int, *, at_least: bool = False) -> Severity:
    """Of what a device sends for nothing: a note where nobody would notice.

    Args:
        sent: bytes in a step.
        at_least: whether it is more, by an unknown factor.
    """
    return "warning" if sent >= FEW_BYTES or at_least else "note"


class NotApplicable(SdyscopeError):  # noqa: N818 - a result, named for what it says
    """A rule has nothing to look at in this program; the message says why."""


class Unavailable(SdyscopeError):  # noqa: N818 - likewise
    """What a rule needs was not asked for, or can't be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a rule sees: an ``Observation`` but for the rule.

    Attributes:
        fact: what it is.
        tensor: path of the tensor; empty for what is about the whole module.
        kind: what the tensor is (argument, constraint, ...); empty likewise.
        source: the line of user code, where there is one.
        partitioner: whose module it is about; None for all.
        severity: None for the rule's.
    """

    fact: Fact
    tensor: str = ""
    kind: str = ""
    source: SourceLocation | None = None
    partitioner: Partitioner | None = None
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for.

    Attributes:
        name: stable name, in kebab-case.
        severity: of its findings, the worst where they differ.
        needs: what it looks at.
        summary: what is wrong where it is found, in a line.
        explanation: why that matters, what to do, and what is not found: paragraphs of Markdown,
            each a line, with an empty line between two.
        look: finds it.
    """

    name: str
    severity: Severity
    needs: Needs
    summary: str
    explanation: str
    look: Look

    def observations(self, subject: Subject) -> Iterator[Observation]:
        """What it sees, under its name.

        Raises:
            SdyscopeError: it can't be run.
        """
        for seen in self.look(subject):
            if isinstance(seen, Observation):
                yield seen
                continue
            yield Observation(
                self.name,
                seen.severity or self.severity,
                seen.fact,
                seen.tensor,
                seen.kind,
                seen.source,
                seen.partitioner,
            )


def documented(
    name: str, severity: Severity, documentation: str, look: Look, *, needs: Needs = "lowered"
) -> Rule:
    """A rule with its documentation.

    Args:
        name: its name.
        severity: of its findings, the worst where they differ.
        documentation: its summary, an empty line, and its explanation, in lines of any length.
        look: finds it.
        needs: what it looks at.
    """
    parts = inspect.cleandoc(documentation).split("\n\n")
    summary, *explanation = (" ".join(part.split()) for part in parts)
    return Rule(name, severity, needs, summary, "\n\n".join(explanation), look)


def rule(name: str, severity: Severity, *, needs: Needs = "lowered") -> Callable[[Look], Rule]:
    """Makes a rule of a function that looks for something; its docstring documents the rule."""

    def decorate(look: Look) -> Rule:
        return documented(name, severity, look.__doc__ or "", look, needs=needs)

    return decorate
