"""The op graph as a JSON document that NetworkX reads back.

The document is what `networkx.node_link_data(graph, edges="edges")` gives for a directed
multigraph, and around it what belongs to the module: `networkx.node_link_graph(document,
edges="edges")` takes it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sdyscope.facts.account import Account
from sdyscope.graph import Argument, NotUnderstood, Op, OpGraph, Result
from sdyscope.graph.model import EdgeKind
from sdyscope.graph.scalars import attribute_texts, sharding_texts
from sdyscope.values.source import SourceLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An op, block argument or result of main; the fields are those of `sdyscope.graph.Op`.

    Attributes:
        id: its number in program order.
        kind: name of the operation, or `argument` or `result`.
        name: SSA name as printed, empty without results, and for a result of main.
        types: MLIR type of each result.
        shapes: size of each dimension (null: dynamic) of each result; null for what is no tensor.
        dtypes: MLIR element type of each result.
        shardings: sharding of each result, in Shardy's or HLO's syntax; null without one.
        beside: the same at the stages `requested` and `compiled`, where they were asked for and say
            something of it, by stage.
        function: symbol name of the function it is in.
        parent: id of the op whose region it is in, of a result of main main's; null for the module.
        region: which region of the parent.
        block: which block of the region.
        argument: which argument of the block; -1 for anything else.
        result: which result of main; -1 for anything else.
        scope: scope path; of an argument or result of main its pytree path.
        stack: index in the document's `stacks` of the call stack that it comes from.
        attributes: attributes as texts, by name.
    """

    id: int
    kind: str
    name: str
    types: tuple[str, ...]
    shapes: tuple[tuple[int | None, ...] | None, ...]
    dtypes: tuple[str, ...]
    shardings: tuple[str | None, ...]
    beside: dict[str, tuple[str | None, ...]]
    function: str
    parent: int | None
    region: int
    block: int
    argument: int
    result: int
    scope: str
    stack: int
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An edge; the fields are those of `sdyscope.graph.Edge`.

    Attributes:
        source: id of the producer.
        target: id of the consumer.
        key: tells edges between the same two nodes apart.
        kind: `data`, `capture`, `region`, `loop`, `yield`, `call` or `return`.
        result: which result of the producer (operand, when that is a terminator).
        operand: which operand of the consumer (argument or result, by kind).
        type: MLIR type of the value.
        sharding: sharding that the producer has written for the value.
        via: id of the op with the region, or of the call.
    """

    source: int
    target: int
    key: int | str
    kind: EdgeKind
    result: int
    operand: int
    type: str
    sharding: str | None
    via: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResult:
    """A result of a function: its index, pytree path, type, sharding, attributes.

    Its node is null except in main.
    """

    node: int | None
    index: int
    name: str
    type: str
    sharding: str | None
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionArgument(FunctionResult):
    """An argument of a function: its node and index, pytree path, type, sharding, attributes."""

    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionEntry:
    """A function: its symbol name, visibility, node, arguments and results."""

    name: str
    visibility: str
    op: int
    arguments: tuple[FunctionArgument, ...]
    results: tuple[FunctionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The document of `sdyscope graph --json`.

    Attributes:
        schema: name and version of this form.
        module: symbol name of the module.
        at: whose shardings values have, those written in the `lowered` module or the `propagated`.
        reader: `bindings` when MLIR's own parser read the module, `text` when only sdyscope's did.
        attributes: the module's attributes as texts.
        meshes: the module's meshes in Shardy's syntax, by name.
        functions: the module's functions.
        not_understood: what could not be read, and is kept as text.
        account: what is not known of the program, at the stages that were looked at.
        stacks: the distinct call stacks, innermost frame first.
        directed: always true (NetworkX).
        multigraph: always true (NetworkX).
        graph: always empty (NetworkX).
        nodes: ops and block arguments in program order, then the results of main.
        edges: where values go.
    """

    schema: Literal["sdyscope.graph/3"] = "sdyscope.graph/3"
    module: str
    at: Literal["lowered", "propagated"]
    reader: Literal["bindings", "text"]
    attributes: dict[str, str]
    meshes: dict[str, str]
    functions: tuple[FunctionEntry, ...]
    not_understood: tuple[NotUnderstood, ...]
    account: Account
    stacks: tuple[tuple[SourceLocation, ...], ...]
    directed: bool = True
    multigraph: bool = True
    graph: dict[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...]
    edges: tuple[Link, ...]


def document(graph: OpGraph, account: Account) -> Graph:
    """The document of an op graph, with what is not known of its program."""
    stacks: dict[tuple[SourceLocation, ...], int] = {}
    nodes = tuple(
        Node(
            id=op.id,
            kind=op.kind,
            name=op.name,
            types=tuple(type_.text for type_ in op.types),
            shapes=tuple(type_.shape for type_ in op.types),
            dtypes=tuple(type_.dtype for type_ in op.types),
            shardings=tuple(sharding_texts(op)),
            beside=_beside(graph, op),
            function=op.function,
            parent=op.parent,
            region=op.region,
            block=op.block,
            argument=op.argument,
            result=op.result,
            scope=op.scope,
            stack=stacks.setdefault(op.location.frames, len(stacks)),
            attributes=attribute_texts(op.attributes),
        )
        for op in graph.ops
    )
    edges = tuple(
        Link(
            source=producer,
            target=consumer,
            key=key,
            kind=edge.kind,
            result=edge.result,
            operand=edge.operand,
            type=edge.type.text,
            sharding=_text(edge.sharding),
            via=edge.via,
        )
        for producer, consumer, key, edge in graph.keyed_edges()
    )
    functions = tuple(
        FunctionEntry(
            name=function.name,
            visibility=function.visibility,
            op=function.op,
            arguments=tuple(FunctionArgument(**_fields(each)) for each in function.arguments),
            results=tuple(FunctionResult(**_fields(each)) for each in function.results),
        )
        for function in graph.functions.values()
    )
    return Graph(
        module=graph.name,
        at=graph.stage,
        reader=graph.reader,
        attributes=attribute_texts(graph.attributes),
        meshes={name: str(mesh) for name, mesh in graph.meshes.items()},
        functions=functions,
        not_understood=tuple(graph.not_understood),
        account=account,
        stacks=tuple(stacks),
        nodes=nodes,
        edges=edges,
    )


def _beside(graph: OpGraph, op: Op) -> dict[str, tuple[str | None, ...]]:
    texts = {
        stage: tuple(_text(sharded.get((op.id, result))) for result in range(len(op.types)))
        for stage, sharded in graph.beside.items()
    }
    return {stage: each for stage, each in texts.items() if any(each)}


def _fields(end: Argument | Result) -> dict[str, Any]:
    return {
        "node": end.node,
        "index": end.index,
        "name": end.name,
        "type": end.type.text,
        "sharding": _text(end.sharding),
        "attributes": attribute_texts(end.attributes),
    }


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)
