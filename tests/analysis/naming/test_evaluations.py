"""What a place in the source gives each time that it is evaluated."""

import jax
import jax.numpy as jnp
import pytest

from sdyscope.analysis.naming.evaluations import evaluated, results_and_cotangents
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection


def layer(x, w):
    hidden = jnp.tanh(x @ w)
    return hidden * 2.0


def unrolled(weights, x):
    for w in weights:
        x = layer(x, w)
    return jnp.sum(jnp.sin(x))


def looped(weights, x):
    return jnp.sum(jax.lax.scan(lambda x, w: (layer(x, w), None), x, weights)[0])


def places(function):
    """Kinds and cotangents of what each line of `layer` gives, by what is on the line."""
    weights, x = jnp.ones((3, 4, 4)), jnp.ones((2, 4))
    program = Program("step", jax.jit(jax.grad(function)), (weights, x))
    graph = Inspection(program, ["shardy"]).graph("shardy")
    first = layer.__code__.co_firstlineno
    framed = ((op, op.location.frames) for op in graph.operations())
    found = {}
    for line, frame, place in evaluated(framed, lambda frame: (frame.file, frame.line)):
        if frame.file == __file__ and first < line[1] <= first + 2:
            values, cotangents = results_and_cotangents(graph, place)
            kinds = [graph.ops[op].kind.rpartition(".")[2] for op, _ in values]
            found.setdefault(line[1] - first, []).append((kinds, len(cotangents)))
    return found


@pytest.mark.parametrize(
    ("function", "times"),
    [
        (unrolled, 3),  # One call from one line in a loop of Python.
        (lambda weights, x: unrolled(weights, x) + jnp.sum(layer(x, weights[0])), 3),
    ],
)
def test_a_place_is_evaluated_in_each_turn_of_a_loop(function, times):
    found = places(function)
    assert found[1][0] == (["tanh"] * times, times)
    assert found[2][0][0] == ["multiply"] * times


def test_what_the_backward_pass_keeps_of_a_place_is_not_its_value():
    ((hidden, _),), ((doubled, _),) = places(looped).values()
    assert (hidden, doubled) == (["tanh"], ["multiply"])


@pytest.mark.skipif(
    jax.__version_info__ < (0, 8), reason="this JAX has what it computes again at the checkpoint"
)
def test_what_a_checkpoint_computes_again_is_a_value_too():
    again = places(lambda weights, x: jax.checkpoint(unrolled)(weights, x))
    assert again == {1: [(["tanh"] * 3, 0)], 2: [(["multiply"] * 3, 0)]}
