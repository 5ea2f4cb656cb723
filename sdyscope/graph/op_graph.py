"""The op graph: what the readers build, and every later stage looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import networkx

from sdyscope.graph.boundaries import boundary_edges
from sdyscope.graph.model import (
    AttributeValue,
    Edge,
    EdgeKind,
    Function,
    NotUnderstood,
    Op,
    Sharding,
    ValueId,
)
from sdyscope.graph.types import TensorType
from sdyscope.mesh import Mesh

__all__ = ["OpGraph"]


@dataclass(eq=False)
class OpGraph:
    """A module as a graph.

    Attributes:
      ops: Every op and block argument, `ops[id].id == id`.
      operand_values: The operands of each op, in order, by its id.
      name: Symbol name of the module.
      attributes: The module's attributes (`mhlo.num_partitions`, `mhlo.num_replicas`, ...).
      meshes: The module's `sdy.mesh` symbols; the text of one that was not understood.
      functions: The module's functions by name, in order.
      not_understood: All that could not be read.
      reader: `bindings` (MLIR's own) or `text` (sdyscope's tolerant reader).
      stage: Whose shardings values have: those written when it was `lowered`, or those that
        propagation decided.
      operand_numbers: Of an op some of whose operands could not be read, the numbers of those in
        `operand_values`.
    """

    ops: list[Op]
    operand_values: list[Sequence[ValueId]]
    name: str
    attributes: Mapping[str, AttributeValue]
    meshes: dict[str, Mesh | str]
    functions: dict[str, Function]
    not_understood: list[NotUnderstood]
    reader: Literal["bindings", "text"]
    stage: Literal["lowered", "propagated"] = "lowered"
    operand_numbers: dict[int, Sequence[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ops)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    @cached_property
    def nx(self) -> networkx.MultiDiGraph[int]:
        """The NetworkX graph, made when it is first asked for.

        A node is the id of an op or block argument and has the attribute `op` (the `Op`); an edge
        has the attribute `edge` (the `Edge`). The key of an SSA use (`data`, `capture`) is the
        operand's number; the key of any other edge is a string.
        """
        made: networkx.MultiDiGraph[int] = networkx.MultiDiGraph()
        made.add_nodes_from((op.id, {"op": op}) for op in self.ops)
        made.add_edges_from(
            (value[0], node, number, {"edge": edge})
            for node in range(len(self.ops))
            for number, value, edge in self._uses_by(node)
        )
        made.add_edges_from(
            (producer, consumer, key, {"edge": edge})
            for producer, consumer, key, edge in boundary_edges(self)
        )
        return made

    @property
    def main(self) -> Function | None:
        """The function `main`, else the first public one; None without functions."""
        if "main" in self.functions:
            return self.functions["main"]
        public = (f for f in self.functions.values() if f.visibility in ("", "public"))
        return next(public, None)

    def operations(self) -> Iterator[Op]:
        """The operations in program order, without the block arguments."""
        return (op for op in self.ops if op.argument < 0)

    def operands(self, op: Op | int) -> list[tuple[Op, Edge]]:
        """Producer and edge of each SSA operand of `op`, in operand order."""
        node = op if isinstance(op, int) else op.id
        return [(self.ops[value[0]], edge) for _, value, edge in self._uses_by(node)]

    def uses(self, op: Op | int, result: int | None = None) -> list[tuple[Op, Edge]]:
        """Consumer and edge of each SSA use of `op`'s results (or of the one given)."""
        node = op if isinstance(op, int) else op.id
        return [
            (self.ops[consumer], edge)
            for consumer in self._consumers.get(node, ())
            for _, value, edge in self._uses_by(consumer)
            if value[0] == node and result in (None, value[1])
        ]

    def edges(self) -> Iterator[tuple[int, int, Edge]]:
        """Producer, consumer and edge of every edge, by producer."""
        yield from self.nx.edges(data="edge")

    def children(self, op: Op | int, region: int | None = None) -> list[Op]:
        """Block arguments and ops directly inside `op`'s regions (or the one given), in order."""
        node = op if isinstance(op, int) else op.id
        inside = self._children.get(node, [])
        return [self.ops[i] for i in inside if region is None or self.ops[i].region == region]

    def callee(self, op: Op | int) -> Function | None:
        """The function that a call goes into; None when `op` is no call of one in the module."""
        name = (self.ops[op] if isinstance(op, int) else op).callee
        return None if name is None else self.functions.get(name)

    def callers(self, function: str) -> list[Op]:
        """The calls of a function, in program order."""
        return [self.ops[i] for i in self._callers.get(function, [])]

    def _uses_by(self, node: int) -> Iterator[tuple[int, ValueId, Edge]]:
        """The number of each operand of an op, its value, and the edge."""
        values = self.operand_values[node]
        if not values:
            return
        ops = self.ops
        home = (ops[node].parent, ops[node].region)
        numbers = self.operand_numbers.get(node) or range(len(values))
        for number, value in zip(numbers, values, strict=True):
            producer, result = value
            source = ops[producer]
            kind: EdgeKind = "data" if (source.parent, source.region) == home else "capture"
            type_, sharding = source.types[result], source.shardings[result]
            yield number, value, self._edge(kind, result, number, type_, sharding)

    def _edge(
        self,
        kind: EdgeKind,
        result: int,
        operand: int,
        type_: TensorType,
        sharding: Sharding | None,
    ) -> Edge:
        """An edge; there are few distinct ones, and equal edges are mostly one object.

        Readers make types and shardings once a distinct text, so their identity stands for them.
        """
        key = (kind, result, operand, id(type_), id(sharding))
        found = self._edges.get(key)
        if found is None:
            found = self._edges[key] = Edge(kind, result, operand, type_, sharding)
        return found

    @cached_property
    def _edges(self) -> dict[tuple[str, int, int, int, int], Edge]:
        return {}

    @cached_property
    def _consumers(self) -> dict[int, list[int]]:
        """The ops that use results of each op, in program order and each once."""
        consumers: dict[int, list[int]] = {}
        for node, values in enumerate(self.operand_values):
            for producer in dict.fromkeys([value[0] for value in values]):
                consumers.setdefault(producer, []).append(node)
        return consumers

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        for op in self.ops:
            if op.parent is not None:
                children.setdefault(op.parent, []).append(op.id)
        return children

    @cached_property
    def _callers(self) -> dict[str, list[int]]:
        callers: dict[str, list[int]] = {}
        for op in self.ops:
            if op.attributes and op.callee is not None:
                callers.setdefault(op.callee, []).append(op.id)
        return callers
