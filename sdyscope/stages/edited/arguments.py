"""How a program's arguments are sharded, before anything is traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import jax

from sdyscope.facts.program import Program


def argument_shardings(program: Program) -> list[str] | None:
    """How each flat argument is sharded, as a text to compare; None of what was traced before."""
    if not program.args and not program.kwargs:
        return None
    leaves = jax.tree.leaves((program.args, dict(program.kwargs)))
    return [str(getattr(leaf, "sharding", None)) for leaf in leaves]


def argument_positions(program: Program) -> list[int]:
    """Which positional argument each flat one is in; nothing of keyword arguments.

    Static arguments are leaves of their own, and count here as they do for `donate_argnums`.
    """
    return [number for number, value in enumerate(program.args) for _ in jax.tree.leaves(value)]


def resized(program: Program, sizes: Mapping[int, int]) -> Program:
    """A program with other sizes of the first dimension of some arguments.

    Args:
        program: the program.
        sizes: the size, by the flat number of the argument among those that are arrays.
    """
    leaves, tree = jax.tree.flatten((program.args, dict(program.kwargs)))
    arrays = [at for at, leaf in enumerate(leaves) if hasattr(leaf, "shape")]
    for number, size in sizes.items():
        leaf = leaves[arrays[number]]
        leaves[arrays[number]] = jax.ShapeDtypeStruct(
            (size, *leaf.shape[1:]), leaf.dtype, sharding=getattr(leaf, "sharding", None)
        )
    args, kwargs = jax.tree.unflatten(tree, leaves)
    return replace(program, args=args, kwargs=kwargs, inputs=None)
