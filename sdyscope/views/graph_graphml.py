"""The op graph as GraphML, for Gephi, yEd, igraph and NetworkX.

GraphML's attributes are scalars: of an op with several results, types and shardings are joined with
`; `, and attributes are one text. Ids of nodes are the op graph's numbers.
"""

from __future__ import annotations

import re

import networkx

from sdyscope.graph import Op, OpGraph
from sdyscope.views.graph_values import attribute_text, frame_text, sharding_texts

__all__ = ["graphml", "scalar_graph"]

#: Characters that XML 1.0 has no form for.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def graphml(graph: OpGraph) -> str:
    """The GraphML document, with its XML declaration left to who writes the file (UTF-8)."""
    lines = networkx.generate_graphml(scalar_graph(graph), named_key_ids=True)
    return "\n".join(lines) + "\n"


def scalar_graph(graph: OpGraph) -> networkx.MultiDiGraph[int]:
    """The graph with strings and numbers for values, as GraphML can hold it."""
    scalars: networkx.MultiDiGraph[int] = networkx.MultiDiGraph(
        module=_clean(graph.name),
        reader=graph.reader,
        not_understood=len(graph.not_understood),
        meshes=_clean("; ".join(f"@{name} {mesh}" for name, mesh in graph.meshes.items())),
    )
    for op in graph.ops:
        scalars.add_node(op.id, **_node(op))
    edges = graph.nx.edges(data="edge")
    for number, (producer, consumer, edge) in enumerate(edges):
        values = {
            "kind": edge.kind,
            "result": edge.result,
            "operand": edge.operand,
            "type": edge.type.text,
            "sharding": "" if edge.sharding is None else _clean(str(edge.sharding)),
        }
        if edge.via is not None:
            values["via"] = edge.via
        # An edge's id is unique in the whole document.
        scalars.add_edge(producer, consumer, f"e{number}", **values)
    return scalars


def _node(op: Op) -> dict[str, str | int]:
    values: dict[str, str | int] = {
        "kind": op.kind,
        "name": op.name,
        "types": "; ".join(type_.text for type_ in op.types),
        "shardings": "; ".join(text or "" for text in sharding_texts(op)).strip("; "),
        "function": op.function,
        "region": op.region,
        "block": op.block,
        "argument": op.argument,
        "scope": op.scope,
        "source": "" if op.source is None else frame_text(op.source),
        "stack": "; ".join(map(frame_text, op.location.frames)),
        "attributes": attribute_text(op.attributes) if op.attributes else "",
    }
    if op.parent is not None:
        values["parent"] = op.parent
    return {
        key: _clean(value) if isinstance(value, str) else value for key, value in values.items()
    }


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
