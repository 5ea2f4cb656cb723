"""Which arguments are parameters: what the passes of a program of the user's really use."""

import jax
import jax.numpy as jnp
import pytest

from sdyscope import inspect
from sdyscope.analysis.naming.paths import Leaf
from sdyscope.analysis.naming.roles import pass_arguments, roles

W = jax.ShapeDtypeStruct((8, 8), jnp.float32)
MODEL = {"head": {"kernel": W}, "blocks": [{"up": {"kernel": W}}, {"up": {"kernel": W}}]}


def apply(model, x):
    for block in model["blocks"]:
        x = jnp.where(x > 0, x @ block["up"]["kernel"], x)
    return (x @ model["head"]["kernel"]).sum()


def descended(model, moments, gradients):
    # `where` is one function of the module, which the forward pass calls as well.
    moments = jax.tree.map(lambda m, g: jnp.where(m > 0, 0.9 * m + g, m), moments, gradients)
    return jax.tree.map(lambda w, m: w - 0.1 * m, model, moments), moments


def plain(model, moments, x):
    return descended(model, moments, jax.grad(apply)(model, x))


def remat(model, moments, x):
    return descended(model, moments, jax.grad(jax.checkpoint(apply))(model, x))


def called(model, moments, x):
    return jax.jit(plain)(model, moments, x)


def accumulated(model, moments, x):
    zeros = jax.tree.map(jnp.zeros_like, model)
    gradients, _ = jax.lax.scan(
        lambda total, part: (jax.tree.map(jnp.add, total, jax.grad(apply)(model, part)), None),
        zeros,
        x.reshape(2, 4, 8),
    )
    return descended(model, moments, gradients)


def cast(model, moments, x):
    half = jax.tree.map(lambda w: w.astype(jnp.bfloat16), model)
    gradients = jax.grad(apply)(half, x.astype(jnp.bfloat16))
    return descended(model, moments, jax.tree.map(lambda g: g.astype(jnp.float32), gradients))


@pytest.mark.parametrize(
    "step", [plain, remat, called, accumulated, cast], ids=lambda f: f.__name__
)
def test_parameters_are_what_the_passes_use(step):
    program = inspect(jax.jit(step), MODEL, MODEL, W)
    used = pass_arguments(program.graph())
    names = [argument.name for argument in program.graph().main.arguments]
    assert {name for number, name in enumerate(names) if number in used} == {
        "model['blocks'][0]['up']['kernel']",
        "model['blocks'][1]['up']['kernel']",
        "model['head']['kernel']",
        "x",
    }


def test_nothing_is_known_of_a_program_without_a_backward_pass():
    assert pass_arguments(inspect(jax.jit(apply), MODEL, W).graph()) is None


def test_roles():
    arguments = [
        Leaf(path, (8, 8), dtype)
        for path, dtype in [
            ("model.head.kernel", "f32"),
            ("model.blocks[0].up.kernel", "f32"),
            ("opt.mu.head.kernel", "f32"),
            ("opt.mu.blocks[0].up.kernel", "f32"),
            ("opt.rows.head", "f32"),
            ("opt.count", "i32"),
            ("batch", "f32"),
        ]
    ]
    kept = range(len(arguments) - 1)
    assert roles(arguments, kept, {0, 1, 6}, differentiated=True) == (
        *["parameters"] * 2, *["optimizer state"] * 4, "inputs"
    )  # fmt: skip
    # By their paths alone: what is factored is taken for a parameter.
    assert roles(arguments, kept, None, differentiated=True) == (
        *["parameters"] * 2, *["optimizer state"] * 2, "parameters", "optimizer state", "inputs"
    )  # fmt: skip
    assert roles(arguments, kept, None, differentiated=False) == (*["state"] * 6, "inputs")
