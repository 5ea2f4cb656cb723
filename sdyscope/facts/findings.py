"""Findings: something wrong, or worth a look, about one tensor or a whole module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.facts.program import Partitioner
from sdyscope.values.source import SourceLocation

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: something else happens than was asked for, or numbers are wrong; ``warning``: it costs
more than it need, or the compiler may do another thing than was meant; ``note``: worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Attributes:
        rule: stable name of the rule: ``lowered-differs``.
        severity: see ``Severity``.
        message: one sentence, in words.
        tensor: path of the tensor; empty for what is about the whole module.
        kind: what the tensor is (argument, constraint, ...); empty likewise.
        source: the line of user code, where there is one.
        partitioner: whose module it is about; None for all.
        expected: the placement that was asked for, in words.
        found: the placement that is there, in words.
        hint: what to do.
    """

    rule: str
    severity: Severity
    message: str
    tensor: str = ""
    kind: str = ""
    source: SourceLocation | None = None
    partitioner: Partitioner | None = None
    expected: str = ""
    found: str = ""
    hint: str = ""
