"""Which value of a module an annotation is about, under both partitioners."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from sdyscope import Inspection, Program
from sdyscope.annotations import annotated_value, read_annotations
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh
from tests.user_programs import abstract


@pytest.fixture(scope="module")
def inspection():
    """A `shard_map` with two inputs and two outputs."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))

    def body(x, y):
        return x + 1, y.astype(jnp.bfloat16)

    def step(x):
        specs = P("data"), P(None, "model")
        sines = jnp.sin(x), jnp.cos(x)
        x, y = jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=specs)(*sines)
        return y, jnp.tanh(x)

    return Inspection(
        Program("step", jax.jit(step), (abstract(mesh, (8, 8), "data"),), mesh=mesh),
        ["shardy", "gspmd"],
    )


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_a_value_is_what_the_program_has_there(inspection, partitioner):
    graph = inspection.graph(partitioner)
    values = {
        (annotation.kind, annotation.index): annotated_value(graph, annotation)
        for annotation in read_annotations(graph)
    }
    users = {
        name: next(op for op in graph.operations() if op.kind == f"stablehlo.{name}")
        for name in ("sine", "cosine", "tanh")
    }
    assert values["argument", 0] == graph.operand(users["sine"], 0)
    assert values["result", 0] == (graph.results()[0].id, 0)
    assert values["result", 1] == (graph.results()[1].id, 0)
    passed = [graph.operand(users["tanh"], 0), graph.returned[0]]
    assert [values["shard_map output", index] for index in (0, 1)] == passed
    if partitioner == "shardy":
        went_in = [(users[name].id, 0) for name in ("sine", "cosine")]
    else:  # The op that cuts an input takes what only says how it is sharded.
        written = [next(user for user, _ in graph.uses(users[n])) for n in ("sine", "cosine")]
        went_in = [(op.id, 0) for op in written]
    assert [values["shard_map input", index] for index in (0, 1)] == went_in


def test_an_output_of_a_shard_map_is_no_value_inside(inspection):
    items = inspection.snapshot(["propagated"]).items
    assert len([key for key in items if key.kind == "shard_map output"]) == 2
    assert [key for key in items if key.kind == "value" and key.type == "bf16[8,8]"] == []
