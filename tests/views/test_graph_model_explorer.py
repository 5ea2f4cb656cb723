"""Model Explorer's JSON of the op graph, read into Model Explorer's own published types."""

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

import msgspec
import networkx
import pytest
from graph_modules import CASES, lowered

from sdyscope.graph import build
from sdyscope.views.graph_model_explorer import graph_collection

_path = Path(__file__).parent / "model_explorer_graph_builder.py"
_spec = importlib.util.spec_from_file_location("model_explorer_graph_builder", _path)
graph_builder = importlib.util.module_from_spec(_spec)
# Its dataclasses look their annotations up by the module's name.
sys.modules[_spec.name] = graph_builder
_spec.loader.exec_module(graph_builder)


def read(graph):
    """The collection in Model Explorer's types."""
    text = json.dumps(graph_collection(graph))
    return msgspec.convert(json.loads(text), graph_builder.GraphCollection)


def contains(whole, part):
    """Whether every value of `part` is in `whole`, at the same place."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return whole == part


@pytest.mark.parametrize(("name", "partitioner"), CASES)
def test_model_explorers_types_read_it(name, partitioner):
    graph = build(lowered(name, partitioner))
    collection = read(graph)
    # Nothing that was written is unknown to the types.
    assert contains(dataclasses.asdict(collection), graph_collection(graph))
    assert [exported.id for exported in collection.graphs] == list(graph.functions)
    assert sum(len(exported.nodes) for exported in collection.graphs) == sum(
        1 for op in graph.ops if op.function and op.kind != "func.func"
    )


@pytest.mark.parametrize(("name", "partitioner"), CASES)
def test_edges_lead_from_outputs_to_inputs_without_cycles(name, partitioner):
    graph = build(lowered(name, partitioner))
    for exported in read(graph).graphs:
        nodes = {node.id: node for node in exported.nodes}
        assert len(nodes) == len(exported.nodes)
        links = networkx.DiGraph()
        for node in exported.nodes:
            inputs = [item.id for item in node.inputsMetadata]
            assert len(inputs) == len(set(inputs))
            assert [edge.targetNodeInputId for edge in node.incomingEdges] == inputs
            for edge in node.incomingEdges:
                links.add_edge(edge.sourceNodeId, node.id)
                source = nodes[edge.sourceNodeId]
                # What a terminator passes on are its inputs; all else are outputs.
                passed = edge.targetNodeInputId.startswith(("yield", "return"))
                ends = source.inputsMetadata if passed else source.outputsMetadata
                assert edge.sourceNodeOutputId in {item.id for item in ends}
        assert networkx.is_directed_acyclic_graph(links)


def test_groups_are_scopes_and_regions():
    graph = build(lowered("regions", "shardy"))
    main = next(exported for exported in read(graph).graphs if exported.id == "main")
    nodes = {int(node.id): node for node in main.nodes}
    argument = graph.main.arguments[0]
    assert nodes[argument.node].label == "params['k']"
    assert nodes[argument.node].namespace == "arguments/params"
    loop = next(op for op in graph.operations() if op.kind == "stablehlo.while")
    assert nodes[loop.id].namespace == "/".join(loop.scope.split("/")[:-1])
    inside = graph.children(loop, 1)[-1]
    assert nodes[inside.id].namespace.startswith(
        f"{nodes[loop.id].namespace}/stablehlo.while {loop.name}/region 1"
    )
    (overlays,) = main.tasksData.edgeOverlaysDataListLeftPane
    assert len(overlays.overlays[0].edges) == sum(
        edge.kind == "loop" and graph.ops[consumer].function == "main"
        for _, consumer, edge in graph.edges()
    )


def test_calls_link_to_graphs_and_values_show_their_shardings():
    graph = build(lowered("regions", "gspmd"))
    collection = read(graph)
    ids = {exported.id for exported in collection.graphs}
    nodes = {int(node.id): node for exported in collection.graphs for node in exported.nodes}
    calls = [op for op in graph.operations() if op.kind == "func.call"]
    assert calls
    for call in calls:
        assert nodes[call.id].subgraphIds == [call.callee]
        assert call.callee in ids
    first = graph.main.arguments[0]
    (output,) = nodes[first.node].outputsMetadata
    assert {item.key: item.value for item in output.attrs} == {
        "__tensor_tag": "%arg0",
        "tensor_shape": "f32[8,8]",
        "sharding": str(first.sharding),
    }
