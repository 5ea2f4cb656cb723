"""GraphML of the op graph, read back by NetworkX."""

from xml.etree import ElementTree

import networkx
import pytest
from graph_modules import CASES, lowered

from sdyscope.graph import build
from sdyscope.views.graph import graphml
from sdyscope.words.paths import file_text


@pytest.mark.parametrize(("name", "partitioner"), CASES)
def test_networkx_reads_it_back(name, partitioner):
    graph = build(lowered(name, partitioner))
    # NetworkX makes a multigraph only where two edges are parallel, if it is not told to.
    read = networkx.parse_graphml(
        graphml(graph), node_type=int, edge_key_type=str, force_multigraph=True
    )
    assert isinstance(read, networkx.MultiDiGraph)
    assert {**read.graph, **graph.nx.graph} == read.graph
    assert dict(read.nodes(data=True)) == {
        node: _with_short_paths(dict(data)) for node, data in graph.nx.nodes(data=True)
    }
    # As GraphML has them, edges have ids of their own.
    keys = [key for _, _, key in read.edges(keys=True)]
    assert len(set(keys)) == len(keys) == graph.nx.number_of_edges()
    edges = sorted(graph.nx.edges(data=True), key=str)
    assert sorted(read.edges(data=True), key=str) == [(u, v, dict(data)) for u, v, data in edges]


def _with_short_paths(data):
    """The same with files named as in a document, which is shared."""
    for key in {"source", "stack"} & data.keys():
        data[key] = "; ".join(map(file_text, data[key].split("; ")))
    return data


def test_ids_are_unique():
    root = ElementTree.fromstring(graphml(build(lowered("layers", "shardy"))))
    ids = [element.get("id") for element in root.iter() if element.get("id") is not None]
    assert len(set(ids)) == len(ids) > 100


def test_shardings_and_source_lines():
    graph = build(lowered("layers", "shardy"))
    read = networkx.parse_graphml(graphml(graph), node_type=int, edge_key_type=str)
    first = graph.main.arguments[0]
    assert read.nodes[first.node]["lowered"] == str(first.sharding)
    dot = next(op for op in graph.operations() if op.kind == "stablehlo.dot_general")
    assert f"graph_modules.py:{dot.source.line}:" in read.nodes[dot.id]["source"]
    assert read.graph["module"] == graph.name
