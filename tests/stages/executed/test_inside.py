"""Values inside of programs on eight virtual CPU devices, beside those of their counterparts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import user_programs
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.run.inside import compared_inside
from sdyscope.errors import SdyscopeError
from sdyscope.facts.findings import Regrouped
from sdyscope.facts.inside import OtherOps
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection, inspect
from sdyscope.stages import compat
from sdyscope.stages.executed.execute import Runner
from sdyscope.stages.executed.inside import Insides
from sdyscope.stages.lowered.lower import trace
from sdyscope.values.mesh import Mesh

pytestmark = pytest.mark.compiles

SIZES = {"data": 4, "model": 2}
ABSTRACT = compat.abstract_mesh(Mesh.of(SIZES))


def abstract(shape, *spec, mesh=ABSTRACT):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def differing(source, entered=(), turns=()):
    """What is not the same on both sides, by op, in all bodies; how many values were compared."""
    level = source.level(entered)
    looked = source.look([value.place for value in level.values])
    wrong, count = [], 0
    for value in level.values:
        here, there = looked[value.place]
        if value.dtype:
            comparison = compared_inside(here, there, level.frames, turns, 6.1e-5)
            count += 1
            if comparison.agrees is not True:
                wrong.append((value.op, comparison))
    for value in level.values:
        if value.body and not value.place[1]:
            more = (0,) if value.body == "scan" else ()
            for branch in [(k,) for k in range(value.branches)] or [()]:
                inner, its = differing(source, (*value.place[0], *branch), (*turns, *more))
                wrong, count = wrong + inner, count + its
    return wrong, count


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("nested_jit", 20),
        ("jit_shardings", 20),
        ("scanned", 20),
        ("shard_map_partial", 20),
        ("shard_map_gradient", 60),
        ("shard_map_loop", 20),
        ("random_keys", 60),
    ],
)
def test_what_agrees_agrees_inside_in_every_body(name, most):
    if name == "shard_map_partial" and compat.version_tuple() < (0, 8):
        pytest.skip("JAX before 0.8 does not trace its constraint again")
    runner = Runner(user_programs.USER_PROGRAMS[name](ABSTRACT), steps=1)
    wrong, count = differing(Insides(runner, "shardy"))
    assert wrong == []
    assert 0 < count <= most


def wrong_on_a_mesh():
    """A custom partitioning whose parts are computed otherwise than the whole."""
    plain = custom_partitioning(lambda x: x * 2)
    plain.def_partition(
        partition=lambda mesh, args, result: (
            mesh,
            lambda x: x * 3,
            args[0].sharding,
            (args[0].sharding,),
        ),
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        sharding_rule="i j -> i j",
    )
    return plain


def test_the_op_that_a_partitioner_makes_wrong_is_named():
    plain = wrong_on_a_mesh()

    def step(x):
        with jax.named_scope("before"):
            y = jnp.sin(x) + 1
        with jax.named_scope("wrong"):
            y = jax.jit(lambda y: plain(y))(y)
        with jax.named_scope("after"):
            return y - 1, x.sum()

    devices = np.array(jax.devices("cpu")[:8]).reshape(4, 2)
    mesh = jax.sharding.Mesh(devices, tuple(SIZES))
    x = abstract((8, 4), "data", mesh=mesh)
    ran = inspect(jax.jit(step), x, partitioners=("shardy",)).run(steps=1)
    (found,) = ran.inside
    first = found.first
    assert (found.result, first.op, first.base) == ("result[0]", "custom_partitioning", None)
    assert first.scope.startswith("jit(step)/wrong/jit(")
    assert first.error == pytest.approx(0.5)
    assert not ran.passed
    (finding,) = ran.findings
    assert finding.fact.inside is found


def attention(mesh):
    """Heads cut from the channels that are here: another number of them on another mesh."""

    def local(x, w):
        h = x @ w
        heads = h.reshape(h.shape[0], 4, -1)
        scores = jax.nn.softmax(jnp.einsum("bhd,bkd->bhk", heads, heads))
        return jnp.einsum("bhk,bkd->bhd", scores, heads).reshape(h.shape)

    mapped = jax.shard_map(
        local, mesh=mesh, in_specs=(P("data"), P(None, "model")), out_specs=P("data", "model")
    )

    def step(x, w):
        return jnp.sum(jax.jit(mapped)(jnp.tanh(x) * 10, w) ** 2)

    args = abstract((8, 16), "data", mesh=mesh), abstract((16, 32), None, "model", mesh=mesh)
    return Program("attention", jax.jit(step), args)


def test_the_cut_in_a_shard_map_is_named_on_the_meshes_that_depend_on_it():
    def make(sizes):
        return attention(compat.abstract_mesh(Mesh.of(sizes)))

    ran = inspect(make(SIZES), partitioners=("shardy",)).run(
        steps=1, on_mesh=make, meshes=[{"data": 8}, {"data": 3}]
    )
    assert [
        (dict(mesh.mesh.shape), mesh.is_base, bool(mesh.failure), mesh.compared and mesh.devices)
        for mesh in ran.meshes
    ] == [
        ({"data": 1, "model": 1}, True, False, 1),
        ({"data": 4, "model": 2}, False, False, 8),
        ({"data": 8, "model": 1}, False, False, 8),
        ({"data": 3, "model": 1}, False, True, {}),
    ]
    assert [mesh.compared["shardy"].differing for mesh in ran.meshes[:3]] == [0, 1, 0]
    wrong, not_run = ran.findings
    assert (wrong.rule, wrong.severity, wrong.fact.mesh) == (
        "depends-on-mesh",
        "error",
        Mesh.of(SIZES),
    )
    assert (not_run.rule, not_run.severity) == ("not-compared", "note")
    first = wrong.fact.inside.first
    line = attention.__code__.co_firstlineno + 5
    assert (first.op, first.source.file, first.source.line) == ("reshape", __file__, line)
    assert first.shape == (2, 4, 4)
    assert first.regrouped == Regrouped(16, 32, 4, ("model",))


def test_a_branch_is_entered_that_both_sides_take():
    def make(sizes):
        mesh = compat.abstract_mesh(Mesh.of(sizes))

        def local(x, number):
            def grouped(x):
                with jax.named_scope("groups"):
                    return jnp.max(x.reshape(4, -1), axis=1)

            # The first device of an axis always takes it, the others never: zeros are theirs.
            active = (number > 0) & (jax.lax.axis_index("stage") == 0)
            y = jax.lax.cond(active, grouped, lambda x: x[:4] * 0, jnp.tanh(x))
            return jax.lax.psum(jnp.where(active, y, 0), ("data", "stage"))

        mapped = jax.shard_map(local, mesh=mesh, in_specs=(P("data"), P()), out_specs=P())

        def step(x, number):
            return jnp.sum(mapped(x, number) ** 2)

        args = abstract((32,), "data", mesh=mesh), abstract((), mesh=mesh)
        values = np.arange(32, dtype=np.float32)[::-1] / 32, np.float32(1)
        return Program("step", jax.jit(step), args, inputs=lambda: (values, {}))

    ran = Inspection(make({"data": 2, "stage": 2}), ["shardy"]).run(
        steps=1, on_mesh=make, meshes=[{"data": 2, "stage": 2}]
    )
    (inside,) = ran.inside
    first = inside.first
    assert (first.op, first.scope.rpartition("/")[2]) == ("reshape", "groups")
    assert "cond/branch_1_fun" in first.scope
    assert first.regrouped == Regrouped(16, 32, 4, ("data", "stage"))


@pytest.mark.parametrize("axes", [("data", "model"), ("model", "data")])
def test_a_ppermute_over_axes_in_another_order_than_the_mesh(axes):
    """JAX up to 0.11.0 numbers the devices in the mesh's order; later ones refuse it."""
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))
    shift = [(at, (at + 1) % 8) for at in range(8)]
    mapped = jax.shard_map(
        lambda x: jax.lax.ppermute(x, axes, shift),
        mesh=mesh, in_specs=P(("data", "model")), out_specs=P(("data", "model")),
    )  # fmt: skip
    x = abstract((32,), ("data", "model"), mesh=mesh)
    inspection = inspect(Program("step", jax.jit(mapped), (x,)), partitioners=("shardy",))
    if axes == ("model", "data") and compat.version_tuple() >= (0, 11, 1):
        with pytest.raises(SdyscopeError, match="same order as the axis_names"):
            inspection.run(steps=1)
        return
    ran = inspection.run(steps=1)
    rules = {finding.rule for finding in ran.findings}
    if axes == ("data", "model"):
        assert not rules
    else:
        assert rules == {"numerics-differ"}
        (inside,) = ran.inside
        assert (inside.first.op, inside.first.reordered) == ("ppermute", ("model", "data"))


def test_a_shard_map_in_a_loop_is_entered_at_the_first_iteration_that_differs():
    def make(sizes):
        mesh = compat.abstract_mesh(Mesh.of(sizes))

        def local(x, since):
            # From the second iteration on, as many times as large as there are devices.
            total = jax.lax.psum(jnp.ones(()), "data")
            return jnp.tanh(x) * jnp.where(since > 0, total, 1.0)

        mapped = jax.shard_map(
            local, mesh=mesh, in_specs=(P("data"), P()), out_specs=P("data"), check_vma=False
        )

        def step(x):
            return jax.lax.scan(lambda x, k: (mapped(x, k), x.sum()), x, jnp.arange(3))

        return Program("step", jax.jit(step), (abstract((8,), "data", mesh=mesh),))

    ran = inspect(make({"data": 4}), partitioners=("shardy",)).run(
        steps=1, on_mesh=make, meshes=[{"data": 4}]
    )
    (inside,) = ran.inside
    first = inside.first
    assert (first.op, first.iteration, first.ratio, first.axes) == ("psum", 1, 4.0, ("data",))


def test_the_first_mesh_is_the_base_where_one_device_can_not_hold_the_program():
    def make(sizes):
        if sizes["data"] == 1:
            raise ValueError("too few")
        mesh = compat.abstract_mesh(Mesh.of(sizes))
        return Program("twice", jax.jit(lambda x: x * 2), (abstract((8,), "data", mesh=mesh),))

    ran = inspect(make({"data": 4}), partitioners=("shardy",)).run(
        steps=1, on_mesh=make, meshes=[{"data": 2}]
    )
    assert [one.is_base for one in ran.meshes] == [False, True, False]
    assert ran.meshes[0].failure.startswith("ValueError: too few (")
    assert ran.passed


def test_a_counterpart_with_other_ops_is_not_compared():
    def make(size):
        mesh = compat.abstract_mesh(Mesh.of({"data": size}))

        def step(x):
            return jnp.sin(x) if size == 1 else jnp.cos(x)

        return Program("step", jax.jit(step), (abstract((8,), "data", mesh=mesh),))

    source = Insides(Runner(make(4), steps=1), "shardy", trace(make(1)))
    with pytest.raises(OtherOps):
        source.level()
