"""Model Explorer's node data: the fields that it documents, for nodes of its graphs."""

import json

import jsonschema
import pytest

from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.views import graph_node_data
from sdyscope.views.graph_model_explorer import graph_collection

pytestmark = pytest.mark.compiles

COLOURS = {"bgColor": {"type": "string"}, "textColor": {"type": "string"}}

#: A file of node data, by the fields that Model Explorer documents (`ModelNodeData`): nothing else
#: is read, and a value is a number or a text.
NODE_DATA = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["results"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "results": {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "required": ["value"],
                    "additionalProperties": False,
                    "properties": {"value": {"type": ["number", "string"]}, **COLOURS},
                },
            },
            "gradient": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["stop"],
                    "additionalProperties": False,
                    "properties": {"stop": {"type": "number"}, **COLOURS},
                },
            },
            "showExpandedSummaryOnGroupNode": {"type": "boolean"},
            "hideInAggregatedStatsTable": {"type": "boolean"},
            "hideInChildrenStatsTable": {"type": "boolean"},
        },
    },
}


@pytest.fixture(scope="module")
def inspection():
    return Inspection(resolve("mlp"), ("shardy",))


def decided(inspection):
    decisions = Decisions.of(inspection, inspection.propagated("shardy"))

    def of(value):
        known = decisions.decided(value)
        return None if known is None else known.sharding

    return of


def read(graph, data):
    """The data of each graph, as its file has it; each node is one of the graph that it is for."""
    graphs = json.loads(json.dumps(data))
    jsonschema.validate(graphs, NODE_DATA)
    nodes = {
        each["id"]: {node["id"] for node in each["nodes"]}
        for each in graph_collection(graph)["graphs"]
    }
    assert all(graphs[name]["results"].keys() <= nodes[name] for name in graphs)
    assert graphs["main"]["results"]
    return graphs


def test_shardings_and_bytes_are_what_was_decided(inspection):
    graph = inspection.graph("shardy")
    argument = next(each for each in graph.main.arguments if each.name == "params['w1']")
    of = decided(inspection)
    shardings = read(graph, graph_node_data.shardings(graph, of))["main"]["results"]
    assert shardings[str(argument.node)]["value"] == "P(None, 'model')"
    assert shardings[str(argument.node)]["bgColor"]
    held = read(graph, graph_node_data.held(graph, of))["main"]
    assert held["results"][str(argument.node)]["value"] == of((argument.node, 0)).bytes_per_device
    assert [item["stop"] for item in held["gradient"]] == [0, 1]


def test_what_is_sent_is_at_the_ops_that_it_is_for(inspection):
    graph = inspection.graph("shardy")
    collectives = inspection.collectives("shardy", origins=False)
    data = read(graph, graph_node_data.sent(graph, collectives))
    values = [
        result["value"] for graph_data in data.values() for result in graph_data["results"].values()
    ]
    tagged = [
        collective.count * part.sent
        for collective in collectives.collectives
        for part in collective.parts
        if any(part.tags)
    ]
    assert tagged
    assert sum(values) == sum(tagged)
