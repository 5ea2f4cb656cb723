"""The graph that carries propagated shardings is the lowered one in all else."""

import pytest
from user_programs import USER_PROGRAMS

from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh

MESH = Mesh.of({"data": 4, "model": 2})


@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
@pytest.mark.parametrize("name", ["gradients", "scanned", "shard_map_full"])
def test_every_value_and_edge_carries_what_was_decided(name, partitioner):
    inspection = Inspection(USER_PROGRAMS[name](compat.abstract_mesh(MESH)))
    lowered = inspection.graph(partitioner)
    values = inspection.propagated(partitioner).values
    graph = inspection.graph(partitioner, at="propagated")
    assert (lowered.stage, graph.stage) == ("lowered", "propagated")
    assert set(graph.nx.edges(keys=True)) == set(lowered.nx.edges(keys=True))
    for before, after in zip(lowered.ops, graph.ops, strict=True):
        assert graph.nx.nodes[after.id].op is after
        assert (after.kind, after.types, after.attributes) == (
            before.kind,
            before.types,
            before.attributes,
        )
        for result, sharding in enumerate(after.shardings):
            assert sharding == values[after.id, result].sharding
    for result, node in zip(graph.main.results, graph.results(), strict=True):
        assert (result.sharding,) == node.shardings
    for producer, consumer, edge in graph.edges():
        if edge.kind in ("data", "capture", "region", "call"):
            assert edge.sharding == graph.ops[producer].shardings[edge.result]
        elif edge.kind == "loop":
            assert edge.sharding == graph.ops[consumer].shardings[0]
    inside = [op for op in graph.operations() if op.kind == "stablehlo.dot_general"]
    # In a shard_map's body every axis is manual: GSPMD says so, Shardy says nothing.
    silent = name == "shard_map_full" and partitioner == "shardy"
    assert all((op.shardings[0] is None) == silent for op in inside)
    assert all(lowered.ops[op.id].shardings == (None,) for op in inside)
    for argument in graph.main.arguments:
        assert argument.sharding == graph.ops[argument.node].shardings[0]
