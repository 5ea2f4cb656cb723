"""Finds the values of a lowered module in the module that a partitioner made of it.

On the way calls are inlined, constants and what is the same are merged, broadcasts are split, loops
lose what they never change and order the rest anew. What stays are the tags of ops. The lowered
module is walked as it would run, calls entered each time; an op is the one with its tag (or none)
whose operands are those already found. Where a consumer was found and a producer not, the
consumer's operand is the producer: XLA only puts equals for equals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sdyscope.graph import Op, OpGraph, TensorType
from sdyscope.propagated import ValueId
from sdyscope.stages.align_regions import (
    INLINED_REGIONS,
    PARTITIONED_REGIONS,
    Loop,
    match_carried,
    parts_of,
)
from sdyscope.stages.align_target import Target

__all__ = ["Alignment", "align"]

Path: TypeAlias = tuple[int, ...]
"""The calls that an op is inside of, outermost first."""

#: Ops that are their operand, and may be gone.
_IDENTITIES = frozenset(
    {
        "sdy.sharding_constraint",
        "sdy.reshard",
        "sdy.propagation_barrier",
        "stablehlo.optimization_barrier",
        "mhlo.copy",
    }
)
_IDENTITY_CALLS = frozenset({"Sharding", "annotate_device_placement"})
_CONVERSIONS = frozenset({"stablehlo.convert", "stablehlo.reshape"})
_COMMUTATIVE = frozenset(
    f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
)
_CONSTRAINTS = frozenset({"sdy.sharding_constraint", "sdy.reshard", "mhlo.copy"})


@dataclass(frozen=True)
class Alignment:
    """Where each value of a lowered module is in a partitioner's module.

    Attributes:
        found: for each value, what it is each time that its function is called; None where it is
            gone. A value of a function that is never called is not in here.
        not_partitioned: values that no partitioner gives a sharding: inside the body of a
            reduction, a sort or a scatter, and tokens.
        retyped: ops whose tag is only on ops with results of other shapes or dtypes.
    """

    found: dict[ValueId, list[ValueId | None]] = field(default_factory=dict)
    not_partitioned: set[ValueId] = field(default_factory=set)
    retyped: set[int] = field(default_factory=set)


def align(lowered: OpGraph, propagated: OpGraph) -> Alignment:
    """Finds every value of ``lowered`` in ``propagated``, whose ops carry the tags of ``lowered``.

    Time is linear in the number of ops, calls inlined.
    """
    aligner = _Aligner(lowered, Target(propagated))
    aligner.run()
    return aligner.alignment


class _Aligner:
    """One walk. ``now`` is where values are in the call that is being walked."""

    def __init__(self, lowered: OpGraph, target: Target) -> None:
        self.lowered = lowered
        self.target = target
        self.alignment = Alignment()
        self.now: dict[ValueId, ValueId | None] = {}
        self.claimed: set[int] = set()
        self.operand_lists: dict[int, list[ValueId]] = {}

    def run(self) -> None:
        main, other = self.lowered.main, self.target.graph.main
        if main is None or other is None:
            return
        arguments = [argument.node for argument in other.arguments]
        for argument in main.arguments:
            same = argument.index < len(arguments) and _same_types(
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
        self.alignment.found.setdefault(value, []).append(there)

    def fill(self, value: ValueId, there: ValueId) -> None:
        """Says where a value is that was not found, and those that it was made from."""
        waiting = [(value, there)]
        while waiting:
            value, there = waiting.pop()
            if self.now.get(value, there) is not None or value not in self.now:
                continue
            if not _same_types((self.type_of(value),), (self.target.type_of(there),)):
                continue
            self.now[value] = there
            self.alignment.found[value][-1] = there
            op, other = self.lowered.ops[value[0]], self.target.graph.ops[there[0]]
            if op.kind != other.kind or op.is_argument or self.lowered.callee(op) is not None:
                continue
            waiting += self.pairs(op, other.id)

    def pairs(self, op: Op, node: int) -> list[tuple[ValueId, ValueId]]:
        """The operands of an op, each with that of the op that it is."""
        mine = self.operands(op)
        theirs = self.target.operands(node)
        if len(mine) == len(theirs) == 1:
            theirs = [self.target.source(node, op.id)]
        if len(mine) != len(theirs):
            return []
        places = [self.now.get(value) for value in mine]
        if op.kind in _COMMUTATIVE and (places[0] == theirs[1] or places[1] == theirs[0]):
            theirs = theirs[::-1]
        return list(zip(mine, theirs, strict=True))

    def type_of(self, value: ValueId) -> TensorType:
        return self.lowered.ops[value[0]].types[value[1]]

    def operands(self, op: Op) -> list[ValueId]:
        found = self.operand_lists.get(op.id)
        if found is None:
            uses = self.lowered.operands(op)
            found = self.operand_lists[op.id] = [(made.id, use.result) for made, use in uses]
        return found

    # Ops.

    def body(self, owner: int, region: int, path: Path) -> list[ValueId]:
        """Walks a region of an op; what it returns."""
        last: Op | None = None
        for op in self.lowered.children(owner, region):
            if not op.is_argument:
                self.op(op, path)
                last = op
        return self.operands(last) if last is not None else []

    def op(self, op: Op, path: Path) -> None:
        callee = self.lowered.callee(op)
        if callee is not None:
            arguments = [argument.node for argument in callee.arguments]
            self.inlined(op, arguments, callee.op, (*path, op.id))
        elif op.kind in INLINED_REGIONS:
            arguments = [c.id for c in self.lowered.children(op, 0) if c.is_argument]
            self.inlined(op, arguments, op.id, path)
        elif op.kind in PARTITIONED_REGIONS:
            self.regions(op, path)
        elif op.types:
            self.plain(op, path)

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

    def plain(self, op: Op, path: Path) -> None:
        operands = [self.now.get(operand) for operand in self.operands(op)]
        node = self.find(op, operands, path)
        if node is None:
            same = len(operands) == len(op.types) and (
                _is_identity(op) or self.changes_nothing(op)
            )
            for result in range(len(op.types)):
                self.bind((op.id, result), operands[result] if same else None)
        else:
            self.claimed.add(node)
            for result in range(len(op.types)):
                self.bind((op.id, result), (node, result))
            if self.target.graph.ops[node].kind == op.kind:
                for value, there in self.pairs(op, node):
                    self.fill(value, there)
        self.inside_nobody(op)

    def changes_nothing(self, op: Op) -> bool:
        """Whether it is a conversion to the type that the operand has already."""
        given = [self.type_of(operand) for operand in self.operands(op)]
        return op.kind in _CONVERSIONS and _same_types(op.types, given)

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
        known = {operand for operand in operands if operand is not None}
        typed = [
            node
            for node in tagged
            if _same_types(op.types, target.graph.ops[node].types)
            # `sid86;sid85` on a multiplication is where it and the broadcast of its operand came
            # from, and not what the broadcast is; unless it is nothing but its operand.
            and (not self.is_anothers(op, node) or (node, 0) in known)
        ]
        if not typed:
            typed = self.untagged(op, operands, known)
            if not typed:
                if any(target.graph.ops[node].kind == op.kind for node in tagged):
                    self.alignment.retyped.add(op.id)
                return None
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

    def untagged(
        self, op: Op, operands: Sequence[ValueId | None], known: set[ValueId]
    ) -> list[int]:
        """Ops that do the same to the same operands."""
        first = next((operand for operand in operands if operand is not None), None)
        if first is None:
            return []
        found = [
            node
            for node in self.target.consumers.get(first, ())
            if _same_types(op.types, self.target.graph.ops[node].types)
            and self.does_the_same(op, operands, known, node)
        ]
        return [node for node in found if node not in self.claimed] or found

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
                else _same_types([self.type_of(value)], [self.target.type_of(here[value])])
                for value, operand in zip(self.operands(op), operands, strict=True)
            )
        if (op.kind, kind) == ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
            return theirs == list(operands)  # Dimensions of size 1 were added.
        if kind in _CONSTRAINTS:
            return _is_identity(op) and theirs == list(operands)
        # What is no op of StableHLO (chlo.square) becomes several, without a tag.
        made_anew = not op.kind.startswith("stablehlo.") and node not in self.target.tags
        return made_anew and set(theirs) == known and None not in operands

    def is_anothers(self, op: Op, node: int) -> bool:
        """Whether a tag says that an op is another op of its kind, and none that it is this one."""
        kind = self.target.graph.ops[node].kind
        tags = self.target.tags.get(node, frozenset())
        if op.kind == kind and op.id in tags:
            return False
        return any(tag != op.id and self.lowered.ops[tag].kind == kind for tag in tags)

    # Loops and branches.

    def regions(self, op: Op, path: Path) -> None:
        operands = [self.now.get(operand) for operand in self.operands(op)]
        node = self.owner(op, operands)
        if node is not None:
            self.claimed.add(node)
        mine = parts_of(self.lowered, op, self.operands(op))
        theirs = (
            None
            if node is None
            else parts_of(
                self.target.graph, self.target.graph.ops[node], self.target.operands(node)
            )
        )
        carried: list[int | None] = [None] * len(operands)
        if theirs is not None and operands:
            carried = match_carried(
                Loop(mine, [self.type_of(v) for v in self.operands(op)], operands),
                Loop(theirs, list(map(self.target.type_of, theirs.operands)), theirs.operands),
                self.target.tags,
            )
        loops = op.kind.endswith(".while")
        for region in sorted(mine.arguments):
            for position, argument in enumerate(mine.arguments[region]):
                there = carried[position] if position < len(carried) else None
                if theirs is not None and there is not None:
                    self.bind((argument, 0), (theirs.arguments[region][there], 0))
                elif loops and position in mine.unchanged:
                    self.bind((argument, 0), operands[position])
                else:
                    self.bind((argument, 0), None)
        for region in range(mine.num_regions):
            returned = self.body(op.id, region, path)
            if theirs is None or region >= len(theirs.returned):
                continue
            order = carried if loops and region == 1 else range(len(returned))
            if not loops and len(theirs.returned[region]) != len(returned):
                continue
            if not loops or region == 1:
                for value, position in zip(returned, order, strict=False):
                    if position is not None:
                        self.fill(value, theirs.returned[region][position])
        types = () if node is None else self.target.graph.ops[node].types
        for result, type_ in enumerate(op.types):
            place: int | None = result
            if loops:
                place = carried[result]
                if place is None and result in mine.unchanged:
                    self.bind((op.id, result), operands[result])
                    continue
            elif len(types) != len(op.types):
                place = None
            fits = place is not None and place < len(types) and _same_types((type_,), [types[place]])
            self.bind((op.id, result), (node, place) if fits and node is not None and place is not None else None)
        if theirs is not None:
            for value, position in zip(self.operands(op), carried, strict=False):
                if position is not None:
                    self.fill(value, theirs.operands[position])

    def owner(self, op: Op, operands: Sequence[ValueId | None]) -> int | None:
        """The loop or branch that is this one: by its tag, or by those of what is inside."""
        kinds = PARTITIONED_REGIONS[op.kind]
        nodes = [
            node
            for node in self.target.tagged.get(op.id, ())
            if self.target.graph.ops[node].kind in kinds
        ]
        if not nodes:
            nodes = list(self.target.around(self.tags_inside(op), kinds))
        known = {operand for operand in operands if operand is not None}

        def likeness(node: int) -> tuple[int, bool, int]:
            return (
                len(known & set(self.target.operands(node))),
                node not in self.claimed,
                -node,
            )

        return max(nodes, key=likeness, default=None)

    def tags_inside(self, op: Op) -> Iterable[int]:
        """The ops inside an op and inside the functions that are called there."""
        waiting = [op.id]
        while waiting:
            for inner in self.lowered.children(waiting.pop()):
                if inner.is_argument:
                    continue
                yield inner.id
                waiting.append(inner.id)
                callee = self.lowered.callee(inner)
                if callee is not None:
                    waiting.append(callee.op)


def _is_identity(op: Op) -> bool:
    return op.kind in _IDENTITIES or op.call_target in _IDENTITY_CALLS


def _same_types(mine: Sequence[TensorType], theirs: Sequence[TensorType]) -> bool:
    return len(mine) == len(theirs) and all(
        one.shape == other.shape and one.dtype == other.dtype
        for one, other in zip(mine, theirs, strict=True)
    )
