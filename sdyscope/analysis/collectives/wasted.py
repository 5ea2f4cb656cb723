"""Collectives whose work is done already, done again or thrown away, by the program's data flow.

In the body of a ``shard_map`` a program writes its collectives itself: it may sum what is summed
already, or sum or gather what a device then only keeps a slice of. In a loop it may sum in each
iteration what the loop adds up anyway.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.axes import axes_of_op
from sdyscope.analysis.collectives.bytes import wire_bytes
from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.facts.lint import Wasted, WastedKind
from sdyscope.facts.propagated import ValueId
from sdyscope.facts.traffic import CollectiveKind
from sdyscope.graph import Op, OpGraph
from sdyscope.hlo import HloModule
from sdyscope.hlo.executions import loops_around
from sdyscope.hlo.model import ELEMENTWISE
from sdyscope.values.dtypes import num_bytes
from sdyscope.values.mesh import Mesh
from sdyscope.values.passing import FORMS
from sdyscope.walk import reached

#: Ops that make of what is the same everywhere what is the same everywhere, besides those that work
#: element by element or pass on what they are given.
_ALIKE = frozenset({"concatenate", "constant", "dot_general", "iota", "pad", "reduce", "reverse"})

#: Ops behind which a sum is the sum of what they make, besides those that pass it on.
_LINEAR = frozenset({"negate", "reverse"})


def wasted_in_maps(graph: OpGraph, mesh: Mesh) -> Iterator[Wasted]:
    """The collectives in bodies of shard_maps that are done already, or thrown away.

    Args:
        graph: op graph of the module, lowered under Shardy.
        mesh: the mesh whose axes to name.
    """
    maps = _Maps(graph, mesh)
    for op in graph.operations():
        kind = op.mnemonic
        if op.kind == "stablehlo.all_reduce":
            yield from maps.reduced(op)
        elif op.kind == "stablehlo.all_gather" and kind == "all_gather":
            yield from maps.gathered(op)


class _Maps:
    def __init__(self, graph: OpGraph, mesh: Mesh) -> None:
        self.graph, self.mesh = graph, mesh
        self._sums: dict[ValueId, int | None] = {}

    def reduced(self, op: Op) -> Iterator[Wasted]:
        axes = self.axes(op)
        operands = self.graph.operands(op)
        if not axes or not operands or not _adds(self.graph, op):
            return
        values = [(producer.id, edge.result) for producer, edge in operands]
        firsts = [self.summed(value, axes) for value in values]
        if all(first is not None for first in firsts):
            yield self.wasted("reduced twice", op, firsts[0] or 0, axes, divided=self.divided(op))
            return
        yield from self.sliced(op, axes, "reduced to be sliced")

    def gathered(self, op: Op) -> Iterator[Wasted]:
        axes = self.axes(op)
        if axes:
            yield from self.sliced(op, axes, "gathered to be sliced")

    def sliced(
        self,
        op: Op,
        axes: tuple[str, ...],
        kind: Literal["reduced to be sliced", "gathered to be sliced"],
    ) -> Iterator[Wasted]:
        """Where all that is made of it is one slice that each device takes for itself."""
        uses = self.graph.uses(op)
        if len(uses) != 1 or uses[0][0].mnemonic != "dynamic_slice" or uses[0][1].operand:
            return
        user, edge = uses[0]
        whole, part = edge.type.shape or (), user.types[0].shape or ()
        size = math.prod(self.mesh.shape[axis] for axis in axes)
        cut = [at for at, (a, b) in enumerate(zip(whole, part, strict=True)) if a != b]
        if len(cut) != 1 or whole[cut[0]] is None or whole[cut[0]] != (part[cut[0]] or 0) * size:
            return
        if not self.by_place((user.id, cut[0] + 1)):
            return
        if kind == "gathered to be sliced" and op.attributes.get("all_gather_dim") != cut[0]:
            return
        yield self.wasted(kind, op, user.id, axes, dimension=cut[0])

    def by_place(self, operand: tuple[int, int]) -> bool:
        """Whether an operand comes from the number of the device, and from nothing else."""
        value = self.graph.operand(*operand)
        numbered = False
        for node, _ in reached([] if value is None else [value], self._made_of):
            op = self.graph.ops[node]
            if op.mnemonic in ("partition_id", "replica_id"):
                numbered = True
            elif op.is_argument or not _is_alike(op):
                return False
        return numbered

    def _made_of(self, value: ValueId) -> Sequence[ValueId]:
        return self.graph.operand_values[value[0]]

    def summed(self, value: ValueId, axes: tuple[str, ...]) -> int | None:
        """The sum that makes a value the same along axes; None where it may differ, or is given."""

        def is_sum(op: Op) -> bool:
            return op.kind == "stablehlo.all_reduce" and set(axes) <= set(self.axes(op))

        def made_of(value: ValueId) -> Sequence[ValueId]:
            return () if is_sum(self.graph.ops[value[0]]) else self._made_of(value)

        first: int | None = None
        for node, _ in reached([value], made_of):
            op = self.graph.ops[node]
            if is_sum(op):
                first = op.id
            elif op.is_argument or not _is_alike(op):
                return None
        return first

    def divided(self, op: Op) -> bool:
        """Whether what it makes is only ever divided, as by ``pmean``."""
        uses = self.graph.uses(op)
        return bool(uses) and all(
            user.mnemonic == "divide" and edge.operand == 0 for user, edge in uses
        )

    def axes(self, op: Op) -> tuple[str, ...]:
        """The whole axes that a collective runs over, by name; none where they are not known."""
        refs = axes_of_op(op, self.mesh) or ()
        if any(axis.sub_axis_info is not None for axis in refs):
            return ()
        return tuple(axis.name for axis in refs)

    def wasted(
        self,
        kind: WastedKind,
        op: Op,
        other: int,
        axes: tuple[str, ...],
        dimension: int | None = None,
        divided: bool = False,
    ) -> Wasted:
        size = math.prod(self.mesh.shape[axis] for axis in axes)
        sent = 0
        for type_ in op.types:
            whole = num_bytes(math.prod(extent or 0 for extent in type_.shape or ()), type_.dtype)
            wire: CollectiveKind = "all-gather" if "gathered" in kind else "all-reduce"
            each = wire_bytes(wire, whole, size)[0]
            # A reduce-scatter sends half of what an all-reduce does.
            sent += each // 2 if kind == "reduced to be sliced" else each
        devices = math.prod(self.mesh.shape[axis] for axis in axes)
        first = self.graph.ops[other].source if kind == "reduced twice" else None
        return Wasted(
            kind,
            op.id,
            other,
            axes,
            sent,
            1,
            dimension,
            divided,
            op.source,
            op.scope,
            devices,
            first,
        )


def _is_alike(op: Op) -> bool:
    return (
        op.mnemonic in _ALIKE
        or op.mnemonic.replace("_", "-") in ELEMENTWISE
        or op.passing in (*FORMS, "bits", "repeated", "part")
    )


def _passes_sum(graph: OpGraph, user: Op, operand: int) -> int | None:
    """As which of an op's results a sum goes on that it takes, or the sum of what it makes."""
    if user.mnemonic == "reduce" and operand < len(user.types) and _adds(graph, user):
        return operand
    if user.passing in (*FORMS, "repeated", "part") and operand < len(user.types):
        return operand
    return 0 if user.mnemonic in _LINEAR else None


def _adds(graph: OpGraph, op: Op) -> bool:
    return any(inner.mnemonic == "add" for inner in graph.children(op))


# --- loops ----------------------------------------------------------------------------------------


def accumulated_in_loops(
    graph: OpGraph, collectives: Collectives, module: HloModule
) -> Iterator[Wasted]:
    """The sums over devices in each iteration of a loop whose results the loop only adds up.

    Left out are those of a loop in which as much or more is exchanged over their axes that each
    iteration needs, as by tensor parallelism: mapped over these, it would all have to be written.

    Args:
        graph: op graph of the lowered module.
        collectives: those of the compiled program.
        module: that program.
    """
    flow = _Loops(graph)
    homes = {
        name: computation
        for computation in module.computations.values()
        for name in computation.instructions
    }
    moved: dict[tuple[str, tuple[str, ...]], list[Wasted]] = defaultdict(list)
    needed: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for collective in collectives.collectives:
        if collective.kind == "all-gather" or collective.name not in homes:
            continue
        axes = tuple(axis.name for axis in collective.axes or ())
        bodies = [loop.name for loop in loops_around(module, homes[collective.name])]
        is_sum = collective.kind in ("all-reduce", "reduce-scatter") and collective.count > 1
        for part in collective.parts if bodies else ():
            wasted = None
            for path in part.tags if is_sum else ():
                loop = flow.accumulated(path[-1]) if path else None
                if loop is not None:
                    op = graph.ops[path[-1]]
                    wasted = Wasted(
                        "reduced in a loop",
                        op.id,
                        loop,
                        axes,
                        (collective.count - 1) * part.sent,
                        collective.count,
                        source=part.source or graph.ops[loop].source,
                        scope=op.scope,
                        first=graph.ops[loop].source,
                        backward=part.phase == "backward",
                    )
                    moved[bodies[0], axes].append(wasted)
                    break
            if wasted is None:
                needed.update({(body, axes): collective.count * part.sent for body in bodies})
    for (body, axes), sums in moved.items():
        stays = sum(
            sent for (around, over), sent in needed.items() if around == body and {*over} & {*axes}
        )
        if stays < sum(each.sent for each in sums):
            yield from sums


_Crossings: TypeAlias = dict[ValueId, list[tuple[str, ValueId]]]


class _Loops:
    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph

    @cached_property
    def _goes_to(self) -> _Crossings:
        """The values that each value goes on to, into regions and functions and out of them."""
        after_each: _Crossings = {}
        for kind, before, after in self.graph.crossings():
            after_each.setdefault(before, []).append((kind, after))
        return after_each

    @cached_property
    def _comes_from(self) -> _Crossings:
        """The values that each value comes from, likewise."""
        before_each: _Crossings = {}
        for kind, before, after in self.graph.crossings():
            before_each.setdefault(after, []).append((kind, before))
        return before_each

    def accumulated(self, node: int) -> int | None:
        """The loop that only adds up what an op makes in each iteration; None where there is none.

        Followed are ops behind which a sum is the sum of what they make, sums with others, and
        calls.
        """
        if node >= len(self.graph.ops):
            return None
        loops: set[int] = set()
        goes_on: dict[ValueId, list[ValueId]] = {}
        for at in reached([(node, 0)], goes_on.__getitem__):
            further = goes_on[at] = []
            for user, edge in self.graph.uses(at[0], at[1]):
                kind = user.mnemonic
                if kind in ("return", "while", "call") or user.is_result:
                    continue
                result = _passes_sum(self.graph, user, edge.operand)
                if result is None and kind in ("multiply", "divide") and self._scales(user, at):
                    result = 0
                if result is not None:
                    further.append((user.id, result))
                elif kind == "add":
                    other = self.graph.operand(user, 1 - edge.operand)
                    loop = None if other is None else self._carried(other)
                    if loop is not None and self._reaches(user.id, loop):
                        if other is None or not self._only_added(other, user.id):
                            return None  # The total so far is used in each iteration.
                        loops.add(loop[0])
                    else:
                        further.append((user.id, 0))
                else:
                    return None  # It is used for something else.
            for crossing, after in self._goes_to.get(at, ()):
                if crossing in ("call", "return"):
                    further.append(after)
                elif crossing in ("loop", "yield"):
                    return None  # It leaves the iteration as it is.
        return loops.pop() if len(loops) == 1 else None

    def _scales(self, user: Op, value: ValueId) -> bool:
        """Whether an op multiplies a value by what is the same in each iteration."""
        others = [
            producer
            for producer, edge in self.graph.operands(user)
            if (producer.id, edge.result) != value
        ]
        return all(other.mnemonic in ("constant", "broadcast_in_dim") for other in others)

    def _carried(self, value: ValueId) -> tuple[int, int] | None:
        """The loop that carries a value from iteration to iteration, and which of its values."""
        seen: set[ValueId] = set()
        at = value
        while at not in seen:
            seen.add(at)
            op = self.graph.ops[at[0]]
            if not op.is_argument:
                return None
            if op.parent is not None and self.graph.ops[op.parent].mnemonic == "while":
                return op.parent, op.argument
            before = [value for kind, value in self._comes_from.get(at, ()) if kind == "call"]
            if len(before) != 1:
                return None
            at = before[0]
        return None

    def _only_added(self, total: ValueId, adds: int) -> bool:
        """Whether what a loop carries, and the sum with it, are used for nothing but that sum.

        Args:
            total: the value that is carried, as the op that adds to it has it.
            adds: that op.
        """

        def passed(at: ValueId) -> Iterator[ValueId]:
            # Where it is given to a function it comes from there, too.
            yield from (value for kind, value in self._comes_from.get(at, ()) if kind == "call")
            for kind, value in self._goes_to.get(at, ()):
                if kind in ("call", "return"):
                    yield value

        return all(
            user.id == adds or user.mnemonic in ("return", "call") or user.is_result
            for at in reached([total, (adds, 0)], passed)
            for user, _ in self.graph.uses(*at)
        )

    def _reaches(self, node: int, loop: tuple[int, int]) -> bool:
        """Whether an op's result is what a loop carries on."""

        def returned(at: ValueId) -> list[ValueId]:
            return [after for kind, after in self._goes_to.get(at, ()) if kind == "return"]

        def is_carried(kind: str, after: ValueId) -> bool:
            op = self.graph.ops[after[0]]
            given = kind == "loop" and (op.parent, op.argument) == loop
            return given or (kind == "yield" and after == loop)

        return any(
            is_carried(*crossing)
            for at in reached([(node, 0)], returned)
            for crossing in self._goes_to.get(at, ())
        )
