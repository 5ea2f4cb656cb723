"""Model Explorer's node data, read into Model Explorer's own published types."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from sdyscope.analysis.propagation.decided import Decisions
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.views import graph_node_data
from sdyscope.views.graph_model_explorer import graph_collection

pytestmark = pytest.mark.compiles

_path = Path(__file__).parent / "model_explorer_node_data_builder.py"
_spec = importlib.util.spec_from_file_location("model_explorer_node_data_builder", _path)
builder = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = builder
_spec.loader.exec_module(builder)


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
    """The data in Model Explorer's types; each node is one of the graph that it is for."""
    nodes = {
        each["id"]: {node["id"] for node in each["nodes"]}
        for each in graph_collection(graph)["graphs"]
    }
    graphs = {
        name: builder.GraphNodeData(
            **{
                **graph_data,
                "results": {
                    node: builder.NodeDataResult(**result)
                    for node, result in graph_data["results"].items()
                },
                "gradient": [
                    builder.GradientItem(**item) for item in graph_data.get("gradient", ())
                ],
            }
        )
        for name, graph_data in json.loads(json.dumps(data)).items()
    }
    assert all(graphs[name].results.keys() <= nodes[name] for name in graphs)
    assert json.loads(builder.ModelNodeData(graphs).to_json_string())["main"]["results"]
    return graphs


def test_shardings_and_bytes_are_what_was_decided(inspection):
    graph = inspection.graph("shardy")
    argument = next(each for each in graph.main.arguments if each.name == "params['w1']")
    of = decided(inspection)
    shardings = read(graph, graph_node_data.shardings(graph, of))["main"].results
    assert shardings[str(argument.node)].value == "P(None, 'model')"
    assert shardings[str(argument.node)].bgColor
    held = read(graph, graph_node_data.held(graph, of))["main"]
    assert held.results[str(argument.node)].value == of((argument.node, 0)).bytes_per_device
    assert [item.stop for item in held.gradient] == [0, 1]


def test_what_is_sent_is_at_the_ops_that_it_is_for(inspection):
    graph = inspection.graph("shardy")
    collectives = inspection.collectives("shardy", origins=False)
    data = read(graph, graph_node_data.sent(graph, collectives))
    values = [
        result.value for graph_data in data.values() for result in graph_data.results.values()
    ]
    tagged = [
        collective.count * part.sent
        for collective in collectives.collectives
        for part in collective.parts
        if any(part.tags)
    ]
    assert tagged
    assert sum(values) == sum(tagged)
