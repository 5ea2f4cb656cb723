"""Text that a terminal only shows, whoever wrote the names in it.

Names of modules, meshes and arguments, shardings and recorded command lines come from files of
others. Written raw, an escape sequence in one of them could recolour, overwrite or retitle a
terminal, and a bidirectional control could show a line in another order than it has.
"""

from __future__ import annotations

import re

__all__ = ["printable"]

#: C0 controls but tab and newline, DEL, C1 controls (one of them begins escape sequences too),
#: bidirectional marks, embeddings, overrides and isolates (Unicode Standard Annex 9), separators of
#: lines that are none of ours, and halves of surrogate pairs, which no encoding has.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""The text with what controls a terminal written out: `\u001b`, as JSON has it, too."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
