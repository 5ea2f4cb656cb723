"""GraphML of the op graph, read back by NetworkX."""

from xml.etree import ElementTree

import networkx
import pytest
from graph_modules import CASES, lowered

from sdyscope.graph import build, read_text
from sdyscope.views.graph_graphml import edge_values, graph_values, graphml, node_values


def scalar_graph(graph):
    """What the document stands for."""
    scalars = networkx.MultiDiGraph(**graph_values(graph))
    for op in graph.ops:
        scalars.add_node(op.id, **node_values(op))
    for number, (producer, consumer, edge) in enumerate(graph.nx.edges(data="edge")):
        scalars.add_edge(producer, consumer, f"e{number}", **edge_values(edge))
    return scalars


@pytest.mark.parametrize(("name", "partitioner"), CASES)
def test_networkx_reads_it_back(name, partitioner):
    graph = build(lowered(name, partitioner))
    # NetworkX makes a multigraph only where two edges are parallel, if it is not told to.
    read = networkx.parse_graphml(
        graphml(graph), node_type=int, edge_key_type=str, force_multigraph=True
    )
    expected = scalar_graph(graph)
    assert isinstance(read, networkx.MultiDiGraph)
    assert {**read.graph, **expected.graph} == read.graph
    assert dict(read.nodes(data=True)) == dict(expected.nodes(data=True))
    assert list(read.edges(keys=True, data=True)) == list(expected.edges(keys=True, data=True))
    assert len(read) == len(graph)
    keys = [key for _, _, key in read.edges(keys=True)]
    assert len(set(keys)) == len(keys) == graph.nx.number_of_edges()


def test_ids_are_unique():
    root = ElementTree.fromstring(graphml(build(lowered("layers", "shardy"))))
    ids = [element.get("id") for element in root.iter() if element.get("id") is not None]
    assert len(set(ids)) == len(ids) > 100


def test_shardings_and_source_lines():
    graph = build(lowered("layers", "shardy"))
    read = networkx.parse_graphml(graphml(graph), node_type=int, edge_key_type=str)
    first = graph.main.arguments[0]
    assert read.nodes[first.node]["shardings"] == str(first.sharding)
    dot = next(op for op in graph.operations() if op.kind == "stablehlo.dot_general")
    assert f"graph_modules.py:{dot.source.line}:" in read.nodes[dot.id]["source"]
    assert read.graph["module"] == graph.name


def test_text_that_xml_has_no_form_for():
    graph = read_text('module {\n  "x.a"() {x.note = "a\\00b<&>\\C3\\A9"} : () -> ()\n}')
    read = networkx.parse_graphml(graphml(graph), node_type=int, edge_key_type=str)
    assert read.nodes[1]["attributes"] == "{x.note = a\ufffdb<&>é}"
