"""Types of tensors."""

from __future__ import annotations

from collections.abc import Sequence


def type_text(shape: Sequence[int] | None, dtype: str = "") -> str:
    """`f32[128,256]`; `f32[?]` where the shape is not known, `[128,256]` without a dtype."""
    return f"{dtype}[{'?' if shape is None else ','.join(map(str, shape))}]"
