"""The values inside of a program: those of its body, or of a loop's or a shard_map's in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.values.source import SourceLocation

Place: TypeAlias = tuple[tuple[int, ...], int]
"""An equation, by its number in each jaxpr around it, and which of its results.

Behind the number of a `cond` is that of the branch."""


@dataclass(frozen=True, slots=True)
class InnerValue:
    """What an op inside of a program makes.

    Attributes:
        place: where it is.
        op: the op's primitive, as JAX calls it.
        scope: where in the program, as JAX names it in the IR.
        source: the line that it comes from; None where none is the user's.
        dtype: its element type; empty for what can't be compared, such as a token.
        shape: its shape.
        size: its bytes.
        inputs: numbers, at its level, of the values that it is made of; what comes from outside is
            not among them.
        body: whether its op has a body into which one can look.
        operands: the shapes of what the op takes, literals included.
        branches: how many bodies a `cond` has, one of which it runs.
        chosen_by: the number of the value that says which; None where it comes from outside.
        over: the mesh axes that a collective names, in its order.
    """

    place: Place
    op: str
    scope: str
    source: SourceLocation | None
    dtype: str
    shape: tuple[int, ...]
    size: int
    inputs: tuple[int, ...]
    body: Literal["", "scan", "shard_map", "cond"] = ""
    operands: tuple[tuple[int, ...], ...] = ()
    branches: int = 0
    chosen_by: int | None = None
    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """A loop or a shard_map around a level: values inside have dimensions in front for it.

    Attributes:
        kind: which of the two.
        sizes: how often the loop runs; or the sizes of the shard_map's axes.
        other_sizes: likewise in the counterpart.
        axes: the axes of a shard_map.
        reverse: whether the loop runs from its last iteration to its first.
    """

    kind: Literal["scan", "shard_map"]
    sizes: tuple[int, ...]
    other_sizes: tuple[int, ...]
    axes: tuple[str, ...] = ()
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class InnerLevel:
    """The values of a body, those of the functions that it calls included.

    Attributes:
        values: in the order of execution.
        results: the number of each result of the body; None for what is not made in it.
        frames: the loops and shard_maps around, outermost first.
        counterparts: the same values in the counterpart; empty where that is the same jaxpr.
    """

    values: tuple[InnerValue, ...]
    results: tuple[int | None, ...]
    frames: tuple[Frame, ...] = ()
    counterparts: tuple[InnerValue, ...] = ()


class OtherOps(Exception):  # noqa: N818 - what is compared is no error
    """The counterpart has other ops than the program."""
