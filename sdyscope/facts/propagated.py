"""What a partitioner's propagation decided, value by value, beside the lowered module.

Values are those of the lowered module's op graph: result ``result`` of node ``op``, block arguments
and what main returns included. A value that the compiler folded or merged away on its way to the
partitioner is listed with its fate, never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, overload

from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import PropagationSource, Remark
from sdyscope.facts.sharded import byte_count
from sdyscope.formatters import Summarized
from sdyscope.graph import NotUnderstood, OpGraph, Sharding, TensorType
from sdyscope.graph import ValueId as ValueId
from sdyscope.values.mesh import AxisRef
from sdyscope.values.placement import Placement
from sdyscope.values.propagation_edges import EdgeNodeType, OriginSharding
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import SourceLocation

Fate: TypeAlias = Literal["kept", "merged", "folded", "not partitioned"]
"""``kept``: the partitioner has this value; ``merged``: it has one value for this and others;
``folded``: it is gone, as constants and what is computed from them are; ``not partitioned``: it has
no sharding by nature (a token, a value inside a reduction's body)."""

Origins: TypeAlias = tuple[tuple[AxisRef, OriginSharding], ...]
"""For each axis on a value, a user's annotation that it comes from."""

Exactness: TypeAlias = Literal["exact", "approximate"]
"""``exact``: by a recipe whose result a test compares with XLA's own dump, or the dump itself."""


class PropagatedValue(NamedTuple):
    """One value of the lowered module after propagation.

    There is one for each, tens of thousands: see ``graph.Op``.

    Attributes:
        id: which value.
        fate: what became of it on the way to the partitioner.
        sharding: what the partitioner decided; None where it has no such value, or left it
            without a sharding (which is replicated).
        placement: where that puts every block; None likewise, or where it has no placement.
        node: the value's producer in the propagated graph; None where the value is gone.
        result: which of its results.
        values: all values of the lowered module that became the same one, this one among them;
            nothing where it is gone.
        calls: of a value of a function that is called several times, where it is at each call, in
            order; nothing where that is the same at all of them.
        counterparts: likewise, which value of the propagated graph it is at each call; None where
            it is gone.
        read_origins: reads ``origins``, which are not asked of every value.
    """

    id: ValueId
    fate: Fate
    sharding: Sharding | None = None
    placement: Placement | None = None
    node: int | None = None
    result: int = 0
    values: tuple[ValueId, ...] = ()
    calls: tuple[Placement | None, ...] = ()
    counterparts: tuple[ValueId | None, ...] = ()
    read_origins: Callable[[], Origins] | None = None

    @property
    def origins(self) -> Origins:
        """For each axis, the user's annotation that it comes from (Shardy only)."""
        return () if self.read_origins is None else self.read_origins()

    @property
    def merged_with(self) -> tuple[ValueId, ...]:
        """Other values of the lowered module that became the same one."""
        return tuple(value for value in self.values if value != self.id)

    def placed(self, rank: int) -> Placement | None:
        """Where every block is: what was left without a sharding is whole on every device."""
        if self.placement is None and self.sharding is None and self.node is not None:
            return _whole(rank)
        return self.placement

    def placed_at_calls(self, rank: int) -> tuple[Placement, ...]:
        """The same at each call of its function; nothing where that is the same at all of them."""
        places = tuple(
            _whole(rank) if place is None else place.without_manual for place in self.calls
        )
        return places if any(place != places[0] for place in places) else ()


def _whole(rank: int) -> Placement:
    """Whole on every device, which is equal for any number of them."""
    return Placement(1, ((),) * rank)


class PropagationStep(NamedTuple):
    """One move of one axis: in step ``number``, from a value to others, through an op.

    Attributes:
        number: Shardy's number of the step, from 0.
        axis: the axis or sub-axis that moved.
        op: node in the propagated graph that it moved through.
        source: operand or result that it came from, and which.
        targets: operands and results that it went to.
    """

    number: int
    axis: AxisRef
    op: int
    source: tuple[EdgeNodeType, int]
    targets: tuple[tuple[EdgeNodeType, int], ...]


class Steps(Sequence[PropagationStep]):
    """The steps of a propagation in their order, read from the compiler's attributes when needed.

    Args:
        ops: nodes of the ops that have steps written on them.
        read: the steps that are written on one of them, in order.
        others: steps that are written elsewhere, about an op or what is around it.
    """

    def __init__(
        self,
        ops: Collection[int] = (),
        read: Callable[[int], Iterable[PropagationStep]] = lambda _: (),
        others: Iterable[PropagationStep] = (),
    ) -> None:
        self._ops = frozenset(ops)
        self._read = read
        self._known: dict[int, tuple[PropagationStep, ...]] = {}
        self._others: dict[int, list[tuple[int, PropagationStep]]] = {}
        for position, step in enumerate(others):
            self._others.setdefault(step.op, []).append((position, step))

    def through(self, nodes: Iterable[int]) -> list[PropagationStep]:
        """The steps through some ops: by number, and those of one number in program order."""
        wanted = set(nodes)
        steps = [step for node in sorted(wanted & self._ops) for step in self._written(node)]
        elsewhere = [pair for node in wanted for pair in self._others.get(node, ())]
        steps += [step for _, step in sorted(elsewhere, key=lambda pair: pair[0])]
        return sorted(steps, key=lambda step: step.number)

    def _written(self, node: int) -> tuple[PropagationStep, ...]:
        if node not in self._known:
            self._known[node] = tuple(self._read(node))
        return self._known[node]

    @cached_property
    def _all(self) -> list[PropagationStep]:
        return self.through(self._ops | self._others.keys())

    @cached_property
    def step_count(self) -> int:
        """How many steps there are: several moves can be of one, and some numbers have no move."""
        return len({step.number for step in self})

    def __bool__(self) -> bool:
        return bool(self._others) or any(map(self._written, self._ops))

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[PropagationStep]:
        return iter(self._all)

    @overload
    def __getitem__(self, index: int) -> PropagationStep: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PropagationStep]: ...
    def __getitem__(self, index: int | slice) -> PropagationStep | Sequence[PropagationStep]:
        return self._all[index]


@dataclass(frozen=True)
class DebugInfo:
    """What Shardy writes down of its own propagation when it is told to: origins and steps.

    That is another run than the one that decides, since it can come out otherwise, or crash where
    the other does not. What it says is about nodes of the graph of the one that decides.

    Attributes:
        steps: what moved when, in order.
        origins: of a value with its sharding, the user's annotation that each axis comes from.
        names: nodes, by what origins call them (``constraint_0``).
        not_understood: what could not be read; it is left out.
        notes: what else is worth knowing.
        origins_missing: whether there are steps, and no origins since Shardy can't write them down.
    """

    steps: Steps = field(default_factory=Steps)
    origins: Callable[[ValueId, Sharding | None], Origins] = lambda value, sharding: ()
    names: Mapping[str, int] = field(default_factory=dict)
    not_understood: Sequence[NotUnderstood] = ()
    notes: tuple[Remark, ...] = ()
    origins_missing: bool = False


@dataclass(frozen=True, repr=False)
class Propagated(Summarized):
    """The propagation of one module under one partitioner.

    Attributes:
        partitioner: whose.
        source: what it was taken from.
        graph: op graph of the module after propagation, as the partitioner has it; ops of Shardy's
            have no SSA names, which ``text`` has.
        values: every value of the lowered module.
        counts: how many values have each fate.
        doubts: why XLA may decide otherwise; nothing where this is exact.
        refusal: why XLA refused the module after it had propagated; empty where it did not.
        not_aligned: ops of the lowered module whose results have other types in the partitioner's,
            so that their values are not known to be there.
        notes: what else is worth knowing.
        read_debug_info: makes ``debug_info``, which is not asked of every propagation.
        read_text: writes ``text``, likewise.
    """

    partitioner: Partitioner
    source: PropagationSource
    graph: OpGraph
    values: Mapping[ValueId, PropagatedValue]
    counts: Mapping[Fate, int] = field(default_factory=dict)
    doubts: tuple[Remark, ...] = ()
    refusal: str = ""
    not_aligned: tuple[int, ...] = ()
    notes: tuple[Remark, ...] = ()
    read_debug_info: Callable[[], DebugInfo] = field(default=DebugInfo, compare=False, repr=False)
    read_text: Callable[[], str] = field(default=str, compare=False, repr=False)

    __document__ = ("partitioner", "exactness", "source", "counts", "step_count", "remarks")

    @cached_property
    def debug_info(self) -> DebugInfo:
        """Origins and steps (Shardy only)."""
        return self.read_debug_info()

    @property
    def is_explained(self) -> bool:
        """Whether somebody has asked for origins or steps."""
        return "debug_info" in self.__dict__

    @property
    def steps(self) -> Steps:
        """What moved when (Shardy only), in order."""
        return self.debug_info.steps

    @property
    def step_count(self) -> int:
        """How many steps Shardy took; 0 where none are known."""
        return self.steps.step_count

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Doubts, notes and what there is to know of origins and steps."""
        return (*self.doubts, *self.notes, *self.debug_info.notes)

    @property
    def exactness(self) -> Exactness:
        """Whether this is what XLA decides, proven by a test, or an approximation."""
        return "approximate" if self.doubts else "exact"

    def taken_as(self, shard_map: int, operand: int) -> TensorSharding | None:
        """How a `shard_map` of the lowered module takes an operand in the end (Shardy only)."""
        value = self.values.get((shard_map, 0))
        if value is None or value.node is None:
            return None
        shardings = self.graph.ops[value.node].in_shardings
        return shardings[operand] if operand < len(shardings) else None

    def settled(self) -> Propagated:
        """The same without what is read when it is first asked for: origins, steps and text.

        That is all values, which another process can be given.
        """
        values = {key: value._replace(read_origins=None) for key, value in self.values.items()}
        return replace(self, values=values, read_debug_info=DebugInfo, read_text=str)

    @cached_property
    def text(self) -> str:
        """The module after propagation in MLIR's text form, without locations.

        Its ops are those of ``graph``, in their order. Under Shardy each has its
        ``sdy.sharding``; steps, origins and sharding rules are left out. Under GSPMD it is the HLO
        module, as XLA turns it into StableHLO, with ``mhlo.sharding``.

        Raises:
            CompilerError: the compiler can't write it.
        """
        return self.read_text()


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value of the lowered module, and what to call it.

    Attributes:
        id: which value.
        name: pytree path of an argument or result of main, else the op's name.
        ssa: its SSA name, with the function's unless that is main: ``%3``, ``silu:%3``; of what
            main returns, that of the value that is returned.
        kind: ``argument``, ``result``, or the name of the operation.
        type: its type.
        source: innermost line of user code.
    """

    id: ValueId
    name: str
    ssa: str
    kind: str
    type: TensorType
    source: SourceLocation | None = None

    __document__ = ("name", "kind", "ssa", "shape", "dtype", "bytes", "source")

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the whole tensor; None where it is dynamic, or no tensor."""
        return self.type.static_shape

    @property
    def dtype(self) -> str:
        """MLIR element type."""
        return self.type.dtype

    @property
    def bytes(self) -> int | None:
        """Bytes of the whole tensor; None where they are not known."""
        return byte_count(self.shape, self.dtype)
