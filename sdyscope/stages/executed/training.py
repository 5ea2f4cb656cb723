"""Steps of training: each on what the one before returned, on the mesh and on one device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from sdyscope.facts.execution import Trained
from sdyscope.facts.program import Partitioner
from sdyscope.stages.executed import one_device
from sdyscope.stages.executed.device_arrays import array_held, is_key, on_host
from sdyscope.stages.executed.execute import Runner, in_words
from sdyscope.words.partitioners import partitioner_name


def trained(
    runner: Runner,
    partitioner: Partitioner,
    carried: Mapping[int, int],
    watched: Sequence[int],
    steps: int,
) -> Trained:
    """Runs steps in a row under a partitioner. What goes wrong is part of the result.

    Args:
        runner: the program on its devices.
        partitioner: under which to run it.
        carried: of each result that is an argument of the next step, which.
        watched: scalar results to keep of each step.
        steps: how many.
    """
    what, numbers, seconds = f"training under {partitioner_name(partitioner)}", [], []
    runner.notify(what, 0, steps)
    results: list[Any] = []
    try:
        call = runner.call(partitioner)
        for done in range(1, steps + 1):
            start = time.perf_counter()
            results = call()
            seconds.append(time.perf_counter() - start)
            numbers.append(tuple(float(np.asarray(results[index])) for index in watched))
            call.carry(results, carried)
            runner.notify(what, done, steps)
        arrays = tuple(
            array_held("result", index, result, runner.devices)
            for index, result in enumerate(results)
        )
    except Exception as error:  # XLA and the user's callbacks raise every kind of error
        return Trained(partitioner, in_words(error), tuple(numbers), tuple(seconds))
    return Trained(partitioner, "", tuple(numbers), tuple(seconds), arrays)


def trained_on_one(
    runner: Runner, carried: Mapping[int, int], watched: Sequence[int], steps: int
) -> Trained:
    """The same steps on one device: the function to compare with, or else the traced jaxpr."""
    what, numbers, seconds = "training on one device", [], []
    runner.notify(what, 0, steps)
    values = [on_host(value) for value in runner.values]
    try:
        step = runner.given_step or _own_step(runner)
        for done in range(1, steps + 1):
            start = time.perf_counter()
            results = step(values)
            seconds.append(time.perf_counter() - start)
            numbers.append(tuple(float(np.asarray(results[index])) for index in watched))
            for result, argument in carried.items():
                values[argument] = _like(values[argument], results[result])
            runner.notify(what, done, steps)
    except Exception as error:  # as above
        return Trained(None, in_words(error), tuple(numbers), tuple(seconds))
    return Trained(None, "", tuple(numbers), tuple(seconds))


def _like(before: Any, value: Any) -> Any:
    """A value in place of another: a function to compare with returns keys as their words."""
    if is_key(before) and not is_key(value):
        return jax.random.wrap_key_data(value, impl=jax.random.key_impl(before))
    return value


def _own_step(runner: Runner) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The program's own jaxpr without shardings, jitted for one device.

    One with shard_maps is taken as it is on a mesh of one device, where it can be built for that:
    what a body does wrong on several is else done wrong here, too.
    """
    device = runner.local[0]
    jitted = runner.jitted_for_one(one_device.unsharded(runner.built_for_one() or runner.traced))

    def step(values: Sequence[Any]) -> Sequence[Any]:
        with jax.default_device(device):
            results: Sequence[Any] = jax.block_until_ready(jitted(*values))
        return results

    return step
