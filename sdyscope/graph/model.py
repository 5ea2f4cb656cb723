"""The op graph: what the readers build, and every later stage looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import networkx

from sdyscope.graph.locations import Location
from sdyscope.graph.types import TensorType
from sdyscope.mesh import Mesh
from sdyscope.sharding import TensorSharding
from sdyscope.source import SourceLocation
from sdyscope.tiling import HloSharding, NamedHloSharding, TupleSharding

__all__ = [
    "ARGUMENT",
    "NO_ATTRIBUTES",
    "Argument",
    "AttributeValue",
    "Edge",
    "EdgeKind",
    "Function",
    "NotUnderstood",
    "Op",
    "OpGraph",
    "Result",
    "Sharding",
    "adjacency",
]

EdgeKind: TypeAlias = Literal["data", "capture", "region", "loop", "yield", "call", "return"]
"""What an edge stands for.

`data` and `capture` are the SSA uses, one edge a use: from the op or block argument that produces
a value to the op that has it as an operand; `capture` when the consumer is in a region inside the
producer's. The others say where values continue across a region or function boundary:
`region`: producer of an operand of an op -> block argument of that op's region;
`loop`: terminator of a while's body -> the block arguments of its next iteration;
`yield`: terminator of a region -> the op that contains it, whose results they become;
`call`: producer of an operand of a call -> argument of the called function;
`return`: terminator of a function -> each call of it.
"""

Sharding: TypeAlias = TensorSharding | HloSharding | NamedHloSharding | TupleSharding | str
"""A parsed sharding; its text when it could not be parsed (then it is in `not_understood`)."""

AttributeValue: TypeAlias = Any
"""A parsed sharding value, str, int, bool, tuple, mapping; else the text MLIR prints."""

NO_ATTRIBUTES: Mapping[str, AttributeValue] = MappingProxyType({})

ARGUMENT = "argument"
"""The `kind` of a block argument, of a function or of any other region."""


_USES = frozenset({"data", "capture"})


@dataclass(frozen=True, slots=True)
class Op:
    """One operation, or one block argument.

    Attributes:
      id: Its number in the order in which the module is printed, from 0, which is the module
        itself. An op comes before the arguments of its regions, and they before the ops inside.
      kind: Name of the operation (`stablehlo.dot_general`), or `argument`.
      name: SSA name of its results as MLIR prints it (`%4`, `%cst_0`, `%arg0`), without the
        number of a result; empty without results.
      types: Type of each result.
      shardings: Sharding of each result as written on the op; None where nothing is written.
      function: Symbol name of the function it is in (of a function: its own); empty outside.
      parent: Id of the op whose region it is in; None for the module.
      region: Which of the parent's regions.
      block: Which block of that region.
      location: Scope path and source lines.
      attributes: Attributes that bear on sharding, calls or bookkeeping, by MLIR's name:
        every one with a dialect prefix (`sdy.sharding_rule`, `mhlo.sharding`,
        `mhlo.frontend_attributes`), and of the op's own `sharding`, `in_shardings`,
        `out_shardings`, `manual_axes`, `callee`, `call_target_name`, `backend_config`,
        `replica_groups` and the like. Shardings are parsed, strings and symbols are str.
      argument: Which argument of its block a block argument is; -1 for an operation.
    """

    id: int
    kind: str
    name: str
    types: tuple[TensorType, ...]
    shardings: tuple[Sharding | None, ...]
    function: str
    parent: int | None
    region: int
    block: int
    location: Location
    attributes: Mapping[str, AttributeValue] = field(hash=False)
    argument: int = -1

    @property
    def is_argument(self) -> bool:
        """Whether this is a block argument, not an operation."""
        return self.argument >= 0

    @property
    def names(self) -> tuple[str, ...]:
        """SSA name of each result as printed: `%4`, or `%2#0`, `%2#1`."""
        if len(self.types) == 1:
            return (self.name,)
        return tuple(f"{self.name}#{index}" for index in range(len(self.types)))

    @property
    def scope(self) -> str:
        """Scope path that JAX gave it: `jit(step)/jvp(layer0)/dot_general`; may be empty."""
        return self.location.scope

    @property
    def source(self) -> SourceLocation | None:
        """The innermost line of user code that it comes from."""
        return self.location.source

    @property
    def sharding_rule(self) -> AttributeValue | None:
        """The parsed `sdy.sharding_rule`, or its text when it was not understood."""
        return self.attributes.get("sdy.sharding_rule")

    @property
    def callee(self) -> str | None:
        """Symbol name of the function that a call calls."""
        return self.attributes.get("callee") or self.attributes.get("decomposition")

    @property
    def call_target(self) -> str | None:
        """`call_target_name` of a custom_call."""
        return self.attributes.get("call_target_name")

    @property
    def backend_config(self) -> AttributeValue | None:
        """`backend_config` of a custom_call: a str, or a mapping."""
        return self.attributes.get("backend_config")


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a value goes.

    Attributes:
      kind: See `EdgeKind`.
      result: Which result of the producer; for `loop`, `yield` and `return`, whose producer is a
        terminator, which of its operands.
      operand: Which operand of the consumer; for `yield` and `return` which of its results; for
        `region`, `loop` and `call`, whose consumer is a block argument, which argument.
      type: Type of the value.
      sharding: Sharding that the producer has written for it.
      via: For `region`, `loop`, `call`: id of the op with the region, or of the call.
    """

    kind: EdgeKind
    result: int
    operand: int
    type: TensorType
    sharding: Sharding | None
    via: int | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a function.

    Attributes:
      node: Id of its node.
      index: Its position.
      name: JAX's pytree path (`params['w'][0]`), from the location; empty when there is none.
      type: Its type.
      sharding: `sdy.sharding` or `mhlo.sharding` written on it.
      attributes: All its attributes (`jax.buffer_donor`, `tf.aliasing_output`, ...).
      location: Its location.
    """

    node: int
    index: int
    name: str
    type: TensorType
    sharding: Sharding | None
    attributes: Mapping[str, AttributeValue] = field(hash=False)
    location: Location


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a function.

    Attributes:
      index: Its position.
      name: `jax.result_info`, the pytree path (`result[0]['w']`); empty when there is none.
      type: Its type.
      sharding: `sdy.sharding` or `mhlo.sharding` written on it.
      attributes: All its attributes.
    """

    index: int
    name: str
    type: TensorType
    sharding: Sharding | None
    attributes: Mapping[str, AttributeValue] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the module.

    Attributes:
      name: Symbol name, without `@`.
      visibility: `public`, `private`, `nested`; empty when not written (which means public).
      op: Id of the `func.func`.
      arguments: Its arguments in order.
      results: Its results in order.
    """

    name: str
    visibility: str
    op: int
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """Something in the module that sdyscope could not read; it is kept as text.

    Attributes:
      op: Id of the op it is on; None when it belongs to none.
      attribute: Name of the attribute; empty for a piece of text.
      text: The text as it is.
      error: Why it could not be read.
      line: Line in the file, from 1, when the text reader found it; else None.
    """

    op: int | None
    attribute: str
    text: str
    error: str
    line: int | None = None


@dataclass(eq=False)
class OpGraph:
    """A module as a graph.

    Attributes:
      nx: The NetworkX graph. A node is the id of an op or block argument and has the attribute
        `op` (the `Op`); an edge has the attribute `edge` (the `Edge`). The key of an SSA use
        (`data`, `capture`) is the operand's number; the key of any other edge is a string.
      ops: Every op and block argument, `ops[id].id == id`.
      name: Symbol name of the module.
      attributes: The module's attributes (`mhlo.num_partitions`, `mhlo.num_replicas`, ...).
      meshes: The module's `sdy.mesh` symbols; the text of one that was not understood.
      functions: The module's functions by name, in order.
      not_understood: All that could not be read.
      reader: `bindings` (MLIR's own) or `text` (sdyscope's tolerant reader).
      stage: Whose shardings values have: those written when it was `lowered`, or those that
        propagation decided.
    """

    nx: networkx.MultiDiGraph[int]
    ops: list[Op]
    name: str
    attributes: Mapping[str, AttributeValue]
    meshes: dict[str, Mesh | str]
    functions: dict[str, Function]
    not_understood: list[NotUnderstood]
    reader: Literal["bindings", "text"]
    stage: Literal["lowered", "propagated"] = "lowered"

    def __len__(self) -> int:
        return len(self.ops)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

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
        ops = self.ops
        uses = [
            (ops[producer], edge)
            for producer, edges in adjacency(self.nx)[2][node].items()
            for data in edges.values()
            if (edge := data["edge"]).kind in _USES
        ]
        if len(uses) > 1:
            uses.sort(key=lambda use: use[1].operand)
        return uses

    def uses(self, op: Op | int, result: int | None = None) -> list[tuple[Op, Edge]]:
        """Consumer and edge of each SSA use of `op`'s results (or of the one given)."""
        node = op if isinstance(op, int) else op.id
        ops = self.ops
        return [
            (ops[consumer], edge)
            for consumer, edges in adjacency(self.nx)[1][node].items()
            for data in edges.values()
            if (edge := data["edge"]).kind in _USES and result in (None, edge.result)
        ]

    def edges(self) -> Iterator[tuple[int, int, Edge]]:
        """Producer, consumer and edge of every edge, by producer: `nx.edges`, faster."""
        for producer, consumers in adjacency(self.nx)[1].items():
            for consumer, edges in consumers.items():
                for data in edges.values():
                    yield producer, consumer, data["edge"]

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


def adjacency(graph: networkx.MultiDiGraph[int]) -> tuple[Any, Any, Any]:
    """NetworkX's dictionaries of nodes, of edges by producer and of edges by consumer.

    Its `add_node` and `add_edge` ask each time what a reader knows, whether a node is there, and
    take a fifth of the time of reading a module.
    """
    return graph._node, graph._succ, graph._pred
