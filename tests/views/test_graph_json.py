"""The JSON document of the op graph: its schema, and that NetworkX reads it back."""

import json

import jsonschema
import networkx
import pytest
from graph_modules import CASES, lowered

from sdyscope.facts.account import Account
from sdyscope.graph import build, read_text
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.syntax.shardy import parse_mesh, parse_tensor_sharding
from sdyscope.terminal.document import encode, schema
from sdyscope.views.graph_json import Graph, document


@pytest.mark.parametrize(("name", "partitioner"), CASES)
def test_networkx_reads_it_back(name, partitioner):
    graph = build(lowered(name, partitioner))
    made = json.loads(encode(document(graph, Account())))
    jsonschema.validate(made, schema(Graph))
    assert made["schema"] == "sdyscope.graph/3"

    read = networkx.node_link_graph(made, edges="edges")
    assert isinstance(read, networkx.MultiDiGraph)
    assert set(read.edges(keys=True)) == set(graph.nx.edges(keys=True))
    for op in graph.ops:
        node = read.nodes[op.id]
        assert (node["kind"], node["scope"], node["parent"]) == (op.kind, op.scope, op.parent)
        assert [tuple(shape) for shape in node["shapes"]] == [type_.shape for type_ in op.types]
        stack = made["stacks"][node["stack"]]
        assert [frame["line"] for frame in stack] == [frame.line for frame in op.location.frames]
    for producer, consumer, key, edge in graph.keyed_edges():
        link = read.edges[producer, consumer, key]
        assert (link["kind"], link["result"], link["operand"], link["via"]) == (
            edge.kind,
            edge.result,
            edge.operand,
            edge.via,
        )


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_shardings_and_meshes_read_back_as_the_same_values(partitioner):
    graph = build(lowered("regions", partitioner))
    made = document(graph, Account())
    parse = parse_tensor_sharding if partitioner == "shardy" else parse_hlo_sharding
    written = 0
    for op, node in zip(graph.ops, made.nodes, strict=True):
        for sharding, text in zip(op.shardings, node.shardings, strict=True):
            assert (sharding is None) == (text is None)
            if text is not None:
                assert parse(text) == sharding
                written += 1
    assert written > 5
    assert {name: parse_mesh(text) for name, text in made.meshes.items()} == graph.meshes


def test_functions_and_what_was_not_understood():
    made = document(
        read_text("""module @m {
  func.func private @f(%x: tensor<2xf32> {mhlo.sharding = "{odd}"} loc("params['w']")) {
    return
  }
  ???
}"""),
        Account(),
    )
    (function,) = made.functions
    (argument,) = function.arguments
    assert (function.name, function.visibility, argument.name) == ("f", "private", "params['w']")
    assert argument.sharding == "{odd}"
    assert argument.attributes == {"mhlo.sharding": "{odd}"}
    assert [(item.text, item.line) for item in made.not_understood] == [("???", 5), ("{odd}", None)]
    assert (made.reader, made.module) == ("text", "m")
