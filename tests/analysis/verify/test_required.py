"""What is compared of the values that causes name."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.verify.required import layout_text
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.values.mesh import Mesh

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(
        compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
    ),
]

MESH = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))


def array(shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def of_causes(step, *arguments, partitioner="shardy"):
    """What `verify` compares of a program's causes: their ops, and their values."""
    program = Program("it", jax.jit(step), arguments, mesh=MESH)
    (audit,) = Inspection(program, [partitioner]).verify(1).programs
    stages = {stage.stage: stage for stage in audit.stages}
    return stages["ops"], stages["required"]


def required(step, *arguments):
    """What it compares of their values under Shardy."""
    return of_causes(step, *arguments)[1]


def looped(x, layers):
    """A residual loop whose body leaves its carry on other axes than it takes it with."""

    def body(carry, layer):
        up, down = layer
        return carry + jnp.tanh(carry @ up) @ down, None

    return jax.lax.scan(body, x, layers)[0].sum()


def heads(x, w, o):
    """Attention whose products XLA leaves without a name, between transposes that it makes one."""

    def of_head(t):
        return t.reshape(8, 8, 2, 8).transpose(0, 2, 1, 3)

    q, k = map(of_head, jnp.split(x @ w, 2, -1))
    summed = (q @ k.swapaxes(-1, -2)) @ k
    return (summed.transpose(0, 2, 1, 3).reshape(8, 8, 16) @ o).sum()


def scattered(updates, at, w):
    """A scatter that XLA makes as its updates are, and then gathers and cuts."""
    rows = jnp.zeros((16, 32)).at[at].add(jnp.sin(updates))
    constrained = jax.lax.with_sharding_constraint(rows, NamedSharding(MESH, P("data", None)))
    return jnp.tanh(constrained) @ w


def counted(ids):
    """A scatter whose updates XLA moves from the axis that its result is to have."""
    constrain = jax.lax.with_sharding_constraint
    updates = constrain(jnp.ones((8, 4, 16)), NamedSharding(MESH, P("model")))
    summed = jnp.zeros((64, 16)).at[ids].add(updates)
    return constrain(summed, NamedSharding(MESH, P(None, "model")))


@pytest.mark.parametrize(
    ("step", "partitioner", "arguments"),
    [
        (
            jax.grad(looped, argnums=(0, 1)),
            "gspmd",
            (
                array((8, 8, 16), "data", "model"),
                (array((2, 16, 32), None, None, "data"), array((2, 32, 16), None, "data", "model")),
            ),
        ),
        pytest.param(
            jax.grad(heads, argnums=(1, 2)),
            "gspmd",
            (
                array((8, 8, 16)),
                array((16, 32), "model", "data"),
                array((16, 16), "model", "data"),
            ),
            marks=pytest.mark.skipif(
                compat.version_tuple() < (0, 11), reason="XLA names what it moves after its taker"
            ),
        ),
        (
            scattered,
            "shardy",
            (
                array((64, 32), "model", "data"),
                array((64,), "model", dtype=jnp.int32),
                array((32, 16), "model"),
            ),
        ),
        (
            lambda x: jax.lax.with_sharding_constraint(x @ x.T, NamedSharding(MESH, P())),
            "shardy",
            (array((8, 2), "data", "model"),),
        ),
        (counted, "shardy", (array((8, 4), "model", dtype=jnp.int32),)),
    ],
    ids=[
        "loop",
        "products without a name",
        "a scatter's result",
        "a value and its transpose",
        "a scatter's updates",
    ],
)
def test_what_is_moved_is_said_and_for_what(step, partitioner, arguments):
    """Also at the end of a loop's body, before it is what the loop gives."""
    for stage in of_causes(step, *arguments, partitioner=partitioner):
        assert stage.compared
        assert stage.disagreements == ()
        assert not stage.left_out.get("uncertain")


def test_values_that_xla_makes_one_of_are_not_told_apart():
    """Indices are wrapped for each lookup, and XLA has that once, under the first's name."""

    def step(first, second, ids):
        return jax.named_scope("a")(lambda: first[ids])(), second[ids] * 2

    stage = required(
        step,
        array((64, 32), "model"),
        array((64, 32), "model", "data"),
        array((16, 8), "data", dtype=jnp.int32),
    )
    assert stage.compared
    assert stage.disagreements == ()


def test_of_what_is_rearranged_no_value_is_said():
    """The sentence says that a dimension is in pieces; XLA has its blocks as its halves need."""
    stage = required(
        lambda ids: jnp.roll(ids, -1, 1), array((8, 32), "data", "model", dtype="int32")
    )
    assert stage.disagreements == ()
    assert stage.left_out["not followed"]


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_of_what_is_no_sum_each_device_s_own_result_is_gathered(partitioner):
    def step(x, w):
        return jnp.argmax(x @ w, -1)

    arguments = array((16, 32), "data"), array((32, 64), None, "model")
    ops, values = of_causes(step, *arguments, partitioner=partitioner)
    assert ops.compared
    assert values.compared
    assert not ops.disagreements
    assert not values.disagreements


def test_layouts_are_told_by_the_axes_that_split_something():
    """MaxText's mesh has twelve axes, most of them of size 1: their orders are too many to try."""
    single = {f"axis{number}": 1 for number in range(10)}
    mesh = Mesh.of({**single, "stage": 2, "fsdp": 4})
    blocks = [[0, device] for device in (0, 1, 2, 3, 0, 1, 2, 3)]
    assert layout_text(mesh, blocks) == "P(None, 'fsdp')"
    halves = [[0, device] for device in (0, 0, 1, 1, 0, 0, 1, 1)]
    assert layout_text(mesh, halves) == f"blocks {halves}"
    diagonal = [[device, device] for device in (0, 1, 2, 3, 0, 1, 2, 3)]
    assert layout_text(mesh, diagonal) == f"blocks {diagonal}"


def test_what_a_scatter_makes_xla_may_make_with_axes_of_its_choice():
    """It is permuted before it has what was decided, under its own name."""
    cube = compat.abstract_mesh(Mesh.of({"a": 2, "b": 2, "c": 2}))

    def of(shape, *spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(cube, P(*spec)))

    def step(w, x, sent, received):
        rows = jnp.tanh(x @ w)[sent] * 2
        rows = jax.ops.segment_sum(rows, received, 32) + x
        return jax.lax.with_sharding_constraint(rows, NamedSharding(cube, P("a")))

    ids = of((64,), "a", dtype=jnp.int32)
    stage = required(step, of((16, 16), None, "b"), of((32, 16), "a"), ids, ids)
    assert stage.compared
    assert stage.disagreements == ()
