"""The ops of a program as the nodes of a picture: calls written out, regions inside their ops.

A value that enters or leaves a called function or a region is followed to the op that makes it, so
that an edge leads from op to op however deep each of them is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from sdyscope.analysis.naming.scopes import is_differentiated
from sdyscope.annotations import op_path, scope_of, split_scope
from sdyscope.graph import Op, OpGraph
from sdyscope.graph.op_kinds import BARRIERS, BRANCHES, LOOPS, REGIONS, TERMINATORS
from sdyscope.values.passing import passing

Lane: TypeAlias = Literal["forward", "backward", "other"]
"""Which pass an op belongs to; everything is ``forward`` in a program that is not transposed."""

#: Ops whose regions are a program of their own, not the few ops that a reduction combines with.
_REGIONS = LOOPS | BRANCHES | REGIONS | BARRIERS

#: What stands around a name in a scope because of a transformation: `transpose(jvp(layer0))`.
_WRAPPED = re.compile(r"(?:transpose|jvp|vmap|pmap|remat|jit|pjit|checkpoint|custom_\w+)\((.*)\)")

#: Parts of a scope that say how JAX runs something, not what it is.
_MACHINERY = frozenset({"body", "cond", "while", "branch", "shard_map", "pjit"})

#: Calls are written out while there are at most this many times as many nodes as ops.
_GROWTH = 3


@dataclass(frozen=True, slots=True)
class Owner:
    """An op that other ops are inside: a call, or an op with regions.

    Attributes:
        op: its number in the op graph.
        kind: `call`, or the op's own: `while`.
        name: what to call it.
        path: the names of the scopes that it is in, below the owner that it is inside.
        lane: the pass that it belongs to.
        owner: the owner that it is inside itself; None in the main function.
    """

    op: int
    kind: str
    name: str
    path: tuple[str, ...]
    lane: Lane
    owner: int | None


@dataclass(slots=True)
class PictureNode:
    """An op, an argument, or a result of the program.

    Attributes:
        op: its number in the op graph; of a result of the program that of what it returns.
        kind: `dot_general`, `argument`, `result`.
        name: pytree path of an argument or result; what an einsum says of itself; else empty.
        path: the names of the scopes that it is in, below its owner.
        lane: the pass that it belongs to.
        owner: the call or region that it is inside.
        operands: (node, which of its results) of each operand.
        results: how many results it has.
        splat: whether it is one number, however often: a constant, or made of such alone.
    """

    op: int
    kind: str
    name: str
    path: tuple[str, ...]
    lane: Lane
    owner: int | None
    operands: list[tuple[int, int]] = field(default_factory=list)
    results: int = 1
    splat: bool = False


@dataclass
class Nodes:
    """All of them.

    Attributes:
        nodes: in program order, so that what a node takes comes before it.
        owners: the calls and regions that nodes are inside.
        of_op: for each op the nodes that it is, one for each call that it was written out for.
        plain_calls: how many calls were not written out, because there would be too many nodes.
    """

    nodes: list[PictureNode] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    of_op: dict[int, list[int]] = field(default_factory=dict)
    owners_of_op: dict[int, list[int]] = field(default_factory=dict)
    plain_calls: int = 0


def nodes_of(graph: OpGraph) -> Nodes:
    """The nodes of a module's main function, and of everything that it calls."""
    builder = _Builder(graph)
    main = graph.main
    if main is not None:
        returned = builder.block(graph.children(main.op), {}, _Around())
        for result, value in zip(main.results, returned, strict=False):
            source = builder.drawn.nodes[value[0]]
            place = source.path, source.lane, source.owner
            builder.add(PictureNode(source.op, "result", main.name_of(result), *place, [value], 0))
    return builder.drawn


_Values: TypeAlias = dict[tuple[int, int], tuple[int, int]]


class _Around(NamedTuple):
    """The owner that ops are inside, its whole scope and lane; in main ops have their own lane."""

    owner: int | None = None
    scope: tuple[str, ...] = ()
    lane: Lane | None = None


class _Builder:
    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.drawn = Nodes()
        self.differentiated = is_differentiated(op.scope for op in graph.ops)
        self.names = (
            {argument.node: graph.main.name_of(argument) for argument in graph.main.arguments}
            if graph.main is not None
            else {}
        )
        self.most = _GROWTH * len(graph.ops) + 1000
        self.calls: list[str] = []

    def add(self, node: PictureNode) -> int:
        self.drawn.nodes.append(node)
        return len(self.drawn.nodes) - 1

    def block(
        self,
        ops: list[Op],
        values: _Values,
        around: _Around,
    ) -> list[tuple[int, int]]:
        """The nodes of a block; gives what its terminator returns.

        Args:
            ops: its arguments and ops.
            values: node and result for each value that is known so far; those of the block join.
            around: what the block is inside.
        """
        returned: list[tuple[int, int]] = []
        for op in ops:
            if op.is_argument:
                if (op.id, 0) not in values:
                    values[op.id, 0] = self.plain(op, values, around), 0
            elif op.kind in TERMINATORS:
                returned = self.operands(op, values)
            elif op.kind in _REGIONS and self.graph.children(op):
                self.region(op, values, around)
            elif not self.call(op, values, around):
                node = self.plain(op, values, around)
                for result in range(len(op.types)):
                    values[op.id, result] = node, result
        return returned

    def operands(self, op: Op, values: _Values) -> list[tuple[int, int]]:
        return [
            producer
            for value in self.graph.operand_values[op.id]
            if (producer := values.get(value)) is not None
        ]

    def plain(self, op: Op, values: _Values, around: _Around) -> int:
        path, note, lane = self.place(op, around)
        operands = [] if op.is_argument else self.operands(op, values)
        kind = op.mnemonic
        name = self.names.get(op.id, note) if op.is_argument else note
        if op.is_argument and around.owner is None:
            path = ()
        number = self.add(
            PictureNode(op.id, kind, name, path, lane, around.owner, operands, len(op.types))
        )
        nodes = self.drawn.nodes
        if kind == "constant":
            nodes[number].splat = True
        elif operands and kind not in _NOT_SPLAT:
            nodes[number].splat = all(nodes[producer].splat for producer, _ in operands)
        self.drawn.of_op.setdefault(op.id, []).append(number)
        return number

    def place(self, op: Op, around: _Around) -> tuple[tuple[str, ...], str, Lane]:
        """Names of the scopes of an op below its owner's, what an einsum says, and the lane."""
        parts, note, backward, forward = _read_scope(op_path(op))
        lane: Lane = "forward"
        if self.differentiated:
            lane = "backward" if backward else "forward" if forward else "other"
        if parts[: len(around.scope)] == around.scope:
            parts = parts[len(around.scope) :]
        return parts, note, around.lane or lane

    def owned(self, op: Op, kind: str, name: str, around: _Around) -> _Around:
        path, _, lane = self.place(op, around)
        if path and path[-1] == name:
            path = path[:-1]
        self.drawn.owners.append(Owner(op.id, kind, name, path, lane, around.owner))
        number = len(self.drawn.owners) - 1
        self.drawn.owners_of_op.setdefault(op.id, []).append(number)
        return _Around(number, _read_scope(op_path(op))[0], lane)

    def call(self, op: Op, values: _Values, around: _Around) -> bool:
        """Writes out what an op calls; False where it calls nothing, or too much."""
        function = self.graph.callee(op) if op.attributes else None
        if function is None or function.name in self.calls:
            return False
        if len(self.drawn.nodes) > self.most:
            self.drawn.plain_calls += 1
            return False
        given = self.operands(op, values)
        inside: _Values = {
            (argument.node, 0): value
            for argument, value in zip(function.arguments, given, strict=False)
        }
        name = scope_of(op)[1] or function.name
        body = self.owned(op, "call", name, around)
        self.calls.append(function.name)
        returned = self.block(self.graph.children(function.op), inside, body)
        self.calls.pop()
        for result, value in enumerate(returned):
            values[op.id, result] = value
        return True

    def region(self, op: Op, values: _Values, around: _Around) -> None:
        kind = op.mnemonic
        path = _read_scope(op_path(op))[0]
        body = self.owned(op, kind, path[-1] if path else kind, around)
        given = self.operands(op, values)
        returned: list[tuple[int, int]] = []
        regions = sorted({child.region for child in self.graph.children(op)})
        for region in regions:
            inside = self.graph.children(op, region)
            if kind == "while" and region == 0:
                continue  # Its condition compares a counter.
            first = len(self.drawn.nodes)
            returned = self.block(inside, values, body) or returned
            entering = [n for n in self.drawn.nodes[first:] if n.kind == "argument"]
            for node in entering:
                index = self.graph.ops[node.op].argument
                if node.owner == body.owner and index < len(given):
                    node.operands = [given[index]]
                    node.name = self.called(given[index][0])
        for result in range(len(op.types)):
            if result < len(returned):
                values[op.id, result] = returned[result]

    def called(self, number: int) -> str:
        """The argument of the program that a node is, but for its form; empty where it is none."""
        node = self.drawn.nodes[number]
        while passing(node.kind) not in (None, "part") and len(node.operands) == 1:
            node = self.drawn.nodes[node.operands[0][0]]
        return node.name if node.kind == "argument" else ""


#: Ops that make different numbers of equal ones.
_NOT_SPLAT = frozenset({"iota", "rng_bit_generator", "custom_call", "argument"})


@lru_cache(1 << 14)
def _read_scope(scope: str) -> tuple[tuple[str, ...], str, bool, bool]:
    """Names of scopes, outermost first; what an einsum says; whether transposed, and traced."""
    path = split_scope(scope)[0]
    parts: list[str] = []
    note = ""
    for at, part in enumerate(_parts(path)):
        name = part
        while (wrapped := _WRAPPED.fullmatch(name)) is not None:
            if at == 0 and name.startswith(("jit(", "pjit(")):
                name = ""
                break
            name = wrapped[1]
        if "->" in name:
            note = name
        elif name and name not in _MACHINERY:
            parts.append(name)
    return tuple(parts), note, "transpose(" in scope, "jvp(" in scope


def _parts(path: str) -> list[str]:
    """The parts between slashes that are not in parentheses."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(path):
        depth += (char == "(") - (char == ")")
        if char == "/" and depth <= 0:
            parts.append(path[start:at])
            start = at + 1
    parts.append(path[start:])
    return [part for part in parts if part]
