"""Globs for tensors' names, in which brackets stand for themselves."""

from __future__ import annotations

import re

__all__ = ["glob"]


def glob(text: str) -> re.Pattern[str]:
    """A glob for tensors' names: `*` is anything, `?` one character, brackets are themselves."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c) or re.escape(c) for c in text), re.DOTALL)
