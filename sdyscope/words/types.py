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


def largest_text(shapes: Sequence[object], tensors: int) -> str:
    """The largest of several tensors, and how many others there are: ``f32[4,128] and 2 more``.

    Args:
        shapes: the arrays of the largest.
        tensors: how many tensors there are.
    """
    return shapes_text(shapes) + (f" and {tensors - 1:,} more" if tensors > 1 else "")
