"""Which ops a tensor is communicated for, and which values it may be, by what XLA names."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Final

from sdyscope.analysis.collectives.boundaries import SHARD_MAP
from sdyscope.analysis.collectives.origin_needs import (
    PRODUCTS,
    REACHING,
    Needs,
    kind_of,
    results,
)
from sdyscope.analysis.collectives.propagated_axes import PropagatedAxes
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.collectives.transfers import EXCHANGES, REDUCTIONS, Transfer, calls_of
from sdyscope.analysis.naming.scopes import scope_of
from sdyscope.analysis.propagation.axis_parts import AxisPart, part_of
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.op_kinds import is_elementwise
from sdyscope.walk import reached

#: Ops of which XLA chooses how to make their result, by what it is made of.
REMADE: Final = PRODUCTS | {"gather", "reduce", "scatter", "sort"}


class Communications:
    """What the collectives of one program communicate.

    Args:
        around: looks for what needs the program's values otherwise.
        collectives: those of the program.
    """

    def __init__(self, around: Needs, collectives: Collectives) -> None:
        self.around = around
        self.graph: OpGraph = around.graph
        self._gathers = {
            collective.name: self._axes(collective)
            for collective in collectives.collectives
            if collective.kind == "all-gather"
        }
        self._pairs = {
            collective.name: collective.parts[0].pairs
            for collective in collectives.collectives
            if collective.kind == "all-gather" and len(collective.parts) == 1
        }
        self._exchanges: dict[int, list[tuple[tuple[AxisPart, ...], Part]]] = {}
        self._reductions: dict[int, list[AxisPart]] = {}
        for collective in collectives.collectives:
            if collective.kind in REDUCTIONS:
                for part in collective.parts:
                    for path in part.tags:
                        self._reductions.setdefault(path[-1], []).extend(self._axes(collective))
            if collective.kind in EXCHANGES:
                for part in collective.parts:
                    for path in part.tags:
                        exchanges = self._exchanges.setdefault(path[-1], [])
                        exchanges.append((self._axes(collective), part))

    def at(self, decided: PropagatedAxes) -> Communications:
        """The same, of other shardings of the values."""
        communications = copy(self)
        communications.around = self.around.at(decided)
        return communications

    def transfer(self, collective: Collective, part: Part) -> Transfer:
        """A tensor of a collective, and what XLA names says of it."""
        values = self.values(part)
        if part.named_after == "value":
            part = replace(part, tags=tuple(self._entering(path, values) for path in part.tags))
            if tags := self._before_products(part, values):
                part = replace(part, tags=tags, result=None)
        return self._transfer(collective, part, values)

    def for_maker(self, transfer: Transfer) -> Transfer:
        """A tensor as it is if it is for the op that makes it."""
        part, path = transfer.part, transfer.part.makers[0]
        ops = [self.graph.ops[node] for node in path]
        op = ops[-1]
        scope, primitive = scope_of(self.graph.scope_along(ops))
        part = replace(
            part,
            scope=scope,
            primitive=primitive,
            source=op.source or part.source,
            callers=part.callers if op.source is None else op.location.callers,
            tags=part.makers,
            # Else nothing tells whether it is what that makes, or what it takes.
            makers=part.makers
            if part.own and (kind_of(op) in REMADE or is_elementwise(op.kind))
            else (),
            result=None,
            named_after="op",
        )
        values = transfer.values
        if op.is_constraint:
            # It makes nothing: what it takes is moved for it.
            values = frozenset(self.around.operands(op))
            paths = (
                (*path[:-1], node) for node, _ in values if not self.graph.ops[node].is_argument
            )
            part = replace(part, makers=tuple(paths), named_after="taker")
        elif any(kind_of(each) in REACHING for each in self._ops(part.tags)):
            # What reaches into other blocks takes it, and does not make it.
            values = self.values(part)
        return self._transfer(transfer.collective, part, values)

    def users(self, transfer: Transfer) -> list[Op]:
        """The ops that take the argument of the program that a tensor is.

        Of what becomes a result of the program, those that make that of it, if there are such.
        """
        argument = self.around.argument(transfer.part.argument)
        users = [] if argument is None else [op for op, _ in self.graph.uses(*argument)]
        returned = self.graph.returned.get(-1 if (at := transfer.part.result) is None else at)
        if returned is None:
            return users

        def before(value: ValueId) -> list[ValueId]:
            op = self.graph.ops[value[0]]
            is_passed = op.is_form or kind_of(op) in REACHING
            return self.around.operands(op) if is_passed else []

        making = {node for node, _ in reached([returned], before)}
        return [op for op in users if op.id in making] or users

    def values(self, part: Part) -> frozenset[ValueId]:
        """The values that a tensor may be; empty where that is not known."""
        ops, makers = self._ops(part.tags), self._ops(part.makers)
        boundaries = self.around.boundaries
        around = {call for path in part.tags for call in path[:-1]}
        values: list[ValueId] = []
        for op in makers:
            if kind_of(op) == SHARD_MAP and op.id in around:
                # What is moved in a shard_map, and named after that, is no result of it.
                values += boundaries.taken_within(op)
            elif not boundaries.are_within(op, ops):
                values += results(op)
                # What the body of a shard_map or loop returns is named after these.
                values += [value for _, value in boundaries.bodies.get(op.id, ())]
            # And what a loop carries, where its body takes it.
            values += boundaries.carries.get(op.id, ())
        argument = self.around.argument(part.argument)
        values += [] if argument is None else [argument]
        # What a function makes is what the calls return by which it was followed, and no others.
        calls = {call for path in part.makers for call in path[:-1]}
        others = {
            other.id
            for call in calls
            if (callee := self.graph.ops[call].callee) is not None
            for other in self.graph.callers(callee)
        }
        behind = self._behind(part, ops, makers)
        return self._reaching(ops, values, (others - calls) | behind)

    def behind(self, transfer: Transfer) -> set[int]:
        """The ops that a value was followed to: it is not yet what they make of it.

        At the end of a loop's body the loop is one.
        """
        return self._behind(transfer.part, transfer.ops, transfer.makers)

    def exchanges(self, op: int) -> Sequence[tuple[tuple[AxisPart, ...], Part]]:
        """What is exchanged or permuted for an op, and over which axes."""
        return self._exchanges.get(op, ())

    def is_reduced(self, op: int, axes: Sequence[AxisPart]) -> bool:
        """Whether a collective reduces something for an op over one of some axes."""
        return any(any(map(axis.shared, self._reductions.get(op, ()))) for axis in axes)

    def is_exchanged_behind(self, part: Part) -> bool:
        """Whether the same value is exchanged for the same op, and was not before it is gathered.

        XLA gathers what does not change in a loop outside of it, and may exchange it inside.
        """
        others = (other for path in part.tags for _, other in self.exchanges(path[-1]))
        is_known = part.argument is not None or bool(part.makers)
        return (
            is_known
            and not part.before
            and any((each.argument, each.makers) == (part.argument, part.makers) for each in others)
        )

    def gathered_too(self, part: Part) -> Iterator[AxisPart]:
        """The axes over which other all-gathers gather the same value for the same op."""
        for name in part.gathered_too:
            yield from self._gathers.get(name, ())

    def permuted_first(self, part: Part) -> tuple[tuple[int, int], ...]:
        """The pairs of the permutation before what is gathered, over these axes or first others."""
        rows = (part.pairs, *(self._pairs.get(name, ()) for name in part.gathered_too))
        return next(filter(None, rows), ())

    def axes_of(self, transfer: Transfer) -> tuple[AxisPart, ...]:
        """The axes that a collective runs over, whichever are asked about."""
        return self._axes(transfer.collective)

    def _transfer(self, collective: Collective, part: Part, values: frozenset[ValueId]) -> Transfer:
        ops, makers = self._ops(part.tags), self._ops(part.makers)
        return Transfer(collective, part, self._axes(collective), ops, makers, values)

    def _axes(self, collective: Collective) -> tuple[AxisPart, ...]:
        mesh = self.around.decided.mesh
        return tuple(part_of(axis, mesh) for axis in collective.axes or ())

    def _ops(self, tags: Sequence[tuple[int, ...]]) -> tuple[Op, ...]:
        """The ops that tags name, each behind the product that XLA turns, and names after it."""
        named = [self.graph.ops[path[-1]] for path in tags if path[-1] < len(self.graph.ops)]
        ops = (each for op in named for each in (self.around.turned(op), op) if each is not None)
        return tuple({op.id: op for op in ops}.values())

    def _entering(self, path: tuple[int, ...], values: Container[ValueId]) -> tuple[int, ...]:
        """For an op in a `shard_map` that takes one of some values there, the `shard_map`."""
        op = self.graph.ops[path[-1]] if path[-1] < len(self.graph.ops) else None
        around = None if op is None or op.parent is None else self.graph.ops[op.parent]
        if op is None or around is None or kind_of(around) != "manual_computation":
            return path
        given = (value for value in self.around.operands(op) if value in values)
        enters = any(self.graph.ops[node].is_argument for node, _ in given)
        return (*path[:-1], around.id) if enters else path

    def _before_products(
        self, part: Part, values: Collection[ValueId]
    ) -> tuple[tuple[int, ...], ...]:
        """The ops that a value is for; where these take what a product makes of it, the product.

        So where the program returns that. XLA leaves batched products without a name, which it
        writes as other ones.
        """
        taken = set(self.around.operands(*self._ops(part.tags)))
        if part.result is not None and part.result in self.graph.returned:
            taken.add(self.graph.returned[part.result])
        if not taken.isdisjoint(values):
            return part.tags
        products = {
            op.id
            for value in values
            for op, _ in self.graph.uses(*value)
            if kind_of(op) in PRODUCTS and not taken.isdisjoint(self.around.forms([(op.id, 0)]))
        }
        calls = calls_of(part)
        return tuple((*calls, product) for product in sorted(products)) or part.tags

    def _behind(self, part: Part, ops: Sequence[Op], makers: Sequence[Op]) -> set[int]:
        if not part.is_followed or not makers:
            return set()
        # Of several that XLA makes one of, what one gives another is on the way.
        between = {node for node, _ in self.around.operands(*ops)}
        return {op.id for op in ops if op not in makers and op.id not in between}

    def _reaching(
        self, ops: Sequence[Op], values: Iterable[ValueId], others: Container[int]
    ) -> frozenset[ValueId]:
        """Values and what they go on as: of what loops and barriers make that which ops take.

        These make many values; all of them where the ops take none.
        """
        forms = [self.around.forms([value], others) for value in values]
        tensors = self.around.tensors(*ops)
        taken = [each for each in forms if not each.isdisjoint(tensors)]
        return frozenset().union(*(taken or forms))
