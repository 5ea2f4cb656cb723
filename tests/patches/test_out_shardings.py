"""Where a source says how values are sharded on Explicit axes."""

import pytest

from sdyscope.patches.out_shardings import out_shardings
from sdyscope.patches.source import Source

AXES = ("data", "model")


def said(text):
    """What each place says, with the calls that make values of it."""
    source = Source("m.py", text)
    return [
        (source.written(place.literal.node), [source.written(call) for call in place.calls])
        for place in out_shardings(source, AXES)
    ]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("jnp.einsum('ab,bc->ac', x, w, out_sharding=P('data', None))", "P('data', None)"),
        ("jax.sharding.reshard(x, P('data'))", "P('data')"),
        ("reshard(x, out_shardings=P('data'))", "P('data')"),
        ("x.at[i].get(out_sharding=NamedSharding(mesh, P('data')))", "P('data')"),
    ],
)
def test_calls_say_how_what_they_make_is_sharded(text, spec):
    assert said(f"y = {text}") == [(spec, [text])]


def test_a_name_that_is_given_once_says_it_for_all_that_use_it():
    text = "ACT = P('data', None)\na = f(x, out_sharding=ACT)\nb = reshard(x, ACT)"
    assert said(text) == [
        ("P('data', None)", ["f(x, out_sharding=ACT)", "reshard(x, ACT)"]),
    ]
    assert said(f"{text}\nACT = P()") == []


@pytest.mark.parametrize(
    "text",
    [
        "jax.jit(f, out_shardings=P('data'))",
        "jax.device_put(x, P('data'))",
        "f(x, out_sharding=spec)",
        "f(x, out_sharding=specs['x'])",
    ],
)
def test_other_shardings_are_no_types_of_values(text):
    assert said(text) == []
