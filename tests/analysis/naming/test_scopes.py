"""Scopes of the `op_name`s that JAX and XLA write."""

import pytest

from sdyscope.analysis.naming.scopes import phase_of, scope_of
from sdyscope.annotations import folded_names


@pytest.mark.parametrize(
    ("op_name", "scope", "primitive"),
    [
        ("jit(step)/jvp(layer0)/dot_general", "jvp(layer0)", "dot_general"),
        ("jit(step)/add", "", "add"),
        ("jit(step)/layer0/(mul:add)", "layer0", ""),
        # XLA of JAX 0.11 and later, of an instruction that stands for two ops.
        (
            "jit(step)/transpose(jvp())/mul;jit(step)/transpose(jvp())/broadcast_in_dim",
            "transpose(jvp())",
            "mul",
        ),
    ],
)
def test_the_scope_of_a_name(op_name, scope, primitive):
    assert scope_of(op_name) == (scope, primitive)


def test_several_ops_in_one_are_of_the_firsts_pass():
    joined = "jit(step)/jvp(layer0)/mul;jit(step)/transpose(jvp(layer0))/mul"
    assert scope_of(joined) == ("jvp(layer0)", "mul")
    assert phase_of(joined, differentiated=True) == "forward"


def test_scopes_that_are_alike_keep_the_numbers_that_all_have():
    scopes = ["nodes_0/mlp/linear_0", "nodes_1/mlp/linear_0", "nodes_1/mlp2/linear_0"]
    assert list(folded_names(scopes).values()) == [*["nodes_*/mlp/linear_0"] * 2, scopes[2]]
