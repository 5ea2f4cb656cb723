"""What `show` says of tensors."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from sdyscope import Program
from sdyscope.analysis.show import _tensor, show
from sdyscope.staged import Staged
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh
from sdyscope.words.sharding import short
from tests.programs import inside
from tests.user_programs import abstract


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


def test_devices_of_a_shard_map_hold_different_blocks():
    """Shardy names no manual axes on what is inside, and nor does a request."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))
    spec = PartitionSpec("data")

    def inner(x):
        return jax.lax.psum(x, "model")

    def outer(x):
        x = jax.lax.with_sharding_constraint(jnp.tanh(x), inside(mesh, None, "model"))
        kinds = {"in_specs": PartitionSpec(None, "model"), "out_specs": PartitionSpec()}
        return jax.shard_map(inner, axis_names={"model"}, **kinds)(x)

    @jax.jit
    def step(x):
        kinds = {"mesh": mesh, "in_specs": spec, "out_specs": spec}
        return jax.shard_map(outer, axis_names={"data"}, **kinds)(x)

    program = Program("step", step, (abstract(mesh, (16, 8), "data", "model"),))
    (shown,) = show([Staged(program)], "step").programs
    replicas = [
        (tensor.kind, tensor.shape, tensor.placement.placement.replication)
        for tensor in shown.tensors
        if tensor.by_author and tensor.placement is not None
    ]
    assert replicas == [
        ("argument", (16, 8), 1),
        ("shard_map input", (16, 8), 2),
        ("shard_map output", (16, 4), 2),
        ("constraint", (4, 8), 1),
        ("shard_map input", (4, 8), 1),
        ("shard_map output", (4, 4), 2),
    ]
