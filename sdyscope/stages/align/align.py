"""Finds the values of a lowered module in the module that a partitioner made of it.

On the way calls are inlined, constants and what is the same are merged, broadcasts are split, loops
lose what they never change and order the rest anew. What stays are the tags of ops. The lowered
module is walked as it would run, calls entered each time; an op is the one with its tag (or none)
whose operands are those already found. Where a consumer was found and a producer not, the
consumer's operand is the producer: XLA only puts equals for equals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph, TensorType
from sdyscope.graph.collection import no_collection
from sdyscope.graph.op_kinds import LOOPS
from sdyscope.stages.align.kinds import (
    COMMUTATIVE,
    KEPT_IDENTITIES,
    is_identity,
    is_same_op,
    same_types,
)
from sdyscope.stages.align.regions import (
    INLINED_REGIONS,
    PARTITIONED_REGIONS,
    AlignedLoop,
    Parts,
    match_carried,
    parts_of,
)
from sdyscope.stages.align.target import AlignTarget

#: Kinds of ops into whose regions the walk goes; calls are told by what they call.
_ENTERED = INLINED_REGIONS | PARTITIONED_REGIONS.keys()

Path: TypeAlias = tuple[int, ...]
"""The calls that an op is inside of, outermost first."""


@dataclass(frozen=True)
class Alignment:
    """Where each value of a lowered module is in a partitioner's module.

    Attributes:
        counterparts: for each value, what it is each time that its function is called; None where
            it is gone. A value of a function that is never called is not in here.
        not_partitioned: values that no partitioner gives a sharding: inside the body of a
            reduction, a sort or a scatter, and tokens.
        copies: how many ops like it have an op's tag.
        retyped: ops whose tag is only on ops with results of other shapes or dtypes.
    """

    counterparts: dict[ValueId, list[ValueId | None]] = field(default_factory=dict)
    not_partitioned: set[ValueId] = field(default_factory=set)
    retyped: set[int] = field(default_factory=set)
    copies: dict[int, int] = field(default_factory=dict)


@no_collection()
def align(lowered: OpGraph, propagated: OpGraph) -> Alignment:
    """Finds every value of ``lowered`` in ``propagated``, whose ops carry the tags of ``lowered``.

    Time is linear in the number of ops, calls inlined.
    """
    aligner = _Aligner(lowered, AlignTarget(propagated))
    aligner.run()
    return aligner.alignment


class _Aligner:
    """One walk. ``now`` is where values are in the call that is being walked."""

    def __init__(self, lowered: OpGraph, target: AlignTarget) -> None:
        self.lowered = lowered
        self.target = target
        self.alignment = Alignment()
        self.now: dict[ValueId, ValueId | None] = {}
        self.claimed: set[int] = set()
        self.operand_lists = lowered.operand_values
        self.with_regions = {op.parent for op in lowered.ops}
        self.entered = {call.id for name in lowered.functions for call in lowered.callers(name)} | {
            op.id for op in lowered.ops if op.kind in _ENTERED
        }

    def run(self) -> None:
        main, other = self.lowered.main, self.target.graph.main
        if main is None or other is None:
            return
        arguments = [argument.node for argument in other.arguments]
        for argument in main.arguments:
            same = argument.index < len(arguments) and same_types(
                (argument.type,), (other.arguments[argument.index].type,)
            )
            self.bind((argument.node, 0), (arguments[argument.index], 0) if same else None)
        returned = self.body(main.op, 0, ())
        # What main returns is known from the end.
        for value, there in zip(returned, self.target.returned(other.op, 0), strict=False):
            self.fill(value, there)

    # Values.

    def bind(self, value: ValueId, there: ValueId | None) -> None:
        if self.type_of(value).shape is None:
            self.alignment.not_partitioned.add(value)
        self.now[value] = there
        self.alignment.counterparts.setdefault(value, []).append(there)

    def fill(self, value: ValueId, there: ValueId) -> None:
        """Says where a value is that was not found, and those that it was made from."""
        waiting = [(value, there)]
        while waiting:
            value, there = waiting.pop()
            if self.now.get(value, there) is not None or value not in self.now:
                continue
            if not same_types((self.type_of(value),), (self.target.type_of(there),)):
                continue
            self.now[value] = there
            self.alignment.counterparts[value][-1] = there
            op, other = self.lowered.ops[value[0]], self.target.graph.ops[there[0]]
            if is_same_op(op, other) and self.lowered.callee(op) is None:
                waiting += self.pairs(op, other.id)

    def fill_operands(self, op: Op, node: int) -> None:
        """Says where the operands of an op are that were not found, by those of the op it is."""
        for value, there in self.pairs(op, node):
            if self.now.get(value) is None:
                self.fill(value, there)

    def pairs(self, op: Op, node: int) -> list[tuple[ValueId, ValueId]]:
        """The operands of an op, each with that of the op that it is."""
        mine = self.operand_lists[op.id]
        theirs = self.target.operands(node)
        if len(mine) == len(theirs) == 1:
            theirs = [self.target.source(node, op.id)]
        if len(mine) != len(theirs):
            return []
        if op.kind in COMMUTATIVE:
            places = [self.now.get(value) for value in mine]
            if places[0] == theirs[1] or places[1] == theirs[0]:
                theirs = theirs[::-1]
        return list(zip(mine, theirs, strict=True))

    def type_of(self, value: ValueId) -> TensorType:
        return self.lowered.ops[value[0]].types[value[1]]

    def operands(self, op: Op) -> Sequence[ValueId]:
        return self.operand_lists[op.id]

    # Ops.

    def body(self, owner: int, region: int, path: Path) -> Sequence[ValueId]:
        """Walks a region of an op; what it returns.

        The only op with the tag of one that makes one tensor is that op, where that is what it
        makes. Nearly all are found so, and this loop is most of the time that an alignment takes.
        """
        ops, tagged = self.target.graph.ops, self.target.tagged
        now, claimed, operand_lists = self.now, self.claimed, self.operand_lists
        counterparts, entered, with_regions = (
            self.alignment.counterparts,
            self.entered,
            self.with_regions,
        )
        last = owner
        for node in self.lowered.nodes_inside(owner, region):
            op = self.lowered.ops[node]
            if op.argument >= 0:
                continue
            last = node
            if node in entered:
                self.enter(op, path)
                continue
            types = op.types
            if not types:
                continue
            alike = tagged.get(node, ())
            other = ops[alike[0]] if len(alike) == 1 else None
            if (
                other is not None
                and other.kind == op.kind
                # Types are mostly one object where they are equal, which is all that is compared.
                and other.types == types
                and len(types) == 1
                and types[0].shape is not None
            ):
                value, there = (node, 0), (other.id, 0)
                claimed.add(other.id)
                now[value] = there
                if value in counterparts:
                    counterparts[value].append(there)
                else:
                    counterparts[value] = [there]
                for operand in operand_lists[node]:
                    if now.get(operand) is None:
                        self.fill_operands(op, other.id)
                        break
            elif alike or any(map(now.get, operand_lists[node])):
                self.searched(op, path)
            else:
                # A constant, say: nothing says where it is until an op is found that uses it.
                for result in range(len(types)):
                    self.bind((node, result), None)
            if node in with_regions:
                self.inside_nobody(op)
        return operand_lists[last] if last != owner else []

    def enter(self, op: Op, path: Path) -> None:
        """Walks what a call, a loop or a branch runs."""
        callee = self.lowered.callee(op)
        if callee is not None:
            arguments = [argument.node for argument in callee.arguments]
            self.inlined(op, arguments, callee.op, (*path, op.id))
        elif op.kind in INLINED_REGIONS:
            arguments = [c.id for c in self.lowered.children(op, 0) if c.is_argument]
            self.inlined(op, arguments, op.id, path)
        else:
            self.regions(op, path)

    def inlined(self, op: Op, arguments: list[int], owner: int, path: Path) -> None:
        for argument, operand in zip(arguments, self.operands(op), strict=False):
            self.bind((argument, 0), self.now.get(operand))
        returned = self.body(owner, 0, path)
        # An argument that was found inside was found outside.
        for argument, operand in zip(arguments, self.operands(op), strict=False):
            there = self.now.get((argument, 0))
            if there is not None:
                self.fill(operand, there)
        places = [self.now.get(value) for value in returned]
        for result in range(len(op.types)):
            self.bind((op.id, result), places[result] if result < len(places) else None)

    def searched(self, op: Op, path: Path) -> None:
        if op.kind == "stablehlo.sort" and self.sorted_fewer(op, path):
            return
        operands = [self.now.get(operand) for operand in self.operands(op)]
        node = self.find(op, operands, path)
        if node is None:
            same = len(operands) == len(op.types) and (is_identity(op) or self.changes_nothing(op))
            for result in range(len(op.types)):
                self.bind((op.id, result), operands[result] if same else None)
        else:
            self.claimed.add(node)
            for result, there in enumerate(self.target.results(node)):
                self.bind((op.id, result), there)
            if None in operands and is_same_op(op, self.target.graph.ops[node]):
                self.fill_operands(op, node)

    def sorted_fewer(self, op: Op, path: Path) -> bool:
        """Whether XLA has left out what of a sort nothing uses or compares; binds what is left.

        It keeps all that are used: where it has as many, they are these.
        """
        used = [at for at in range(len(op.types)) if any(self.lowered.uses(op.id, at))]
        if len(used) == len(op.types):
            return False
        tags, kinds = self.target, [op.types[at] for at in used]
        nodes = [
            node
            for node in tags.tagged_in.get((op.id, path), ()) or tags.tagged.get(op.id, ())
            if tags.graph.ops[node].kind == op.kind
            and same_types(kinds, tags.graph.ops[node].types)
        ]
        if len(nodes) != 1:
            return False
        self.claimed.add(nodes[0])
        there = dict(zip(used, tags.results(nodes[0]), strict=True))
        for at in range(len(op.types)):
            self.bind((op.id, at), there.get(at))
        return True

    def is_retyped(self, op: Op, node: int) -> bool:
        """Whether an op with its tag is this one with other types, and not one that it went into.

        Of a reshape of a reshape the compiler makes one, with the tags of both; of any iota one of
        a single dimension and a broadcast, which goes into the next broadcast of it.
        """
        there = self.target.graph.ops[node]
        if op.kind == there.kind == "stablehlo.iota":
            return op.types[0].dtype != there.types[0].dtype
        others = (self.lowered.ops[tag] for tag in self.target.tags[node] if tag != op.id)
        return there.kind == op.kind and not any(
            same_types(other.types, there.types) for other in others
        )

    def changes_nothing(self, op: Op) -> bool:
        """Whether it is a conversion to the type that the operand has already."""
        given = [self.type_of(operand) for operand in self.operands(op)]
        return op.passing in ("type", "shape") and same_types(op.types, given)

    def inside_nobody(self, op: Op) -> None:
        """What is inside a reduction's body is not partitioned."""
        for inner in self.lowered.children(op):
            for result in range(len(inner.types)):
                self.bind((inner.id, result), None)
                self.alignment.not_partitioned.add((inner.id, result))
            self.inside_nobody(inner)

    def find(self, op: Op, operands: Sequence[ValueId | None], path: Path) -> int | None:
        """The op that is this one, in this call; None when there is none of its types."""
        target = self.target
        tagged = target.tagged.get(op.id, ())
        if len(tagged) == 1:
            # Nearly all are found so, without comparing this one with others.
            other = target.graph.ops[tagged[0]]
            if other.kind == op.kind and same_types(op.types, other.types):
                return other.id
        known = {operand for operand in operands if operand is not None}
        if not tagged and not known:
            return None
        typed: list[int] = []
        if path:
            # Those of the very call come first; without looking at those of all other calls.
            typed = self.typed(op, target.tagged_in.get((op.id, path), ()), known)
        if not typed:
            typed = self.typed(op, tagged, known)
        if not typed:
            typed = self.untagged(op, operands, known)
            if not typed:
                if any(self.is_retyped(op, node) for node in tagged):
                    self.alignment.retyped.add(op.id)
                return None
        if len(tagged) > 1 and op.id not in self.alignment.copies:
            alike = [
                node
                for node in self.typed(op, tagged, known) or typed
                if target.graph.ops[node].kind == op.kind
            ]
            if len(alike) > 1:
                self.alignment.copies[op.id] = len(alike)
        if len(typed) == 1:
            return typed[0]

        def likeness(node: int) -> tuple[bool, bool, int, bool, int]:
            other = target.graph.ops[node]
            same_kind = other.kind == op.kind
            return (
                target.paths.get(node) == path,
                same_kind,
                len(known & target.sources(node, op.id)),
                node not in self.claimed,
                # A copy is the first one; of the ops that one op became, the last one counts.
                -node if same_kind else node,
            )

        return max(typed, key=likeness)

    def typed(self, op: Op, nodes: Sequence[int], known: set[ValueId]) -> list[int]:
        """Those of some ops with its tag that can be this one."""
        return [
            node
            for node in nodes
            if same_types(op.types, self.target.result_types(node))
            # `sid86;sid85` on a multiplication is where it and the broadcast of its operand came
            # from, and not what the broadcast is; unless it is nothing but its operand.
            and (not self.is_anothers(op, node) or (node, 0) in known)
        ]

    def untagged(
        self, op: Op, operands: Sequence[ValueId | None], known: set[ValueId]
    ) -> list[int]:
        """Ops that do the same to the same operands."""
        first = next((operand for operand in operands if operand is not None), None)
        if first is None:
            return []
        nodes = [
            node
            for node in self.target.consumers(first)
            if same_types(op.types, self.target.graph.ops[node].types)
            and self.does_the_same(op, operands, known, node)
        ]
        if len(nodes) < 2:
            return nodes
        # The one that goes where this one goes.
        goes = {user.id for user, _ in self.lowered.uses(op)}
        likeness = {
            node: (len(goes & self.target.goes_to((node, 0))), node not in self.claimed)
            for node in nodes
        }
        best = max(likeness.values())
        return [node for node in nodes if likeness[node] == best]

    def does_the_same(
        self, op: Op, operands: Sequence[ValueId | None], known: set[ValueId], node: int
    ) -> bool:
        kind = self.target.graph.ops[node].kind
        theirs = self.target.operands(node)
        if kind == op.kind:
            if None not in operands:
                return theirs == list(operands)
            # With an operand that was not found, it must not be another op's.
            if len(theirs) != len(operands) or self.is_anothers(op, node):
                return False
            here = dict(self.pairs(op, node))
            return all(
                here[value] == operand
                if operand is not None
                else same_types([self.type_of(value)], [self.target.type_of(here[value])])
                for value, operand in zip(self.operands(op), operands, strict=True)
            )
        if (op.kind, kind) == ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
            return theirs == list(operands)  # Dimensions of size 1 were added.
        if kind in KEPT_IDENTITIES:
            return is_identity(op) and theirs == list(operands)
        # What is no op of StableHLO (chlo.square) becomes several, without a tag.
        made_anew = not op.kind.startswith("stablehlo.") and node not in self.target.tags
        return made_anew and set(theirs) == known and None not in operands

    def is_anothers(self, op: Op, node: int) -> bool:
        """Whether a tag says that an op is another op of its kind, and none that it is this one."""
        kind = self.target.graph.ops[node].kind
        tags = self.target.tags.get(node, ())
        if op.kind == kind and op.id in tags:
            return False
        return any(tag != op.id and self.lowered.ops[tag].kind == kind for tag in tags)

    # Loops and branches.

    def regions(self, op: Op, path: Path) -> None:
        operands = self.operands(op)
        places = [self.now.get(operand) for operand in operands]
        node = self.owner(op, places)
        mine = parts_of(self.lowered, op, operands)
        theirs: Parts | None = None
        carried: list[int | None] = [None] * len(operands)
        if node is not None:
            self.claimed.add(node)
            there = self.target.operands(node)
            theirs = parts_of(self.target.graph, self.target.graph.ops[node], there)
            carried = match_carried(
                AlignedLoop(mine, list(map(self.type_of, operands)), places),
                AlignedLoop(theirs, list(map(self.target.type_of, there)), there),
                self.target.tags,
            )
        is_loop = op.kind in LOOPS
        unchanged: frozenset[int] = mine.unchanged if is_loop else frozenset()
        for region, arguments in mine.arguments.items():
            others = theirs.arguments.get(region, ()) if theirs is not None else ()
            for index, (argument, position) in enumerate(zip(arguments, carried, strict=False)):
                place = self.brought(node, places[index]) if index in unchanged else None
                if position is not None and position < len(others):
                    place = (others[position], 0)
                self.bind((argument, 0), place)
        order: Sequence[int | None] = carried if is_loop else range(len(op.types))
        for region in range(mine.num_regions):
            returned = self.body(op.id, region, path)
            # What a loop's condition returns is no result.
            if theirs is not None and not (is_loop and region == 0):
                self.fill_returned(returned, theirs.returned[region : region + 1], order)
        for result, type_ in enumerate(op.types):
            position = order[result]
            place = self.result(node, position, type_)
            if position is None and result in unchanged:
                # After the loop it is the operand; what nothing uses then is only inside.
                used = any(edge.result == result for _, edge in self.lowered.uses(op))
                place = places[result] if used else self.brought(node, places[result])
            self.bind((op.id, result), place)
        if theirs is not None:
            self.fill_returned(operands, [theirs.operands], carried)

    def brought(self, loop: int | None, value: ValueId | None) -> ValueId | None:
        """What a loop uses of a value that it no longer carries.

        XLA's pass `xla-sdy-open-while-free-vars-sharding` puts an open constraint on whatever a
        loop uses of its surroundings, so that it can be sharded otherwise inside; where there is
        none it is the value itself. Of a constant, or what is made of constants alone, Shardy gives
        each user a copy, and the loop uses its own.
        """
        if loop is None or value is None:
            return value
        for each in (value, *self.target.copies(value)):
            for node in self.target.consumers(each):
                op = self.target.graph.ops[node]
                tags = self.target.tags.get(node, ())
                of_user = any(is_identity(self.lowered.ops[tag]) for tag in tags)
                if (
                    op.kind in KEPT_IDENTITIES
                    and not of_user
                    and self.target.is_used_inside(node, loop)
                ):
                    return (node, 0)
            if self.target.is_used_inside(each[0], loop):
                return each
        return value

    def fill_returned(
        self,
        values: Sequence[ValueId],
        theirs: Sequence[Sequence[ValueId]],
        order: Sequence[int | None],
    ) -> None:
        """Where values are that go into regions or come out of them, in the other's order."""
        for there in theirs:
            for value, position in zip(values, order, strict=False):
                if position is not None and position < len(there):
                    self.fill(value, there[position])

    def result(self, node: int | None, position: int | None, type_: TensorType) -> ValueId | None:
        """A result of an op, where it has one there of that type."""
        types = () if node is None else self.target.graph.ops[node].types
        if node is None or position is None or position >= len(types):
            return None
        return (node, position) if same_types([type_], [types[position]]) else None

    def owner(self, op: Op, operands: Sequence[ValueId | None]) -> int | None:
        """The loop or branch that is this one: by its tag, or by those of what is inside."""
        kinds = PARTITIONED_REGIONS[op.kind]
        nodes = [
            node
            for node in self.target.tagged.get(op.id, ())
            if self.target.graph.ops[node].kind in kinds
        ]
        if not nodes:
            nodes = self.target.around(self.tags_inside(op, kinds), kinds)
        known = {operand for operand in operands if operand is not None}

        def likeness(node: int) -> tuple[int, bool, int]:
            return (
                len(known & set(self.target.operands(node))),
                node not in self.claimed,
                -node,
            )

        return max(nodes, key=likeness, default=None)

    def tags_inside(self, op: Op, kinds: frozenset[str]) -> Iterator[tuple[int, int]]:
        """The ops inside an op and in the functions called there, and inside how many of a kind."""
        waiting = [(op.id, 0)]
        while waiting:
            owner, depth = waiting.pop()
            for inner in self.lowered.children(owner):
                if inner.is_argument:
                    continue
                yield inner.id, depth
                waiting.append((inner.id, depth + (inner.kind in kinds)))
                callee = self.lowered.callee(inner)
                if callee is not None:
                    waiting.append((callee.op, depth))
