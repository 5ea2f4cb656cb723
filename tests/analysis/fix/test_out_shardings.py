"""Programs on Explicit axes, where the source says how values are sharded."""

import pytest

from sdyscope.analysis.fix.effort import Effort
from sdyscope.analysis.fix.fix import fixed
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


#: What is resharded in between is not needed so: Shardy slices it again, and XLA gathers it.
NEEDLESS = """
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P, reshard
from sdyscope import Program

MESH = {"x": 4, "y": 2}


def program(mesh):
    mesh = AbstractMesh(mesh.axis_sizes, mesh.axis_names, axis_types=(AxisType.Explicit,) * 2)

    @jax.jit
    def forward(h, w1, w2):
        z = jax.nn.relu(h @ w1)
        z = reshard(z, P("x", None))
        return jnp.matmul(z, w2, out_sharding=P("x", None))

    def on(shape, *axes):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*axes)))

    weights = on((256, 1024), None, "y"), on((1024, 256), "y", None)
    return Program("forward", forward, (on((512, 256), "x", None), *weights), mesh=mesh)
"""

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(
        compat.version_tuple() < (0, 8), reason="JAX lowers these types in a mesh context alone"
    ),
]


def best_of(text, file, **effort):
    """What is found for a program, and its first remedy, which has to be proven."""
    file.write_text(text)

    def build():
        return resolve(f"{file}:program")

    tried = Effort(arguments=0, compiles=2, **effort)
    found = fixed(Inspection(build(), ("shardy",)), build, effort=tried, root=str(file.parent))
    best = found.remedies[0]
    assert best.proven
    assert best.numbers.verdict == "same"
    assert best.after.sent < found.before.sent
    return found, best


def test_values_are_sharded_as_what_is_made_of_them_needs(tmp_path):
    file = tmp_path / "explicit_block.py"
    found, best = best_of(BLOCK, file, edits=3, checks=0)
    assert {(edit.kind, edit.name, edit.after) for edit in best.edits} == {
        ("reshard", "w1", None),
        ("reshard", "w2", None),
        ("type", "jnp.matmul(x, w1)", P(("fsdp", "tp"))),
    }
    assert 'HIDDEN = P("fsdp", "tp")' in best.texts[str(file)]
    assert 'w1 = p["w1"]' in best.texts[str(file)]
    assert best.after.flops < found.before.flops


def test_what_xla_sends_is_asked_of_xla(tmp_path):
    file = tmp_path / "needless_reshard.py"
    _, best = best_of(NEEDLESS, file, edits=1, checks=4)
    assert [(edit.kind, edit.name) for edit in best.edits] == [("reshard", "z")]
    assert "reshard(z" not in best.texts[str(file)]
