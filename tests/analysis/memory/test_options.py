"""What tensors are called that could be sharded further together."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.memory.options import OfHeld, saved_together
from sdyscope.facts.memory import Held
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.values.entry_layout import StoredArray
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec


@pytest.mark.compiles
def test_an_index_that_all_have_is_in_their_name():
    """A quantized weight and its scales are each in a tuple of their own."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 2}))
    replicated = NamedSharding(mesh, P())

    def of(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=replicated)

    def step(params, x):
        for layer in params:
            weight, scale = layer["down"]
            x = jnp.tanh(x @ weight.astype(x.dtype) * scale)
        return x

    layer = {"down": (of((64, 64), jnp.int8), of((1, 64), jnp.float32))}
    program = Program("step", jax.jit(step), ([layer, layer], of((4, 64), jnp.float32)))
    held = Inspection(program, ("shardy",)).memory().under_sharded
    names = [saving.name for saving in saved_together(held) if len(saving.tensors) > 1]
    assert names == ["params[*]['down'][0]", "params[*]['down'][1]"]


@pytest.mark.parametrize(("saves", "names"), [(9, ()), (10, ("w",))])
def test_savings_are_worth_saying_first_from_a_tenth_of_the_arguments_on(saves, names):
    def held(name, kind, saved):
        stored = StoredArray("f32", (25,), "", 0)
        best = PartitionSpec(()) if saved else None
        return Held(
            name,
            kind,
            name,
            0,
            (25,),
            "f32",
            "lowered",
            None,
            2,
            50,
            50,
            stored,
            best=best,
            saves=saved,
        )

    of_held = OfHeld()
    of_held.tensors = held("w", "argument", saves), held("x", "argument", 0), held("r", "result", 9)
    assert of_held.argument_bytes == 100
    assert tuple(tensor.name for tensor in of_held.large_savings) == names
