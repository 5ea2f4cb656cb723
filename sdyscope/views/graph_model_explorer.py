"""The op graph as a JSON file that Google's Model Explorer opens.

The form is Model Explorer's `GraphCollection` (`model_explorer/graph_builder.py` of the package
`ai-edge-model-explorer`): a graph a function, groups of nodes from the scope paths, calls linked
to the graphs of what they call. Arguments and results are in groups of their own, by the keys of
their paths.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from sdyscope.analysis.naming.paths import split
from sdyscope.graph import Edge, Function, Op, OpGraph
from sdyscope.graph.scalars import (
    attribute_text,
    attribute_texts,
    frame_text,
    sharding_texts,
    type_text,
)
from sdyscope.words.paths import file_text

#: Edges drawn as inputs, inside a function. Those of loops are an overlay, as the layout wants no
#: cycles.
_INPUTS = frozenset({"data", "capture", "region", "yield"})


def graph_collection(graph: OpGraph) -> dict[str, Any]:
    """The `GraphCollection` of a module, ready for `json.dumps`."""
    groups = _Groups(graph)
    return {
        "label": graph.name or "module",
        "graphs": [_graph(graph, function, groups) for function in graph.functions.values()],
        "graphSorting": "node_count_desc",
    }


def _graph(graph: OpGraph, function: Function, groups: _Groups) -> dict[str, Any]:
    inside = [op for op in graph.ops if op.function == function.name and op.id != function.op]
    names = {argument.node: argument.name for argument in function.arguments}
    names |= {result.node: result.name for result in function.results if result.node is not None}
    results = {
        f"result {result.index} {result.name}".rstrip(): (
            f"{type_text(result.type)} {result.sharding or ''}".rstrip()
        )
        for result in function.results
    }
    meshes = {f"mesh @{name}": str(mesh) for name, mesh in graph.meshes.items()}
    collection: dict[str, Any] = {
        "id": function.name,
        "nodes": [_node(graph, op, groups, names.get(op.id, "")) for op in inside],
        "groupNodeAttributes": {"": {**attribute_texts(graph.attributes), **meshes, **results}},
    }
    loops = [
        {"sourceNodeId": str(producer), "targetNodeId": str(op.id), "label": str(edge.operand)}
        for op in inside
        for producer, edge in graph.entering(op)
        if edge.kind == "loop"
    ]
    if loops:
        overlay = {"name": "next iteration", "edgeColor": "#b8860b", "edges": loops}
        collection["tasksData"] = {
            "edgeOverlaysDataListLeftPane": [
                {"name": "loops", "type": "edge_overlays", "overlays": [overlay]}
            ]
        }
    return collection


def _node(graph: OpGraph, op: Op, groups: _Groups, path: str) -> dict[str, Any]:
    incoming = [
        (producer, edge, _input_id(edge, graph.ops[producer]))
        for producer, edge in (
            *((source.id, edge) for source, edge in graph.operands(op)),
            *graph.entering(op),
        )
        if edge.kind in _INPUTS or op.is_result
    ]
    incoming.sort(key=lambda item: (item[1].kind, item[1].operand))
    attributes = {
        "op": op.kind,
        "name": op.name,
        "path": path,
        "scope": op.scope,
        "source": "" if op.source is None else frame_text(op.source, file_text),
        "called from": ", ".join(frame_text(frame, file_text) for frame in op.location.frames[1:]),
        **attribute_texts(op.attributes),
    }
    callee = graph.callee(op)
    kind = "arguments" if op.is_argument else "results" if op.is_result else None
    node: dict[str, Any] = {
        "id": str(op.id),
        "label": path or op.kind.partition(".")[2] or op.kind,
        "namespace": groups.of(op) if kind is None or not path else _by_keys(kind, path),
        "attrs": _pairs(attributes),
        "incomingEdges": [
            {
                "sourceNodeId": str(producer),
                "sourceNodeOutputId": str(edge.result),
                "targetNodeInputId": input_id,
            }
            for producer, edge, input_id in incoming
        ],
        "inputsMetadata": [
            {
                "id": input_id,
                "attrs": _pairs(
                    {
                        "kind": edge.kind,
                        "tensor_shape": type_text(edge.type),
                        "sharding": "" if edge.sharding is None else str(edge.sharding),
                    }
                ),
            }
            for _, edge, input_id in incoming
        ],
        "outputsMetadata": [
            {
                "id": str(index),
                "attrs": _pairs(
                    {
                        "__tensor_tag": name,
                        "tensor_shape": type_text(type_),
                        "sharding": sharding or "",
                    }
                ),
            }
            for index, (name, type_, sharding) in enumerate(
                zip(op.names, op.types, sharding_texts(op), strict=True)
            )
        ],
    }
    if callee is not None:
        node["subgraphIds"] = [callee.name]
    return node


def _by_keys(kind: str, path: str) -> str:
    """The group of an argument or result of a function: `arguments/params/layers/[0]`."""
    name, *keys = split(path)
    above = [name, *keys[:-1]] if kind == "arguments" else keys[:-1]
    texts = (key.removeprefix(".").removeprefix("['").removesuffix("']") for key in above)
    return "/".join(filter(None, (kind, *"/".join(texts).split("/"))))


def _input_id(edge: Edge, producer: Op) -> str:
    if edge.kind in ("data", "capture"):
        return str(edge.operand)
    if edge.kind == "yield":
        return f"yield {edge.operand} of region {producer.region}"
    return f"{edge.kind} {edge.operand}"


def _pairs(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": attribute_text(value)} for key, value in values.items() if value]


class _Groups:
    """The namespace of each op: the groups it is in, outermost first, joined with `/`."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._known: dict[int, str] = {}

    def of(self, op: Op) -> str:
        """Its scope without its own name; inside a region, below the op that has the region."""
        if op.id not in self._known:
            self._known[op.id] = self._find(op)
        return self._known[op.id]

    def _find(self, op: Op) -> str:
        outer = None if op.parent is None else self._graph.ops[op.parent]
        groups = [] if op.is_argument or op.is_result else op.scope.split("/")[:-1]
        if outer is None or outer.kind in ("func.func", "builtin.module"):
            if not groups and op.mnemonic == "constant":
                groups = self._of_users(op)
            return "/".join(groups)
        above = outer.scope.split("/")
        if groups[: len(above)] == above:
            groups = groups[len(above) :]
        else:
            groups = []
        own = f"{outer.kind} {outer.name}".rstrip()
        several = self._graph.children(outer)[-1].region > 0
        region = [f"region {op.region}"] if several else []
        return "/".join(filter(None, [self.of(outer), own, *region, *groups]))

    def _of_users(self, op: Op) -> list[str]:
        """What the groups of its users have in common: JAX lowers constants without a scope."""
        users = [self.of(user).split("/") for user, _ in self._graph.uses(op)]
        shared = takewhile(lambda names: len(set(names)) == 1, zip(*users, strict=False))
        return [names[0] for names in shared]
