"""What a request and a compiled program say of the values of a module."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from tests.user_programs import abstract, constrain

MESH = Mesh.of({"data": 4, "model": 2})
EVERY = ("requested", "lowered", "propagated", "compiled")


def program():
    mesh = compat.abstract_mesh(MESH)

    def double(x):
        return x * 2

    specs = P("data", None)

    def step(x, w, unused):
        hidden = constrain(x @ w, mesh, "data", "model")
        mapped = jax.shard_map(double, mesh=mesh, in_specs=specs, out_specs=specs)
        return mapped(jnp.tanh(hidden)), hidden.sum()

    arrays = (
        abstract(mesh, (8, 16), "data"),
        abstract(mesh, (16, 32), None, "model"),
        abstract(mesh, (4,)),
    )
    return Program("step", jax.jit(step), arrays, mesh=mesh)


@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_each_stage_says_the_same_of_what_was_asked_for(partitioner):
    inspection = Inspection(program(), [partitioner])
    graph = inspection.graph(partitioner, at=EVERY)
    nodes = graph.nx.nodes
    asked = {n: data["requested"] for n, data in nodes.items() if "requested" in data}
    kinds = sorted(nodes[n]["kind"] for n in asked if nodes[n]["kind"] == "argument")
    # The argument that is not used is not in the module.
    assert kinds == ["argument", "argument"]
    assert len(asked) == 4  # and the constraint, and what leaves the shard_map
    for node, text in asked.items():
        assert nodes[node]["lowered"] == nodes[node]["propagated"] == text
    compiled = inspection.compiled(partitioner)
    said = {n: data["compiled"] for n, data in nodes.items() if "compiled" in data}
    assert len(said) == 4
    for (node, result), sharding in graph.beside["compiled"].items():
        op = graph.ops[node]
        kind, number = ("argument", op.argument) if op.argument >= 0 else ("result", op.result)
        rank = len(op.types[result].shape)
        place = to_placement(sharding, rank, MESH, 8)
        assert place == compiled.placement(kind, number, rank)
        assert asked.get(node, said[node]) == said[node]


def test_one_stage_is_asked_for_alone():
    inspection = Inspection(program(), ["shardy"])
    graph = inspection.graph("shardy", at="requested")
    assert graph.stage == "lowered"
    assert set(graph.beside) == {"requested"}
    assert inspection.graph("shardy").beside == {}


def test_a_module_does_not_say_what_was_requested():
    lowered = Inspection(program(), ["shardy"]).lowered["shardy"]
    module = Inspection(read_bytes(str(lowered.module).encode()), ["shardy"])
    with pytest.raises(TargetError, match="does not say what was requested"):
        module.graph("shardy", at="requested")
