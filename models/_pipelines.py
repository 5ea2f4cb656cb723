"""Schedules of a pipeline, in the body of a shard_map with an axis `pp` of n stages.

GPipe has all microbatches pass forward, then all backward, which is what JAX makes of
differentiating the loop. Without microbatches of its own a stage waits while all others work, one
after the other. 1F1B begins with the backward pass of a microbatch as soon as its forward pass is
through: as long a bubble as GPipe's, and what is kept for the backward pass is of at most 2n - 1
microbatches, however many there are.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

#: GPipe; one stage after the other; one forward, one backward.
SCHEDULES = ("gpipe", "naive", "1f1b")

Stage: TypeAlias = Any
"""`(x, microbatch, state) -> (x, state)`: what this device's layers make of a microbatch, given it,
its number and the state; with the state that they leave."""


def bubble_ratio(stages: int, microbatches: int) -> float:
    """The part of all steps in which a stage has nothing to do; with one microbatch (n - 1) / n."""
    return (stages - 1) / (stages + microbatches - 1)


def _rings() -> tuple[Any, Any, list[tuple[int, int]], list[tuple[int, int]]]:
    """This stage, how many there are, and who sends to whom onwards and backwards."""
    count = jax.lax.axis_size("pp")
    onwards = [(here, (here + 1) % count) for here in range(count)]
    backwards = [(here, (here - 1) % count) for here in range(count)]
    return jax.lax.axis_index("pp"), count, onwards, backwards


def _work(stage: Stage, remat: bool) -> Any:
    """A stage that does nothing in an idle step."""

    def work(working: jax.Array, x: jax.Array, microbatch: jax.Array, state: Any) -> Any:
        return jax.lax.cond(working, stage, lambda x, _, state: (x, state), x, microbatch, state)

    return jax.checkpoint(work) if remat else work


def gpipe(
    stage: Stage, inputs: jax.Array, remat: bool, state: Any = ()
) -> tuple[jax.Array, jax.Array, Any]:
    """GPipe: every microbatch through every stage.

    Args:
        stage: what a stage does.
        inputs: [microbatches / n, ...], those of this stage: stage 0 has the first ones.
        remat: whether `stage` is computed again in the backward pass.
        state: what this stage remembers from one microbatch to the next.

    Returns:
        What came out of the last stage, each microbatch where it was in `inputs`; in how many of
            the
        n + m - 1 steps this stage had nothing to do; and the state that is left.
    """
    index, count, onwards, backwards = _rings()
    slots = inputs.shape[0]
    microbatches = slots * count
    work = _work(stage, remat)

    def step(carry: Any, now: jax.Array) -> tuple[Any, None]:
        held, belt, idle, state = carry
        own = now - index  # the microbatch that this stage is at
        working = (own >= 0) & (own < microbatches)
        slot = now % slots
        taken = jnp.where(index == 0, belt[slot], held)
        worked, state = work(working, taken, own, state)
        held = jax.lax.ppermute(worked, "pp", onwards)
        moved = jax.lax.ppermute(belt[slot], "pp", backwards)
        belt = belt.at[slot].set(jnp.where(index == count - 1, worked, moved))
        return (held, belt, idle + ~working, state), None

    start = (jnp.zeros_like(inputs[0]), inputs, 0 * index, state)
    steps = jnp.arange(count + microbatches - 1)
    (_, belt, idle, state), _ = jax.lax.scan(step, start, steps)
    # The first one came out in step n - 1.
    return jnp.roll(belt, 1 - count, axis=0), idle, state


def one_at_a_time(
    stage: Stage, inputs: jax.Array, remat: bool, state: Any = ()
) -> tuple[jax.Array, jax.Array, Any]:
    """A microbatch begins when the one before has been through all stages: n steps each.

    Args:
        stage: as of `gpipe`.
        inputs: likewise.
        remat: likewise.
        state: likewise.

    Returns:
        As of `gpipe`; of the m x n steps a stage has nothing to do in m x (n - 1).
    """
    index, count, onwards, backwards = _rings()
    slots = inputs.shape[0]
    work = _work(stage, remat)

    def through(carry: Any, number: jax.Array) -> tuple[Any, None]:
        belt, idle, state = carry
        slot = number % slots

        def step(carry: Any, turn: jax.Array) -> tuple[Any, None]:
            held, idle, state = carry
            worked, state = work(turn == index, held, number, state)
            return (
                jax.lax.ppermute(worked, "pp", onwards),
                idle + (turn != index),
                state,
            ), None

        start = (belt[slot], idle, state)
        # After n steps the result is with stage 0 again, which puts it on the belt.
        (held, idle, state), _ = jax.lax.scan(step, start, jnp.arange(count))
        done = jnp.where(index == 0, held, belt[slot])
        return (belt.at[slot].set(jax.lax.ppermute(done, "pp", backwards)), idle, state), None

    start = (inputs, 0 * index, state)
    (belt, idle, state), _ = jax.lax.scan(through, start, jnp.arange(slots * count))
    return belt, idle, state


def one_forward_one_backward(
    part: Any, params: Any, nothing: jax.Array, microbatches: int, weight: float
) -> tuple[jax.Array, Any, jax.Array]:
    """1F1B: in each step a stage takes a microbatch forward and another one backward.

    Microbatch b is forward at stage i in step b + i, and backward in step b + 2 (n - 1) - i, which
    are m + 2 (n - 1) steps. The first n - 1 only go forward and the last n - 1 only backward, so
    that they take the time of n + m - 1 of both.

    Args:
        part: `(params, x, microbatch) -> (y, loss)`: what this stage hands on, and, of the last
            one, the loss. It is computed again for the backward pass.
        params: what gradients are of; other on each device, as far as JAX's types know.
        nothing: zeros like what is handed on, likewise.
        microbatches: m.
        weight: of each microbatch's loss in the whole.

    Returns:
        The weighted sum of the losses, which are those of the last stage; gradients of `params`, of
        this device's part; in how many steps this stage went neither forward nor backward.
    """
    index, count, onwards, backwards = _rings()
    slots = 2 * count - 1
    last = index == count - 1

    def step(carry: Any, now: jax.Array) -> tuple[Any, None]:
        x, cotangent, saved, gradients, loss, idle = carry
        ahead, behind = now - index, now - (2 * (count - 1) - index)
        forward = (ahead >= 0) & (ahead < microbatches)
        backward = (behind >= 0) & (behind < microbatches)
        kept = jnp.where(forward, x, saved[ahead % slots])
        saved = saved.at[ahead % slots].set(kept)
        y = jax.lax.cond(forward, lambda x: part(params, x, ahead)[0], lambda x: x, x)

        def back(x: jax.Array, cotangent: jax.Array, gradients: Any, loss: jax.Array) -> Any:
            (_, value), pull = jax.vjp(lambda params, x: part(params, x, behind), params, x)
            given = jnp.where(last, 0, cotangent), jnp.where(last, weight, 0) + 0 * value
            more, cotangent = pull(given)
            return cotangent, jax.tree.map(jnp.add, gradients, more), loss + weight * value

        def rest(x: jax.Array, cotangent: jax.Array, gradients: Any, loss: jax.Array) -> Any:
            return cotangent, gradients, loss

        sent, gradients, loss = jax.lax.cond(
            backward, back, rest, saved[behind % slots], cotangent, gradients, loss
        )
        x = jax.lax.ppermute(y, "pp", onwards)
        cotangent = jax.lax.ppermute(sent, "pp", backwards)
        return (x, cotangent, saved, gradients, loss, idle + ~(forward | backward)), None

    start = (
        nothing,
        nothing,
        jnp.stack([nothing] * slots),
        jax.tree.map(lambda leaf: 0 * leaf, params),
        0 * jnp.sum(nothing),
        0 * index,
    )
    steps = jnp.arange(microbatches + 2 * (count - 1))
    (_, _, _, gradients, loss, idle), _ = jax.lax.scan(step, start, steps)
    return loss, gradients, idle
