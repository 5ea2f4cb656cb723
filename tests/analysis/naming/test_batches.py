"""Which arguments hold a batch: what lint warns of, and what is halved for a peak, are the same."""

import jax
import jax.numpy as jnp

from sdyscope.analysis.naming.batches import batches
from sdyscope.analysis.naming.paths import Leaf
from tests.lint_cases import program
from tests.programs import array

PARAMS = (Leaf("params['w']", (64, 64), "f32"), Leaf("params['v']", (64, 64), "f32"))
KEPT = {0, 1}


def named(arguments, kept=KEPT, *, differentiated=True):
    chosen = batches(arguments, kept, differentiated=differentiated)
    return tuple(
        [arguments[number].path for number in numbers]
        for numbers in (chosen.certain, chosen.possible)
    )


def test_whole_numbers_do_not_hide_a_batch_of_floats():
    """As they did where the batch is halved: three lengths have no half."""
    x, lengths = Leaf("x", (64, 16), "f32"), Leaf("lengths", (3,), "i32")
    assert named([*PARAMS, x, lengths]) == (["x", "lengths"], ["x", "lengths"])


def test_a_network_like_the_trained_one_is_no_batch():
    """As it was for lint, where all its arrays have one first dimension."""
    target = (Leaf("target['w']", (64, 64), "f32"), Leaf("target['v']", (64, 64), "f32"))
    x = Leaf("x", (32, 64), "f32")
    assert named([*PARAMS, *target, x]) == (["x"], ["x"])


def test_whole_numbers_of_what_is_not_trained_may_be_places_in_its_state():
    cache, ids = Leaf("cache", (8, 128), "f32"), Leaf("at", (8,), "i32")
    assert named([cache, ids], {0}, differentiated=False) == ([], ["at"])


def test_without_names_all_that_is_not_kept_may_be_a_batch():
    frames, frozen = Leaf("frames", (64, 16), "f32"), Leaf("frozen", (16, 16), "f32")
    assert named([*PARAMS, frames, frozen]) == ([], ["frames", "frozen"])


def test_without_a_backward_pass_nothing_tells_parameters_from_a_batch():
    """As half of a vocabulary of a step of decoding was called half the batch."""
    embed, cache = Leaf("params['embed']", (4096, 64), "f32"), Leaf("cache", (8, 128), "f32")
    assert named([embed, cache], {1}, differentiated=False) == ([], [])


def test_lint_asks_there():
    def step(params, target, x):
        def loss(params):
            return ((x @ params["w"] @ params["v"] - x @ target["w"] @ target["v"]) ** 2).mean()

        return jax.tree.map(jnp.subtract, params, jax.grad(loss)(params))

    model = {"w": array((32, 32)), "v": array((32, 32))}
    inspection = program(step, model, model, array((16, 32)))
    findings = inspection.lint(select=["batch-not-sharded"], compiled=False)
    assert [finding.tensor for finding in findings] == ["x"]


def test_masks_are_of_the_size_of_what_is_certain():
    tokens, mask = Leaf("tokens", (16,), "i32"), Leaf("weights", (16,), "f32")
    chosen = batches([*PARAMS, tokens, mask], KEPT, differentiated=True)
    assert (chosen.certain, chosen.possible, chosen.inputs) == ((2,), (2,), (2, 3))


def test_an_example_of_a_list_is_no_batch():
    """As a list of images was, whose first dimension are channels; times are one for each image."""
    images = [Leaf(f"x[{place}]", (4, 1, 16, 16), "f32") for place in range(8)]
    times = Leaf("times", (8,), "f32")
    assert named([*PARAMS, *images, times]) == ([], ["times"])
    # Nothing says of these that they are examples: a batch has three parts, or its key has two.
    parts = [Leaf(f"batch[{place}]", (8, 128), "i32") for place in range(3)]
    assert named([*PARAMS, *parts, times])[0] == ["batch[0]", "batch[1]", "batch[2]"]
    keys = Leaf("key", (3,), "ui32")
    assert named([*PARAMS, *parts, keys])[0] == ["batch[0]", "batch[1]", "batch[2]"]
