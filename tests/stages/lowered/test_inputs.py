"""The values that a program runs on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import core

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.stages.lowered.inputs import concrete_arguments
from sdyscope.stages.lowered.lower import trace
from sdyscope.words.run import inputs_text


def values(*args):
    program = Program("step", jax.jit(lambda *args: args), args)
    return concrete_arguments(program, program.fun.trace(*args))


def test_made_integers_are_not_all_alike():
    tokens, count = (jax.ShapeDtypeStruct(shape, "int32") for shape in ((2, 3), ()))
    made, source = values(tokens, count)
    assert source.kind == "made"
    assert (made[0].tolist(), made[0].dtype) == ([[0, 1, 0], [1, 0, 1]], np.int32)
    assert made[1] == 0


def second_moment(values, grad):
    """Adam's, in a function of its own and under a `cond`, as Optax's wrappers have it."""

    @jax.jit
    def scaled(nu):
        return jnp.sqrt(nu / 0.9 + 1e-8)

    nu = 0.9 * values["nu"] + 0.1 * grad**2
    step = jax.lax.cond(jnp.sum(grad) > 0, scaled, lambda nu: nu, nu)
    return {"nu": nu, "w": values["w"] - grad / step}


def test_what_a_root_is_taken_of_has_no_sign():
    array = jax.ShapeDtypeStruct((64,), "float32")
    program = Program("step", jax.jit(second_moment), ({"nu": array, "w": array}, array))
    (nu, w, grad), source = concrete_arguments(program, trace(program))
    assert ((nu >= 0).all(), source.unsigned) == (True, 1)
    assert (w < 0).any()
    assert (grad < 0).any()
    assert "absolute values in 1 argument that a root" in inputs_text(source)


def scanned(values, grads):
    def step(values, grad):
        return second_moment(values, grad), None

    return jax.lax.scan(step, values, grads)[0]


def until_small(values, grads):
    def step(values):
        return second_moment(values, grads[0])

    return jax.lax.while_loop(lambda values: values["w"].max() > 1, step, values)


def largest_so_far(values, grads):
    """AMSGrad's, of which each layer has a row."""
    nu = jnp.maximum(values["nu"], values["nu"] + grads[0] ** 2)
    return values["w"] / jnp.sqrt(jnp.stack([nu, nu])[0])


@pytest.mark.parametrize("step", [scanned, until_small, largest_so_far])
def test_roots_are_found_in_loops_and_of_what_is_chosen(step):
    array = jax.ShapeDtypeStruct((64,), "float32")
    grads = jax.ShapeDtypeStruct((4, 64), "float32")
    program = Program("step", jax.jit(step), ({"nu": array, "w": array}, grads))
    (nu, w, made), source = concrete_arguments(program, trace(program))
    assert ((nu >= 0).all(), source.unsigned) == (True, 1)
    assert (w < 0).any()
    assert (made < 0).any()


def test_arrays_are_taken_as_they_are():
    zeros = np.zeros((4,), np.int32)
    made, source = values(zeros)
    assert source.kind == "arguments"
    assert made[0] is zeros


def test_a_ref_is_said_to_be_no_input():
    new = getattr(getattr(jax, "ref", None), "new_ref", None) or core.mutable_array
    state = {"w": new(jnp.ones(8))}
    program = Program("step", jax.jit(lambda state: state["w"][...].sum()), (state,))
    with pytest.raises(TargetError, match=r"state\['w'\] is a jax.Ref"):
        concrete_arguments(program, trace(program))
