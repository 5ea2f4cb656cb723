"""Programs on Explicit axes, where the source says how values are sharded."""

import pytest

from sdyscope.analysis.fix.fix import Effort, fixed
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.values.sharding import PartitionSpec as P

#: A block whose weights are gathered over both axes, and whose hidden values are not sharded as
#: the weights could be: one edit alone sends hardly less than none.
BLOCK = """
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P, reshard
from sdyscope import Program

MESH = {"fsdp": 4, "tp": 2}
HIDDEN = P("fsdp", None)


def block(p, x):
    w1 = reshard(p["w1"], P(None, None))
    w2 = reshard(p["w2"], P(None, None))
    hidden = jax.nn.relu(jnp.matmul(x, w1, out_sharding=HIDDEN))
    return x + jnp.matmul(hidden, w2, out_sharding=P("fsdp", None))


def program(mesh):
    mesh = AbstractMesh(mesh.axis_sizes, mesh.axis_names, axis_types=(AxisType.Explicit,) * 2)

    def step(params, x, y):
        grads = jax.grad(lambda params: jnp.mean((block(params, x) - y) ** 2))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    def on(shape, *axes):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*axes)))

    params = {"w1": on((128, 512), "fsdp", "tp"), "w2": on((512, 128), "tp", "fsdp")}
    batch = on((1024, 128), "fsdp", None)
    return Program("step", jax.jit(step, donate_argnums=0), (params, batch, batch), mesh=mesh)
"""


@pytest.mark.skipif(
    compat.version_tuple() < (0, 8), reason="JAX lowers these types in a mesh context alone"
)
@pytest.mark.compiles
def test_values_are_sharded_as_what_is_made_of_them_needs(tmp_path):
    file = tmp_path / "explicit_block.py"
    file.write_text(BLOCK)

    def build():
        return resolve(f"{file}:program")

    effort = Effort(arguments=0, edits=3, compiles=2, checks=0)
    found = fixed(Inspection(build(), ("shardy",)), build, effort=effort, root=str(tmp_path))
    best = found.remedies[0]
    assert best.proven
    assert best.numbers.verdict == "same"
    assert {(edit.kind, edit.name, edit.after) for edit in best.edits} == {
        ("type", "w1", P((None, "tp"))),
        ("type", "w2", P(("tp", None))),
        ("type", "jnp.matmul(x, w1)", P(("fsdp", "tp"))),
    }
    assert 'HIDDEN = P("fsdp", "tp")' in best.texts[str(file)]
    assert best.after.sent < found.before.sent
    assert best.after.flops < found.before.flops
