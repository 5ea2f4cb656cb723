"""Globs for tensors' names, in which brackets stand for themselves."""

from __future__ import annotations

import re

from sdyscope.annotations import op_text
from sdyscope.values.source import IN_TEXT, SourceLocation


def glob(text: str) -> re.Pattern[str]:
    """A glob for tensors' names: `*` is anything, `?` one character, brackets are themselves."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c) or re.escape(c) for c in text), re.DOTALL)


def matches(text: str, name: str, op: str, source: SourceLocation | None) -> bool:
    """Whether a glob matches a name, that with the op behind it, or the source line.

    A file matches by any end of its path: ``models/mlp.py:98``, ``mlp.py:*``.

    Args:
        text: the glob.
        name: a pytree path or scope.
        op: what JAX calls the op, or its kind.
        source: its line.
    """
    pattern = glob(text)
    if any(pattern.fullmatch(text) for text in (name, f"{name}/{op_text(op)}")):
        return True
    if source is None:
        return False
    line = f"line {source.line}" if source.file == IN_TEXT else f"{source.file}:{source.line}"
    return re.fullmatch(rf"(?:.*[/\\])?(?:{pattern.pattern})", line, re.DOTALL) is not None
