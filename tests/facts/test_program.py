"""Program and RequestedTensor are plain data."""

import dataclasses

import pytest

from sdyscope.facts.program import Program, RequestedTensor


def test_defaults():
    program = Program("p", None)
    assert (program.args, program.kwargs, program.settings) == ((), {}, {})
    assert program.mesh is None
    assert program.inputs is None
    assert Program("p", None).kwargs is not program.kwargs


def test_values_do_not_change():
    tensor = RequestedTensor("argument", "x", (2, 3), "f32")
    with pytest.raises(dataclasses.FrozenInstanceError):
        tensor.path = "y"
    assert tensor == RequestedTensor("argument", "x", (2, 3), "f32")
    assert hash(tensor) == hash(dataclasses.replace(tensor))
    assert (tensor.sharding, tensor.ordinal, tensor.notes) == (None, -1, ())
