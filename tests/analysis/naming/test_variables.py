"""Which values the author's variables stand for."""

import jax
import jax.numpy as jnp
import pytest

from sdyscope.analysis.naming.resolve import resolve_value, values_of_variable
from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection


class Model:
    """One that keeps what it computes."""

    def __call__(self, x):
        self.kept = jnp.exp(x)
        return self.kept


def layer(hidden, w):
    hidden = jnp.tanh(hidden @ w)
    return hidden, None


def loss(weights, x):
    alias = x
    for i in range(3):
        w = jax.tree.map(lambda w, i=i: w[i], weights)
        alias, _ = layer(
            alias,
            w,
        )
    low, high = jnp.sin(alias), jnp.cos(alias)
    high += 1.0
    pair = {"sin": jnp.sin(x), "cos": jnp.cos(x)}
    if (total := jnp.sum(low * high)).shape:
        raise AssertionError
    nothing = x
    return total + jnp.sum(Model()(nothing)) + jnp.sum(pair["sin"] + pair["cos"])


@pytest.fixture(scope="module")
def graph():
    weights, x = jnp.ones((3, 4, 4)), jnp.ones((2, 4))
    program = Program("step", jax.jit(jax.value_and_grad(loss)), (weights, x))
    return Inspection(program, ["shardy"]).graph("shardy")


def kinds(graph, name):
    return [graph.ops[op].kind.rpartition(".")[2] for op, _ in values_of_variable(graph, name)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Once a layer; not what is inside the call, and not the backward pass of its line.
        ("alias", ["tanh"] * 3),
        ("hidden", ["tanh"] * 3),
        ("total", ["reduce"]),
        # Which of them is which nobody says.
        ("low", ["sine", "cosine"]),
        ("high", ["sine", "cosine", "add"]),
        ("pair", ["sine", "cosine"]),
        ("self.kept", ["exponential"]),
        ("nothing", []),
        ("w", ["reshape"] * 3),
        ("weights", []),
        ("low high", []),
    ],
)
def test_the_values_that_statements_assign(graph, name, expected):
    assert kinds(graph, name) == expected


def test_a_variable_is_a_name_like_a_scope_and_what_is_unknown_is_refused(graph):
    assert {value.kind for value in resolve_value(graph, "alias")} == {"stablehlo.tanh"}
    assert {value.kind for value in resolve_value(graph, "sin")} == {"stablehlo.sine"}
    with pytest.raises(TargetError, match="No value is called nothing") as caught:
        resolve_value(graph, "nothing")
    assert "a variable (logits)" in caught.value.hint


def test_files_that_are_not_there_have_no_variables(graph, monkeypatch):
    monkeypatch.setattr("sdyscope.analysis.naming.resolve.read_lines", lambda file: "not there")
    assert values_of_variable(graph, "alias") == []
    monkeypatch.setattr("sdyscope.analysis.naming.resolve.read_lines", lambda file: ("def (",))
    assert values_of_variable(graph, "alias") == []
