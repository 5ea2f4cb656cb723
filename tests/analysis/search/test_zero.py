"""What a train step keeps, and the ZeRO stages: textbook figures on a program of one matrix."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.inspection import inspect
from tests.programs import AUTO, array

SIZE = 64 * 64 * 4


def adam(params=(), state=(), batch=("data",)):
    """A step of one matrix with two moments, sharded as given."""

    def step(params, opt, x):
        value, gradient = jax.value_and_grad(lambda p: jnp.mean(jnp.square(x @ p["w"])))(params)
        mu, nu = 0.9 * opt["mu"]["w"] + gradient["w"], opt["nu"]["w"] + gradient["w"] ** 2
        moved = params["w"] - 0.1 * mu * jax.lax.rsqrt(nu + 1e-8)
        return {"w": moved}, {"mu": {"w": mu}, "nu": {"w": nu}}, value

    w, moment = array((64, 64), *params), array((64, 64), *state)
    opt = {"mu": {"w": moment}, "nu": {"w": moment}}
    shardings = jax.tree.map(lambda leaf: leaf.sharding, ({"w": w}, opt))
    jitted = jax.jit(step, out_shardings=(*shardings, None))
    return inspect(jitted, {"w": w}, opt, array((64, 64), *batch), partitioners=("shardy",))


@pytest.mark.compiles
def test_the_stages_of_zero_hold_and_send_what_their_paper_says():
    state = adam().training_state()
    assert (state.parameters, state.bytes_a_parameter) == (64 * 64, 16)
    assert (state.axes, state.devices, state.partitioned) == (("data",), 4, True)
    stages = {stage.name: stage for stage in state.stages}
    held = {name: stage.held for name, stage in stages.items()}
    assert held == {
        "as it is": 4 * SIZE,
        "data parallel": 4 * SIZE,
        "ZeRO-1": 2 * SIZE + 2 * SIZE // 4,
        "ZeRO-2": SIZE + 3 * SIZE // 4,
        "ZeRO-3": 4 * SIZE // 4,
    }
    sent = {
        name: {one.kind: one.sent for one in stage.traffic if one.sent > 64}
        for name, stage in stages.items()
    }
    # By rings: 2 (n - 1) / n of an all-reduce, (n - 1) / n of each of its two halves.
    loss = 6  # a number of four bytes, summed
    assert sent["data parallel"] == {"all-reduce": 2 * SIZE * 3 // 4 + loss}
    halves = {"all-gather": SIZE * 3 // 4, "reduce-scatter": SIZE * 3 // 4}
    assert sent["ZeRO-1"] == sent["ZeRO-2"] == sent["ZeRO-3"] == halves


@pytest.mark.compiles
def test_other_axes_stay_where_they_are():
    state = adam((None, "model"), (None, "model")).training_state()
    stages = {stage.name: stage for stage in state.stages}
    assert stages["data parallel"].held == 4 * SIZE // 2
    assert stages["ZeRO-3"].held == 4 * SIZE // 8


def test_the_words_of_keys_stay_together():
    """An axis divides them, and nothing else of three keys; JAX shards the keys alone."""
    keys = jax.ShapeDtypeStruct((3,), jax.random.key(0).dtype, sharding=NamedSharding(AUTO, P()))

    def step(keys, w, x):
        noise = jax.vmap(jax.random.normal)(keys).sum()
        return keys, w - jax.grad(lambda w: jnp.mean(x @ w + noise))(w)

    program = inspect(jax.jit(step), keys, array((8, 8)), array((8, 8), "model"))
    stages = {stage.name: stage for stage in program.training_state(["model"]).stages}
    assert stages["ZeRO-3"].kept["optimizer state"] == 3 * 8


def test_without_a_batch_on_an_axis_there_are_no_stages():
    state = adam(batch=()).training_state()
    assert (state.axes, state.stages) == ((), ())
    assert [kept_part.bytes for kept_part in state.kept] == [SIZE, SIZE, 2 * SIZE]


def test_gradients_are_where_their_moments_are():
    """ZeRO's second stage, written by hand."""
    kept = {
        kept_part.kind: kept_part.bytes_per_device
        for kept_part in adam(state=("data",), batch=()).training_state().kept
    }
    assert kept == {
        "parameters": SIZE, "gradients": SIZE // 4, "optimizer state": 2 * SIZE // 4
    }  # fmt: skip


def test_what_can_not_be_is_said():
    with pytest.raises(TargetError, match="has no axis 'pp'"):
        adam().training_state(["pp"])
    forward = inspect(
        jax.jit(lambda w, x: jnp.sum(x @ w)), array((64, 64)), array((64, 64), "data")
    )
    # Parameters whose gradients alone are returned do not go from step to step.
    gradients = inspect(
        jax.jit(jax.grad(lambda w, x: jnp.sum(x @ w["w"]))),
        {"w": array((64, 64))},
        array((64, 64), "data"),
    )
    for program in (forward, gradients):
        with pytest.raises(TargetError, match="is no train step"):
            program.training_state()


def test_averages_of_parameters_are_no_optimizer_state():
    """Nothing is updated by them; ZeRO shards them as it does moments."""

    def step(params, mu, ema, x):
        gradient = jax.grad(lambda p: jnp.mean(jnp.square(x @ p["w"])))(params)
        mu = {"w": 0.9 * mu["w"] + gradient["w"]}
        params = {"w": params["w"] - 0.1 * mu["w"]}
        return params, mu, {"w": 0.99 * ema["w"] + 0.01 * params["w"]}

    tree = {"w": array((64, 64))}
    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    program = inspect(jitted, tree, tree, tree, array((64, 64), "data"))
    state = program.training_state()
    kept = {each.kind: (each.tensors, each.bytes) for each in state.kept}
    kinds = ["parameters", "gradients", "optimizer state", "state"]
    assert kept == dict.fromkeys(kinds, (1, SIZE))
    held = {stage.name: stage.held for stage in state.stages}
    assert held["data parallel"] == 4 * SIZE
    assert held["ZeRO-1"] == 2 * SIZE + 2 * SIZE // 4
