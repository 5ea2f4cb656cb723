"""What the page says of each stage, in words."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import inspect
from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.inspection import Inspection
from sdyscope.page import communication
from sdyscope.page import document as report
from sdyscope.page.columns import Pool
from sdyscope.page.stages import _propagated
from sdyscope.stages.lowered.read import read


def test_one_step_of_a_propagation_is_one():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    decided = propagate_document(inspect(jax.jit(lambda x: x), x, partitioners=("shardy",)))
    assert _propagated(decided, ()).words == "2 values, 1 step of Shardy."


def test_an_input_of_a_shard_map_is_a_value_that_is_counted_already():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    mapped = jax.shard_map(lambda x: x, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    decided = propagate_document(inspect(jax.jit(mapped), x, partitioners=("shardy",)))
    (propagation,) = decided.propagations
    count = sum(propagation.counts.values())
    assert _propagated(decided, ()).words.startswith(f"{count} values")


def test_a_module_is_not_said_to_run(tmp_path):
    """It has no input values; --run would run a program of an author's."""
    x = jax.ShapeDtypeStruct((8,), jnp.float32)
    program = inspect(jax.jit(jnp.sin), x, partitioners=("shardy",))
    file = tmp_path / "module.mlir"
    file.write_text(program.lowered["shardy"].text())
    words = {}
    for inspection in (program, Inspection(read(file))):
        document = report.document(inspection, "step", compiled=False)
        words[inspection.name] = document.stages[-1].words
    assert [*words.values()] == [
        "--run executes it and checks every shard and number.",
        "A file has no input values: run the program that it is of.",
    ]


@pytest.mark.compiles
def test_what_is_sent_in_a_loop_of_unknown_length_counts_once():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    step = jax.jit(lambda x: jax.lax.while_loop(lambda x: x.sum() < 1, lambda x: x + 1, x))
    inspection = inspect(step, x, partitioners=("shardy",))
    document = report.document(inspection, "step")
    (compiled,) = [stage for stage in document.stages if stage.name == "compiled"]
    assert (
        " A step has 1 collective that sends 7 B with loops of unknown trip count run once."
    ) in compiled.words
    title = communication.part(document, Pool({}, 8), inspection)["title"]
    assert title == "A device sends 7 B per step with loops of unknown trip count run once."
