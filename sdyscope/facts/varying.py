"""Where a `shard_map` has a value that varies over mesh axes and one that should not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

VaryingPlace: TypeAlias = Literal["result", "carry", "branch", "gradient"]
"""What the check is about: a result that `out_specs` has whole, a loop's carry, the branches of a
`cond`, or the gradient that a `custom_vjp` returns."""


@dataclass(frozen=True, slots=True)
class Varying:
    """What `check_vma` refuses.

    Attributes:
        place: what it is about.
        value: which value, as JAX names it: ``out_specs['a']``, the carry ``c``, the path of a
            branch's output (empty where it returns one), ``output[0]`` of a backward rule.
        axes: the axes over which it varies and should not; of a carry or a branch those over which
            it has to and does not.
        spec: of a result its ``out_specs``, as JAX prints it.
        function: the function that returns it; empty where JAX does not say.
        cast: the function of ``jax.lax`` that makes a value vary: ``pcast``, or ``pvary`` in a JAX
            that has no ``pcast``.
    """

    place: VaryingPlace
    value: str
    axes: tuple[str, ...]
    spec: str = ""
    function: str = ""
    cast: str = "pcast"
