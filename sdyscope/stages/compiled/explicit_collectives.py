"""The collectives of a module in which Shardy has made every resharding one, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from sdyscope.graph.locations import Location
from sdyscope.graph.types import TensorType
from sdyscope.values.explicit_collectives import AllToAllParamList, AxisRefList, ListOfAxisRefLists
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.sharding import TensorSharding

Axes: TypeAlias = AxisRefList | ListOfAxisRefLists | AllToAllParamList | None


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor and its sharding.

    Attributes:
        type: its type; inside a manual computation that of the block of the manual axes.
        sharding: its sharding; None where it is whole on every device.
    """

    type: TensorType
    sharding: TensorSharding | None


@dataclass(frozen=True, slots=True)
class ExplicitCollective:
    """A collective as it stands in the module.

    Attributes:
        op: the op's name: ``sdy.all_gather``, ``stablehlo.all_reduce``; of one that is a custom
            call, what ``collective_of`` calls it.
        operands: what it takes.
        results: what it makes.
        axes: the axes, where axes are written; None of Shardy's permutation.
        groups: of StableHLO's ops the replica groups, or the source-target pairs, where they are.
        pairs: whether ``groups`` are pairs.
        written: the attribute that says so, as text; for large groups how large they are.
        location: scope and source lines.
        times: how often a run of the program runs it.
        unknown_trips: whether a loop around it has an unknown trip count, and counts once.
        conditional: whether it is in a branch.
        dimensions: of an all-reduce over several dimensions the axes of each.
        summed: whether it is an all-reduce whose result is only added to that of another one.
        around: the calls and ``shard_map``s that it is in, from the outermost.
        asynchronous: whether the program starts it, and awaits it later.
        taken: of an all-reduce of which a device takes a slice and nothing else, that slice.
    """

    op: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    axes: Axes
    groups: tuple[tuple[int, ...], ...] | None
    pairs: bool
    written: str
    location: Location
    times: int = 1
    unknown_trips: bool = False
    conditional: bool = False
    dimensions: tuple[tuple[AxisRef, ...], ...] = ()
    summed: bool = False
    around: tuple[Location, ...] = ()
    asynchronous: bool = False
    taken: ExplicitCollective | None = None


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """The loops and conditionals of a module.

    Attributes:
        loops: how many loops there are.
        unknown_trips: how many of them have a trip count that the module does not tell.
        conditionals: how many conditionals there are.
    """

    loops: int = 0
    unknown_trips: int = 0
    conditionals: int = 0


@dataclass(frozen=True, slots=True)
class MovedProducts:
    """Products for which Shardy moves other tensors than XLA's partitioner, as they are smaller.

    * An operand and the result, and not the other operand. Both operands are sharded over the same
      axes, on dimensions that do not meet, as a batch and weights over `fsdp`. XLA leaves the
      result where it is decided to be, and gathers the other operand.
    * Both operands, off the axes that they are summed over and the result is to have. XLA sums, and
      scatters the result.

    Attributes:
        count: how many there are, by how often a run computes them.
        bytes: what a device sends for what XLA moves, by ring algorithms.
    """

    count: int = 0
    bytes: int = 0

    def __add__(self, other: MovedProducts) -> MovedProducts:
        return MovedProducts(self.count + other.count, self.bytes + other.bytes)

    def __mul__(self, times: int) -> MovedProducts:
        return MovedProducts(self.count * times, self.bytes * times)


@dataclass(frozen=True, slots=True)
class ExplicitCollectives:
    """What was found in a module.

    Attributes:
        collectives: those that one run of the program runs, slices included, in order; several
            that are the same are one, as XLA makes them.
        arguments: the arguments of its main function.
        results: the results of its main function.
        meshes: its meshes by name.
        without_rule: how many ops of a name take sharded values and have no sharding rule.
        unknown_calls: how many custom calls there are of a target that may send something.
        between_blocks: how many ops of a name move elements along a sharded dimension, for which
            Shardy inserts nothing and XLA's partitioner may send.
        not_understood: what could not be read, one sentence each.
        flops: floating-point operations of a device in the matmuls of one run.
        control_flow: what of it may run more often, or not at all.
        moved_products: the products of which XLA's partitioner mostly gathers the other operand.
        summed_products: those of which it mostly scatters the result.
    """

    collectives: tuple[ExplicitCollective, ...]
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]
    meshes: dict[str, Mesh]
    without_rule: dict[str, int]
    not_understood: tuple[str, ...]
    flops: int = 0
    unknown_calls: dict[str, int] = field(default_factory=dict)
    between_blocks: dict[str, int] = field(default_factory=dict)
    control_flow: ControlFlow = field(default_factory=ControlFlow)
    moved_products: MovedProducts = field(default_factory=MovedProducts)
    summed_products: MovedProducts = field(default_factory=MovedProducts)
