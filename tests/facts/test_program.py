"""Program and RequestedTensor are plain data."""

import dataclasses

import pytest

from sdyscope.errors import TargetError
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((len, ()), "A Program takes a str as its name, not a builtin_function_or_method."),
        (("p", len, {"x": 1}), "A Program takes a tuple as its args, not a dict."),
        (("p", len, (), ("x",)), "A Program takes a mapping as its kwargs, not a tuple."),
    ],
)
def test_arguments_in_another_order_are_refused_where_they_are_given(arguments, message):
    with pytest.raises(TargetError) as raised:
        Program(*arguments)
    assert raised.value.message == message
