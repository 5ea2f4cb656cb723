"""The op graph as GraphML, for Gephi, yEd, igraph and NetworkX.

GraphML's attributes are scalars: of an op with several results, types and shardings are joined with
`; `, and attributes are one text. Ids of nodes are the op graph's numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias
from xml.sax.saxutils import escape

from sdyscope.graph import Edge, Op, OpGraph
from sdyscope.views.graph_values import attribute_text, frame_text, sharding_texts

__all__ = ["edge_values", "graph_values", "graphml", "node_values"]

Scalars: TypeAlias = Mapping[str, str | int]
"""Attributes as GraphML can hold them, by name."""

#: Characters that XML 1.0 has no form for.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OPENING = """\
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns \
http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">"""
_NODE_KEYS = {
    "kind": "string",
    "name": "string",
    "types": "string",
    "shardings": "string",
    "function": "string",
    "region": "long",
    "block": "long",
    "argument": "long",
    "result": "long",
    "scope": "string",
    "source": "string",
    "stack": "string",
    "attributes": "string",
    "parent": "long",
}
_EDGE_KEYS = {
    "kind": "string",
    "result": "long",
    "operand": "long",
    "type": "string",
    "sharding": "string",
    "via": "long",
}
_GRAPH_KEYS = {
    "module": "string",
    "reader": "string",
    "not_understood": "long",
    "meshes": "string",
}


def graphml(graph: OpGraph) -> str:
    """The GraphML document, with its XML declaration left to who writes the file (UTF-8).

    Written line by line: NetworkX, which makes a tree of XML elements first, takes ten times as
    long.
    """
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: OpGraph) -> Iterator[str]:
    yield _OPENING
    for domain, keys in (("node", _NODE_KEYS), ("edge", _EDGE_KEYS), ("graph", _GRAPH_KEYS)):
        for name, type_ in keys.items():
            # An id is unique in the whole document.
            yield (
                f'  <key id="{_key(domain, name)}" for="{domain}" attr.name="{name}" '
                f'attr.type="{type_}" />'
            )
    yield '  <graph edgedefault="directed">'
    for op in graph.ops:
        yield f'    <node id="{op.id}">'
        yield from _data("node", node_values(op))
        yield "    </node>"
    for number, (producer, consumer, edge) in enumerate(graph.nx.edges(data="edge")):
        yield f'    <edge source="{producer}" target="{consumer}" id="e{number}">'
        yield from _data("edge", edge_values(edge))
        yield "    </edge>"
    yield from _data("graph", graph_values(graph))
    yield "  </graph>"
    yield "</graphml>"


def _key(domain: str, name: str) -> str:
    return name if domain == "node" else f"{domain}_{name}"


def _data(domain: str, values: Scalars) -> Iterator[str]:
    for name, value in values.items():
        text = escape(value) if isinstance(value, str) else value
        yield f'      <data key="{_key(domain, name)}">{text}</data>'


def graph_values(graph: OpGraph) -> Scalars:
    """What the document says of the module."""
    return {
        "module": _clean(graph.name),
        "reader": graph.reader,
        "not_understood": len(graph.not_understood),
        "meshes": _clean("; ".join(f"@{name} {mesh}" for name, mesh in graph.meshes.items())),
    }


def edge_values(edge: Edge) -> Scalars:
    """What the document says of an edge."""
    values: dict[str, str | int] = {
        "kind": edge.kind,
        "result": edge.result,
        "operand": edge.operand,
        "type": _clean(edge.type.text),
        "sharding": "" if edge.sharding is None else _clean(str(edge.sharding)),
    }
    if edge.via is not None:
        values["via"] = edge.via
    return values


def node_values(op: Op) -> Scalars:
    """What the document says of an op, block argument or result of main."""
    values: dict[str, str | int] = {
        "kind": op.kind,
        "name": op.name,
        "types": "; ".join(type_.text for type_ in op.types),
        "shardings": "; ".join(text or "" for text in sharding_texts(op)).strip("; "),
        "function": op.function,
        "region": op.region,
        "block": op.block,
        "argument": op.argument,
        "result": op.result,
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
