"""Snapshots tell constraints of one scope apart by the values that they stand on."""

import re

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from sdyscope.inspection import Inspection, inspect
from sdyscope.snapshots import compare, read_snapshots, update, write
from tests.programs import on
from tests.sharded_programs import exchanged_pairs

pytestmark = pytest.mark.compiles

STAGES = ("requested", "lowered", "propagated")


def constrained(x, *spec):
    return jax.lax.with_sharding_constraint(x, on(*spec))


def taken(step, *, count=2, stages=STAGES[:2], partitioners=("shardy",)):
    array = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=on("data"))
    program = inspect(jax.jit(step), *[array] * count, name="step", partitioners=partitioners)
    return program.snapshot(stages)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=exchanged_pairs())
def test_same_is_said_exactly_where_each_value_has_its_sharding(drawn):
    *recipes, is_same = drawn
    for partitioner in ("shardy", "gspmd"):
        programs = [Inspection(recipe.program(), (partitioner,)) for recipe in recipes]
        before, after = (program.snapshot(STAGES[:2]) for program in programs)
        comparison = compare(*map(one_of, (write([before]), write([after]))))
        assert comparison.is_same == is_same, comparison.changes
        assert comparison.not_compared == ()


def test_scopes_that_older_files_have_of_jax_are_no_difference():
    now = taken(lambda x, y: constrained(jnp.sin(x) @ y, "data"))
    text = write([now]).replace("constraint  .  ", "constraint  while/body/mlp  ")
    older = text.replace("while/body/", "while/body/closed_call/")
    assert older != text
    assert compare(one_of(older), one_of(text)).is_same


def test_collectives_that_older_files_call_as_jax_does_are_no_difference():
    now = taken(lambda x, y: constrained(jnp.sin(x) @ y, "data"))
    text = write([now]).replace("constraint  .  ", "collective  all-reduce over a=2  map/psum  ")
    older = text.replace("map/psum  ", "map/psum_invariant  ")
    assert older != text
    assert compare(one_of(older), one_of(text)).is_same


def one_of(text):
    (snapshot,) = read_snapshots(text)
    return snapshot


def first_x(x, y):
    a = constrained(x, "data")
    b = constrained(y, "model")
    return a + b


def first_y(x, y):
    b = constrained(y, "model")
    a = constrained(x, "data")
    return a + b


def exchanged(x, y):
    b = constrained(y, "data")
    a = constrained(x, "model")
    return a + b


@pytest.mark.parametrize(
    ("stages", "partitioners"), [(STAGES, ("shardy",)), (STAGES[:2], ("shardy", "gspmd"))]
)
def test_two_constraints_that_exchange_order_and_value(stages, partitioners):
    before, after, other = (
        taken(step, stages=stages, partitioners=partitioners)
        for step in (first_x, exchanged, first_y)
    )
    assert write([before]) != write([after])
    assert compare(before, after).different == 1
    assert compare(before, other).is_same
    # What did not change keeps its bytes.
    assert update(write([before]), [other]) == write([before])


def test_the_file_has_the_same_digits_in_every_process():
    text = write([taken(first_x)])
    assert text.startswith("sdyscope snapshot 6\n")
    assert (
        "  ×1 requested P('data', None)\n     lowered =\n     places 1\n     on 065d9740\n" in text
    )
    assert (
        "  ×1 requested P('model', None)\n     lowered =\n     places 2\n     on 0bfed9d2\n" in text
    )


def test_a_file_of_version_5_says_what_it_can_not_tell():
    text = write([taken(first_x)]).replace("snapshot 6", "snapshot 5")
    old = re.sub(r"\n +on [0-9a-f,]+", "", text)
    for step in (first_x, exchanged):
        comparison = compare(one_of(old), taken(step))
        assert comparison.is_same
        assert comparison.not_compared == ("on",)
    assert not compare(one_of(old), taken(first_y)).is_same
    assert update(old, [taken(first_x)]) == write([taken(first_x)])


def test_values_that_are_computed_otherwise_now_are_compared_in_order_and_it_is_said():
    def sines(x, y):
        return first_x(jnp.sin(x), jnp.sin(y))

    def cosines(x, y):
        return first_x(jnp.cos(x), jnp.cos(y))

    def half(x, y):
        return first_x(jnp.sin(x), jnp.cos(y))

    comparison = compare(taken(sines), taken(cosines))
    assert (comparison.is_same, comparison.not_compared) == (True, ("on",))
    # The last one can only be the last one.
    comparison = compare(taken(sines), taken(half))
    assert (comparison.is_same, comparison.not_compared) == (True, ())


def test_identical_layers_share_one_block():
    def layers(*weights):
        x = weights[0]
        for number, weight in enumerate(weights[1:]):
            with jax.named_scope(f"layer{number}"):
                left = constrained(jnp.tanh(x @ weight), "data")
                right = constrained(jnp.sin(x @ weight), "model")
                x = left + right
        return x

    text = write([taken(layers, count=5)])
    assert text.count("constraint  layer{0..3}  f32[8,8]") == 1
    assert text.count(" on ") == 2


@jax.jit
def inner(x):
    return jnp.tanh(x) * 2


def test_what_only_the_whole_computation_tells_apart():
    """Of functions, loops and long chains the near ops are alike."""

    def program(*specs):
        def step(x, y):
            far = [x, y]
            for _ in range(20):
                far = [jnp.sin(part) for part in far]
            looped = [
                jax.lax.fori_loop(0, 3, lambda _, c, f=function: f(c), x)
                for function in (jnp.tanh, jnp.cos)
            ]
            parts = [*far, *looped, inner(x), inner(y)]
            return sum(constrained(part, spec) for part, spec in zip(parts, specs, strict=True))

        return taken(step)

    specs = ["data", "model"] * 3
    before = program(*specs)
    marks = {mark for items in before.items.values() for item in items for mark in item.on}
    assert len(marks) == 6
    for place in range(0, 6, 2):
        other = [*specs[:place], *specs[place : place + 2][::-1], *specs[place + 2 :]]
        assert not compare(before, program(*other)).is_same


def test_a_shard_map_on_another_of_two_meshes_is_as_it_was_written():
    """As of the experts of SGLang-JAX, on a mesh of their own."""
    axes = (AxisType.Auto, AxisType.Auto)
    experts = AbstractMesh((2, 4), ("expert", "tensor"), axis_types=axes)
    inside = jax.shard_map(
        lambda x: x * 2, mesh=experts, in_specs=P(None, "tensor"), out_specs=P(None, "tensor")
    )
    now = taken(lambda x, y: inside(x).sum() + y, stages=STAGES)
    text = write([now])
    _, boundary = text.split("\nshard_map input  ")
    assert "propagated dim 0 whole, dim 1 split 4 ways (device stride 1); repl" in boundary[:160]
    assert compare(one_of(text), now).changes == ()
