"""The names that libraries give the dimensions of a program's arguments."""

from __future__ import annotations

from typing import Any

import jax

from sdyscope.facts.program import Program

#: What a dimension is called that has no name among others that have.
_UNNAMED = "unnamed"


def argument_axis_names(program: Program) -> tuple[tuple[str, ...] | None, ...]:
    """The names of the dimensions of each flat argument; None for one without.

    Known are Haliax's ``NamedArray`` (``axes``) and Flax's ``LogicallyPartitioned`` (``names``).
    Flax's ``Partitioned`` names mesh axes, and so says nothing here. Nothing is traced.
    """
    leaves = jax.tree.leaves((program.args, dict(program.kwargs)), is_leaf=_is_named)
    return tuple(_names(leaf) if _is_named(leaf) else None for leaf in leaves)


def _is_named(node: Any) -> bool:
    if type(node).__name__ == "LogicallyPartitioned":
        return hasattr(node, "names") and hasattr(node, "value")
    axes = getattr(node, "axes", None)
    return (
        hasattr(node, "array")
        and isinstance(axes, tuple)
        and all(isinstance(getattr(axis, "name", None), str) for axis in axes)
    )


def _names(node: Any) -> tuple[str, ...] | None:
    names = [axis.name for axis in node.axes] if hasattr(node, "axes") else node.names
    if not all(name is None or isinstance(name, str) for name in names):
        return None  # A dimension of several names is no logical axis.
    return tuple(name or _UNNAMED for name in names)
