"""Programs at their stages, put beside each other."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.diff.requested import requested_diff
from sdyscope.analysis.diff.stages import compared, stages_of
from sdyscope.facts.program import Program, Versions
from sdyscope.facts.remarks import Remark
from sdyscope.inspection import Inspection

pytestmark = pytest.mark.compiles


def constrained(x, *spec):
    return jax.lax.with_sharding_constraint(x, P(*spec))


def program(mesh, hidden, last="data"):
    @jax.jit
    def step(x):
        x = constrained(jnp.sin(x), hidden, None)  # the first line
        return constrained(jnp.cos(x), last, None)  # the second

    x = jax.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(mesh, P("data")))
    return Program("step", step, (x,), mesh=mesh)


def test_what_is_requested_through_a_helper_is_at_the_line_that_calls_it():
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    first, second = (
        stages_of(Inspection(program(mesh, axis), ["shardy"]), Versions(""), compiles=False)
        for axis in ("data", "model")
    )
    (difference,) = requested_diff(first.requested, second.requested).different
    begins = program.__code__.co_firstlineno
    assert difference.source.line == begins + 3
    assert [tensor.source.line - begins for tensor in first.requested if tensor.source] == [3, 4]


@pytest.mark.parametrize(
    "changed",
    [
        {"manual_axes": ("model",)},
        {"priorities": (1, None)},
        {"notes": (Remark("memory kind", "pinned_host"),)},
        {"sharding": None},
    ],
)
def test_what_is_requested_beside_a_placement_is_a_difference(changed):
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    requested = Inspection(program(mesh, "data"), ["shardy"]).requested
    (first, *others) = requested
    (difference,) = requested_diff(requested, (replace(first, **changed), *others)).different
    assert difference.tensor == "x"


def test_requests_that_were_exchanged_are_two_differences():
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    first, second = (
        Inspection(program(mesh, *axes), ["shardy"]).requested
        for axes in (("data", "model"), ("model", "data"))
    )
    assert len(requested_diff(first, second).different) == 2
    assert not requested_diff(first, first).different


def mapped(mesh, *results):
    """A shard_map that returns what is named, each with its own sharding."""
    made = {
        "first": (lambda a: a[:, 0], P("data")),
        "second": (lambda a: a * 2, P("data", "model")),
        "more": (lambda a: a[:1] - 1, P(None, "model")),
    }
    bodies, specs = zip(*(made[name] for name in results), strict=True)
    whole = jax.shard_map(
        lambda a: tuple(body(a) for body in bodies),
        mesh=mesh,
        in_specs=P("data", "model"),
        out_specs=specs,
        check_vma=False,
    )
    x = jax.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(mesh, P("data", "model")))
    step = jax.jit(lambda a: sum(map(jnp.sum, whole(a))))
    return Inspection(Program("step", step, (x,), mesh=mesh), ["shardy"])


def test_one_result_more_of_a_shard_map_is_one_difference():
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    one, two = (
        mapped(mesh, *results).requested
        for results in (("first", "second"), ("more", "first", "second"))
    )
    (difference,) = requested_diff(one, two).different
    assert (difference.kind, difference.change) == ("shard_map output", "only in b")
    (difference,) = requested_diff(two, one).different
    assert difference.change == "only in a"


def test_only_of_two_commits_a_value_may_have_another_type():
    def of(version, size):
        x = jax.ShapeDtypeStruct((size, 8), "float32")
        step = Program("step", jax.jit(lambda x: jnp.cos(x)), (x,))
        return stages_of(Inspection(step, ["shardy"]), Versions(version), compiles=False)

    commits = compared(of("1", 8), of("1", 16), ("a", "b")).propagated
    assert commits.other_types
    versions = compared(of("1", 8), of("2", 16), ("a", "b")).propagated
    assert not versions.other_types
    assert (versions.only_a, versions.only_b) == (commits.compared, commits.compared)
