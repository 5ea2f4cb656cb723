"""What a search decides: tensors that are sharded alike, and how each of them could be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sdyscope.values.dtypes import num_bytes
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec, entry_axes
from sdyscope.values.source import SourceLocation

Kind: TypeAlias = Literal["argument", "result", "constraint"]

Part: TypeAlias = Literal["searched", "follows", "result"]
"""Why a tensor is decided on: it was asked for, it belongs to an argument (an optimizer's state to
a parameter), or it is a result that is an argument's next value."""

Option: TypeAlias = tuple[tuple[str, ...] | None, ...]
"""Axes of each dimension, major to minor; None for a dimension that is left to the compiler."""

#: A tensor has at most so many options; then the rarer orders of axes are left out.
MOST_OPTIONS = 512


@dataclass(frozen=True, slots=True)
class Member:
    """An argument, result or constraint that a decision is about.

    Attributes:
        kind: what it is.
        name: pytree path; of a constraint its scope.
        number: which argument or result of the module's main function; of a constraint its
            position among all constraints and ``shard_map``s.
        spec: how it is sharded in the program; None where that is left to the compiler.
        part: why it is in the decision.
        donated: whether it is an argument whose buffer is donated.
    """

    kind: Kind
    name: str
    number: int
    spec: PartitionSpec | None
    part: Part
    donated: bool = False

    __document__ = ("kind", "name", "part", "spec")

    def option(self, rank: int) -> Option | None:
        """How it is sharded in the program, as the axes of each dimension."""
        return as_option(self.spec, rank)


Setting: TypeAlias = tuple[Member, PartitionSpec]
"""What to write on one argument, result or constraint from now on."""


@dataclass(frozen=True)
class Decision:
    """Tensors of one shape that are sharded alike, and how they could be.

    Attributes:
        name: the path of the first, with ``*`` for the numbers in which others differ.
        shape: shape of each.
        dtype: MLIR element type of the first.
        members: the tensors.
        options: how they could be sharded; the first is as the program has them, and None where
            that is left open, or is not the same for all.
        option_count: how many options there are.
        now: how those that were asked for are sharded in the program; None where that is left open,
            or they differ.
        differ: whether those are sharded in several ways.
        bytes: bytes of its arguments, or of what is constrained, whole.
        limited: whether there are more options than are tried.
        source: the line of the constraints; None of arguments.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    members: tuple[Member, ...]
    options: tuple[Option | None, ...]
    bytes: int
    limited: bool = False
    source: SourceLocation | None = None
    _near: dict[int, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)
    _settings: dict[int, tuple[Setting, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    __document__ = (
        "name",
        "source",
        "shape",
        "dtype",
        "bytes",
        "now",
        "differ",
        "option_count",
        "limited",
        "members",
    )

    @property
    def now(self) -> PartitionSpec | None:
        """How those that were asked for are sharded in the program, if alike."""
        option = None if self.differ else next(iter(self._asked_for), None)
        return None if option is None else spec_of(option)

    @property
    def differ(self) -> bool:
        """Whether those that were asked for are sharded in several ways in the program."""
        return len(self._asked_for) > 1

    @property
    def _asked_for(self) -> set[Option | None]:
        asked = [member for member in self.members if member.part == "searched"]
        return {member.option(len(self.shape)) for member in asked or self.members}

    @property
    def option_count(self) -> int:
        """How many options there are."""
        return len(self.options)

    def settings(self, number: int) -> tuple[Setting, ...]:
        """What has to be written for an option: what is not written so already."""
        if number not in self._settings:
            option, rank = self.options[number], len(self.shape)
            self._settings[number] = tuple(
                (member, spec_of(option))
                for member in self.members
                if option is not None and member.option(rank) != option
            )
        return self._settings[number]

    def near(self, number: int) -> tuple[int, ...]:
        """Options that differ from one in the place of one axis, or in the order of two.

        What is left open, or goes back to the program's own, is near to everything.
        """
        if number not in self._near:
            here = self.options[number]
            self._near[number] = tuple(
                other
                for other, option in enumerate(self.options)
                if other != number
                and (here is None or option is None or other == 0 or distance(here, option) == 1)
            )
        return self._near[number]

    def effort(self, number: int) -> float:
        """How much an option asks of who writes the program.

        It is 1 for a change, and a little for each axis that shares a dimension with another.
        """
        option = self.options[number]
        if number == 0 or option is None:
            return 0
        return 1 + 0.01 * sum(max(len(part or ()) - 1, 0) for part in option)

    @property
    def is_constraint(self) -> bool:
        """Whether it is about constraints inside the program."""
        return any(member.kind == "constraint" for member in self.members)

    @property
    def tensors(self) -> int:
        """How many arguments it is about."""
        return sum(member.kind == "argument" for member in self.members)


def options(
    shape: Sequence[int],
    axes: Mapping[str, int],
    fixed: Option | None = None,
    most: int = MOST_OPTIONS,
) -> tuple[tuple[Option, ...], bool]:
    """Every way to put axes on dimensions that they divide, and whether some were left out.

    Args:
        shape: shape of the tensor.
        axes: sizes of the axes that may be placed, in the order of the mesh.
        fixed: axes that stay where they are, in front of the others; the sizes of dimensions must
            be given without them.
        most: how many there may be.

    Those that use fewer axes come first.
    """
    before = fixed or ((),) * len(shape)
    names = list(axes)
    options: list[Option] = []
    # First each in the order of the mesh, then in other orders.
    for in_order in (True, False):
        for used in range(len(names) + 1):
            for option in _placed(shape, axes, names, used, in_order):
                if len(options) == most:
                    return tuple(options), True
                options.append(
                    tuple(
                        (own or ()) + (new or ()) for own, new in zip(before, option, strict=True)
                    )
                )
    options.sort(key=_axis_count)
    return tuple(options), False


def _axis_count(option: Option) -> int:
    return sum(len(part or ()) for part in option)


def _placed(
    shape: Sequence[int], axes: Mapping[str, int], names: Sequence[str], used: int, in_order: bool
) -> Iterator[Option]:
    for chosen in itertools.combinations(names, used):
        for dims in itertools.product(range(len(shape)), repeat=used):
            parts: list[list[str]] = [[] for _ in shape]
            for axis, dim in zip(chosen, dims, strict=True):
                parts[dim].append(axis)
            if any(
                size % math.prod(axes[axis] for axis in part)
                for size, part in zip(shape, parts, strict=True)
            ):
                continue
            if in_order:
                yield tuple(map(tuple, parts))
                continue
            orders = itertools.product(*(itertools.permutations(part) for part in parts))
            yield from itertools.islice(orders, 1, None)


def opened(rank: int) -> Option:
    """Every dimension left to the compiler."""
    return (None,) * rank


def distance(option: Option, other: Option) -> int:
    """How many axes have to be moved to come from one to the other; 1 where only order differs.

    What leaves a dimension to the compiler is near to everything.
    """
    if None in option or None in other:
        return int(option != other)
    place = _places(option)
    target = _places(other)
    moved = sum(place.get(axis) != target.get(axis) for axis in {*place, *target})
    return moved or int(option != other)


def _places(option: Option) -> dict[str, int]:
    return {axis: dim for dim, part in enumerate(option) for axis in part or ()}


def spec_of(option: Option) -> PartitionSpec:
    """As JAX writes it, with an entry for each dimension; ``P()`` where nothing is sharded."""
    if not any(option) and None not in option:
        return PartitionSpec()
    return PartitionSpec(tuple(UNCONSTRAINED if part is None else part or None for part in option))


def as_option(spec: PartitionSpec | None, rank: int) -> Option | None:
    """The axes of each dimension; None where some are reduced or unreduced."""
    if spec is None or spec.unreduced or spec.reduced:
        return None
    entries = [None if entry == UNCONSTRAINED else entry_axes(entry) for entry in spec.entries]
    return (*entries, *((),) * (rank - len(spec.entries)))


def kept(option: Option, movable: Iterable[str]) -> Option:
    """What is left of an option without the axes that may be moved."""
    moving = set(movable)
    return tuple(tuple(axis for axis in part or () if axis not in moving) for part in option)


def block_bytes(
    shape: Sequence[int], dtype: str, option: Option | None, sizes: Mapping[str, int]
) -> int:
    """Bytes of what a device holds of a tensor; all of it where nothing is said."""
    if option is None:
        return num_bytes(math.prod(shape), dtype)
    blocks = (
        -(-size // math.prod(sizes[axis] for axis in part or ()))
        for size, part in zip(shape, option, strict=True)
    )
    return num_bytes(math.prod(blocks), dtype)
