"""The op graph in every form that it can be written in, and in one line."""

from __future__ import annotations

import json
from collections import Counter
from typing import Literal, TypeAlias

from sdyscope.facts.account import Account
from sdyscope.graph import OpGraph
from sdyscope.terminal import document
from sdyscope.views import graph_graphml, graph_json, graph_model_explorer
from sdyscope.words.counts import counted

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
        return document.encode(graph_json.document(graph, account))
    if form == "graphml":
        return (_DECLARATION + graph_graphml.graphml(graph)).encode()
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
