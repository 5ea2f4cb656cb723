"""How a text is meant; forms of output have a colour or a mark for it."""

from __future__ import annotations

from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["plain", "heading", "good", "bad", "warning", "muted"]
"""``good`` and ``bad`` are verdicts; ``muted`` is what need not be read."""
