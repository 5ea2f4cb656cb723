"""What `show` says of tensors."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from sdyscope import Program
from sdyscope.analysis.show import _tensor
from sdyscope.staged import Staged
from sdyscope.words.sharding import short


def test_gspmd_s_sharding_is_on_the_mesh_that_shardy_s_is_on():
    """Of a recorded program or a file nothing is known to be requested."""
    meshes = jax.make_mesh((2,), ("devices",)), jax.make_mesh((2, 1), ("data", "model"))
    arguments = [
        jax.ShapeDtypeStruct(
            (4,), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
        )
        for mesh in meshes
    ]
    program = Staged(Program("step", jax.jit(lambda batch, w: (batch * 2, w * 2)), arguments))
    for row, axis in zip(program.tensors.tensors, ("devices", "data"), strict=False):
        shown = _tensor(program, replace(row, requested=None), None)
        assert {short(sharded) for sharded in shown.lowered.values()} == {f"P({axis!r})"}
