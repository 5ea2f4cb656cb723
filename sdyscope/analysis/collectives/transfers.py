"""What a collective communicates, and what is known of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from sdyscope.analysis.collectives.totals import Collective, Part
from sdyscope.analysis.propagation.axis_parts import AxisPart
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op

#: Collectives that reduce what devices have.
REDUCTIONS: Final = ("all-reduce", "reduce-scatter")

#: Collectives by which devices give each other their blocks.
EXCHANGES: Final = ("collective-permute", "all-to-all")


@dataclass(frozen=True)
class Transfer:
    """A tensor that a collective communicates, and what is known of it.

    Attributes:
        collective: what communicates it.
        part: the tensor.
        axes: the axes of the mesh that it is communicated over.
        ops: the ops that it is for, each behind the product that XLA turns.
        makers: the ops that make the value, likewise, where these are others and are known.
        values: the values that it may be; empty where that is not known.
    """

    collective: Collective
    part: Part
    axes: tuple[AxisPart, ...]
    ops: tuple[Op, ...]
    makers: tuple[Op, ...]
    values: frozenset[ValueId]

    def over(self, axes: tuple[AxisPart, ...]) -> Transfer:
        """The same, were it over other axes: those that XLA moves the value from first."""
        return replace(self, axes=axes)

    @property
    def kind(self) -> str:
        """What the collective does."""
        return self.collective.kind

    @property
    def is_gather(self) -> bool:
        """Whether devices get what others have besides their own."""
        return self.kind == "all-gather"

    @property
    def is_permutation(self) -> bool:
        """Whether each device gives its block to another."""
        return self.kind == "collective-permute"

    @property
    def is_exchange(self) -> bool:
        """Whether devices give each other their blocks, or pieces of them."""
        return self.kind in EXCHANGES

    @property
    def is_reduction(self) -> bool:
        """Whether what the devices have is summed, or reduced otherwise."""
        return self.kind in REDUCTIONS

    @property
    def calls(self) -> tuple[int, ...]:
        """The calls that lead to what it is for, or else to what makes it."""
        return calls_of(self.part)

    @cached_property
    def pieces(self) -> list[tuple[int, ...]]:
        """The shapes of the arrays that it is in."""
        return [tuple(leaf.dimensions) for leaf in self.part.shape.leaves]

    @cached_property
    def sizes(self) -> list[list[int]]:
        """As ``pieces``, whatever the order of the dimensions and without those of one element."""
        return [sizes_of(piece) for piece in self.pieces]

    @cached_property
    def elements(self) -> int:
        """How many elements it has."""
        return sum(map(math.prod, self.pieces))


def calls_of(part: Part) -> tuple[int, ...]:
    """The calls that lead to what a tensor is for, or else to what makes it."""
    return next((path[:-1] for path in (*part.tags, *part.makers) if len(path) > 1), ())


def sizes_of(shape: Sequence[int]) -> list[int]:
    """The sizes of a shape, smallest first, without those of one element."""
    return sorted(size for size in shape if size != 1)
