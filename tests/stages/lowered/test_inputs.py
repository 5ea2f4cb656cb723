"""The values that a program runs on."""

import jax
import numpy as np

from sdyscope.facts.program import Program
from sdyscope.stages.lowered.inputs import concrete_arguments


def values(*args):
    program = Program("step", jax.jit(lambda *args: args), args)
    return concrete_arguments(program, program.fun.trace(*args))


def test_made_integers_are_not_all_alike():
    tokens, count = (jax.ShapeDtypeStruct(shape, "int32") for shape in ((2, 3), ()))
    made, source = values(tokens, count)
    assert source.kind == "made"
    assert (made[0].tolist(), made[0].dtype) == ([[0, 1, 0], [1, 0, 1]], np.int32)
    assert made[1] == 0


def test_arrays_are_taken_as_they_are():
    zeros = np.zeros((4,), np.int32)
    made, source = values(zeros)
    assert source.kind == "arguments"
    assert made[0] is zeros
