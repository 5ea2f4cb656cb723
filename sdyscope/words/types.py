"""Types of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from sdyscope.values.dtypes import TOKEN
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec, SpecEntry


def type_text(shape: Sequence[int] | None, dtype: str = "") -> str:
    """`f32[128,256]`; `f32[?]` of an unknown shape; `[128,256]` without a dtype; `token`."""
    if dtype == TOKEN:
        return "token"
    return f"{dtype}[{'?' if shape is None else ','.join(map(str, shape))}]"


def value_type_text(shape: Sequence[int | None] | None, dtype: str) -> str:
    """``f32[16,?]``, with ``?`` for a dynamic dimension; of what is no array its type alone."""
    if shape is None:
        return dtype
    return f"{dtype}[{','.join('?' if size is None else str(size) for size in shape)}]"


def jax_type_text(
    shape: Sequence[int] | None, dtype: str, spec: PartitionSpec | None, axes: Sequence[str] = ()
) -> str:
    """A type with its sharding, as JAX prints it: ``f32[16@data,128]``, ``f32[8]{U:model}``.

    It is what ``jax.typeof`` of an array on Explicit axes says (``jax._src.core.str_short_aval``),
    with a question mark for a dimension that is left to the compiler, which such types can't say.

    Args:
        shape: the shape; None where it is not known.
        dtype: MLIR element type, which is JAX's short name for most.
        spec: how it is sharded; None where nothing says.
        axes: the axes of the mesh, in whose order those that are unreduced or reduced are named.
    """
    if shape is None or spec is None:
        return type_text(shape, dtype)
    entries = (*spec.entries, *(None,) * (len(shape) - len(spec.entries)))
    dims = ",".join(f"{size}{_on(entry)}" for size, entry in zip(shape, entries, strict=True))
    known = [*axes, *sorted((spec.unreduced | spec.reduced) - {*axes})]
    parts = [
        f"{letter}:{_names([axis for axis in known if axis in named])}"
        for letter, named in (("U", spec.unreduced), ("R", spec.reduced))
        if named
    ]
    return f"{_SHORT.get(dtype, dtype)}[{dims}]" + (f"{{{', '.join(parts)}}}" if parts else "")


#: What JAX calls an element type where MLIR's name is another.
_SHORT = {"i1": "bool", "ui8": "u8", "ui16": "u16", "ui32": "u32", "ui64": "u64"}


def _on(entry: SpecEntry) -> str:
    if entry is None:
        return ""
    if entry is UNCONSTRAINED:
        return "@?"
    return f"@{_names(entry)}" if isinstance(entry, tuple) else f"@{entry}"


def _names(axes: Sequence[str]) -> str:
    return axes[0] if len(axes) == 1 else f"({','.join(axes)})"


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
