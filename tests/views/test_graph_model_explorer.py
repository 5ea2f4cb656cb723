"""Model Explorer's JSON of the op graph: the fields that it documents, and what is in them."""

import json
from types import SimpleNamespace

import jsonschema
import networkx
import pytest
from graph_modules import CASES, lowered

from sdyscope.graph import build
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.views.graph_model_explorer import graph_collection


def record(required, **optional):
    """An object with these fields and no others."""
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": required | optional,
    }


def listed(items):
    return {"type": "array", "items": items}


TEXT = {"type": "string"}
METADATA = listed(record({"id": TEXT, "attrs": listed(record({"key": TEXT, "value": TEXT}))}))
NODE = record(
    {"id": TEXT, "label": TEXT},
    namespace=TEXT,
    subgraphIds=listed(TEXT),
    attrs=listed(record({"key": TEXT, "value": TEXT})),
    incomingEdges=listed(
        record({"sourceNodeId": TEXT}, sourceNodeOutputId=TEXT, targetNodeInputId=TEXT)
    ),
    outputsMetadata=METADATA,
    inputsMetadata=METADATA,
)
EDGES = listed(record({"sourceNodeId": TEXT, "targetNodeId": TEXT}, label=TEXT))
OVERLAYS = record(
    {
        "name": TEXT,
        "type": {"const": "edge_overlays"},
        "overlays": listed(record({"name": TEXT, "edgeColor": TEXT, "edges": EDGES})),
    }
)
GRAPH = record(
    {"id": TEXT, "nodes": listed(NODE)},
    groupNodeAttributes={
        "type": "object",
        "additionalProperties": {"type": "object", "additionalProperties": TEXT},
    },
    tasksData=record({}, edgeOverlaysDataListLeftPane=listed(OVERLAYS)),
)

#: A `GraphCollection`, by the fields that Model Explorer documents and this tool writes.
GRAPHS = record(
    {"label": TEXT, "graphs": listed(GRAPH)},
    graphSorting={"enum": ["node_count_asc", "node_count_desc", "name_asc", "name_desc"]},
)


def read(graph):
    """The collection as its file has it."""
    text = json.dumps(graph_collection(graph))
    jsonschema.validate(json.loads(text), GRAPHS)
    return json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields))


@pytest.mark.parametrize(("name", "partitioner"), CASES)
def test_every_function_is_a_graph_of_its_ops(name, partitioner):
    graph = build(lowered(name, partitioner))
    collection = read(graph)
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


@pytest.fixture(scope="module")
def step():
    return Inspection(resolve("fsdp-transformer"), ("shardy",)).graph("shardy")


def test_arguments_and_results_are_grouped_by_the_keys_of_their_paths(step):
    (main, *_) = read(step).graphs
    groups = {node.label: node.namespace for node in main.nodes}
    assert groups["params['layers'][0]['wq']"] == "arguments/params/layers/[0]"
    assert groups["opt_state[0].mu['embedding']"] == "arguments/opt_state/[0]/mu"
    assert groups["result[0]['layers'][1]['wq']"] == "results/[0]/layers/[1]"
    assert groups["result[2]"] == "results"


def test_constants_are_in_the_group_of_their_users(step):
    (main, *_) = read(step).graphs
    groups = {node.id: node.namespace for node in main.nodes}
    users = {node.id: [] for node in main.nodes}
    for node in main.nodes:
        for edge in node.incomingEdges:
            users[edge.sourceNodeId].append(groups[node.id])
    constants = [node for node in main.nodes if node.label == "constant"]
    assert constants
    for constant in constants:
        assert constant.namespace
        assert all(group.startswith(constant.namespace) for group in users[constant.id])
    # What is in no group would be one row beside all others.
    assert [node.label for node in main.nodes if not node.namespace] == ["return"]


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
