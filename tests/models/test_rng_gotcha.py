"""Random numbers in pieces: which variants send, and which draw more than a device keeps."""

import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdyscope.inspection import Inspection
from sdyscope.models import rng_gotcha
from sdyscope.targets import resolve

ROWS, COLUMNS = 256, 64
WHOLE = ROWS * COLUMNS * 4

VARIANTS = list(itertools.product(rng_gotcha.GENERATORS, (False, True)))
MENDED = [("threefry", False), ("threefry", True), ("threefry-original", True)]


@pytest.fixture(scope="module")
def variant():
    """A variant, inspected and run once under both partitioners."""
    made = {}

    def of(generator, split):
        if (generator, split) not in made:
            settings = {
                "generator": generator, "split": split, "rows": ROWS, "columns": COLUMNS
            }  # fmt: skip
            inspection = Inspection(resolve("rng-gotcha", settings=settings))
            made[generator, split] = inspection, inspection.run(steps=1)
        return made[generator, split]

    return of


def compiled(inspection):
    """Kinds of collectives, scratch bytes and operations of what one device runs."""
    devices = tuple(jax.devices())
    executable = inspection.lowered["shardy"].lowered.compile(device_assignment=devices)
    kinds = set(re.findall(r" (all-\w+|collective-permute)(?:-start)?\(", executable.as_text()))
    operations = executable.cost_analysis()["flops"]
    return kinds, executable.memory_analysis().temp_size_in_bytes, operations


@pytest.mark.compiles
@pytest.mark.parametrize(("generator", "split"), VARIANTS)
def test_every_variant_is_right_wherever_it_is_drawn(variant, generator, split):
    inspection, ran = variant(generator, split)
    assert inspection.check().passed
    assert ran.passed
    assert {len(one.shards) for run in ran.executions.values() for one in run.arrays} == {8}


@pytest.mark.compiles
def test_the_gotcha_sends_and_holds_the_whole(variant):
    kinds, scratch, _ = compiled(variant("threefry-original", False)[0])
    assert kinds == {"all-gather", "collective-permute"}
    assert scratch > WHOLE


@pytest.mark.compiles
@pytest.mark.parametrize(("generator", "split"), MENDED)
def test_the_remedies_send_nothing_and_hold_little(variant, generator, split):
    kinds, scratch, _ = compiled(variant(generator, split)[0])
    assert kinds == set()
    assert scratch < WHOLE / 2


@pytest.mark.compiles
@pytest.mark.parametrize("split", [False, True])
def test_what_xla_draws_is_drawn_whole_by_each_device(variant, split):
    kinds, _, operations = compiled(variant("rbg", split)[0])
    assert kinds == set()
    _, _, in_pieces = compiled(variant("threefry", split)[0])
    assert operations > 3 * in_pieces


def test_the_original_is_jaxs_own():
    key, shape = jnp.array([1, 2], jnp.uint32), (6, 8)
    with jax.threefry_partitionable(False):
        theirs = jax.random.bits(jax.random.wrap_key_data(key), shape)
    ours = rng_gotcha.in_two_halves(key, 32, shape)
    np.testing.assert_array_equal(ours, theirs)
    assert math.prod(shape) == np.unique(ours).size


def test_a_row_has_its_own_key():
    program = resolve("rng-gotcha", settings={"split": True, "rows": 16, "columns": 8})
    (data,), _ = program.inputs()
    original = rng_gotcha.IMPLEMENTATIONS["threefry-original"]
    key = jax.random.wrap_key_data(jnp.asarray(data), impl=original)
    third = jax.random.normal(jax.random.split(key, 16)[3], (8,))
    drawn = jax.jit(program.fun.__wrapped__)(data)
    np.testing.assert_allclose(drawn[3], third, rtol=1e-6)
