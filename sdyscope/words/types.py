"""Types of tensors."""

from __future__ import annotations

from collections.abc import Sequence


def type_text(shape: Sequence[int] | None, dtype: str = "") -> str:
    """`f32[128,256]`; `f32[?]` where the shape is not known, `[128,256]` without a dtype."""
    return f"{dtype}[{'?' if shape is None else ','.join(map(str, shape))}]"


def shapes_text(shapes: Sequence[object]) -> str:
    """`f32[4,128]`; of several arrays `2 x f32[4,128]`, or one beside the other."""
    first, *rest = map(str, shapes)
    if rest and {first} == set(rest):
        return f"{len(shapes)} x {first}"
    return " ".join((first, *rest))
