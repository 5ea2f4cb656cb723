"""What a finding says beside where it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """The words of a finding; see ``words.findings.Finding``."""

    message: str
    expected: str = ""
    found: str = ""
    hint: str = ""
