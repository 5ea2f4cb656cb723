"""The op graph in every form that it can be written in, and in one line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Literal, TypeAlias
from xml.sax.saxutils import escape

from sdyscope.facts.account import Account
from sdyscope.graph import OpGraph
from sdyscope.graph.collection import no_collection
from sdyscope.graph.scalars import (
    EDGE_KEYS,
    GRAPH_KEYS,
    NODE_KEYS,
    NodeScalars,
    Scalars,
    edge_scalars,
    graph_scalars,
)
from sdyscope.terminal import document
from sdyscope.views import graph_json, graph_model_explorer
from sdyscope.words.counts import counted
from sdyscope.words.paths import file_text

Format: TypeAlias = Literal["json", "graphml", "model-explorer"]

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'


def encoded(graph: OpGraph, form: Format, account: Account) -> bytes:
    """The graph as the content of a file.

    Args:
        graph: the graph.
        account: what is not known of the program; `json` has it.
        form: `json` is sdyscope's own document, which NetworkX reads too; `graphml` is for every
            tool that draws graphs; `model-explorer` is for Google's Model Explorer.
    """
    if form == "json":
        with no_collection():
            return document.encode(graph_json.document(graph, account))
    if form == "graphml":
        return (_DECLARATION + graphml(graph)).encode()
    return json.dumps(graph_model_explorer.graph_collection(graph)).encode() + b"\n"


def statistics(graph: OpGraph, module: str) -> str:
    """How large the graph is and how it was read, in a line.

    Args:
        graph: the graph.
        module: what it is of, as ``module_text`` says it.
    """
    kinds = Counter(op.kind for op in graph.operations())
    edges = sum(edge.kind in ("data", "capture") for _, _, edge in graph.edges())
    written = [sharding for op in graph.ops for sharding in op.shardings]
    for function in graph.functions.values():
        written += [result.sharding for result in function.results if result.node is None]
    shardings = sum(sharding is not None for sharding in written)
    parts = [
        f"{counted(kinds.total(), 'op')} of {counted(len(kinds), 'kind')}",
        counted(edges, "use of a value", "uses of values"),
        counted(len(graph.functions), "function"),
        counted(shardings, "sharding"),
    ]
    if graph.reader == "text":
        parts.append("read as text, without MLIR's parser")
    listed = {(item.op, item.attribute) for item in graph.not_understood}
    if texts := len(set(graph.unparsed()) - listed):
        parts.append(f"{counted(texts, 'attribute')} kept as text")
    if graph.not_understood:
        count = len(graph.not_understood)
        parts.append(f"{counted(count, 'piece')} not understood")
    return f"{module}: {', '.join(parts)}"


# --- GraphML: for Gephi, yEd, igraph and NetworkX -------------------------------------------------

_OPENING = """\
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns \
http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">"""


def graphml(graph: OpGraph) -> str:
    """The GraphML document, with its XML declaration left to who writes the file (UTF-8).

    It says what `networkx.write_graphml` writes of the op graph's NetworkX graph. Ids of nodes are
    the op graph's numbers.

    Written line by line: NetworkX, which makes a tree of XML elements first, takes 6.6 times as
    long (11.3 s of CPU time against 1.7 for the train step of 80 layers).
    """
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: OpGraph) -> Iterator[str]:
    yield _OPENING
    for domain, keys in (("node", NODE_KEYS), ("edge", EDGE_KEYS), ("graph", GRAPH_KEYS)):
        for name, type_ in keys.items():
            # An id is unique in the whole document.
            yield (
                f'  <key id="{_key(domain, name)}" for="{domain}" attr.name="{name}" '
                f'attr.type="{"string" if type_ is str else "long"}" />'
            )
    yield '  <graph edgedefault="directed">'
    node_scalars = NodeScalars(graph, file_text)
    for op in graph.ops:
        yield f'    <node id="{op.id}">'
        yield from _data("node", node_scalars(op))
        yield "    </node>"
    for number, (producer, consumer, edge) in enumerate(graph.edges()):
        yield f'    <edge source="{producer}" target="{consumer}" id="e{number}">'
        yield from _data("edge", edge_scalars(edge))
        yield "    </edge>"
    yield from _data("graph", graph_scalars(graph))
    yield "  </graph>"
    yield "</graphml>"


def _key(domain: str, name: str) -> str:
    return name if domain == "node" else f"{domain}_{name}"


def _data(domain: str, values: Scalars) -> Iterator[str]:
    for name, value in values.items():
        text = escape(value) if isinstance(value, str) else value
        yield f'      <data key="{_key(domain, name)}">{text}</data>'
