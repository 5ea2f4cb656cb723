"""Where a source maps functions over shards."""

import pytest

from sdyscope.patches.shard_maps import map_sites
from sdyscope.patches.source import Source


@pytest.mark.parametrize(
    ("text", "mapped", "in_specs", "out_specs"),
    [
        (
            "f = jax.shard_map(body, mesh=m, in_specs=(P('a'), P()), out_specs=P())",
            "body",
            (("a",), ()),
            ((),),
        ),
        (
            "f = shard_map(models.body, m, (P(None, 'a'), s), P('a'))",
            "body",
            ((None, "a"), None),
            (("a",),),
        ),
        (
            "f = shard_map(lambda x: x, mesh=m, in_specs=P('a'), out_specs=s)",
            "<lambda>",
            (("a",),),
            (None,),
        ),
        (
            "@partial(jax.shard_map, mesh=m, in_specs=[P('a')], out_specs=(P(),))\n"
            "def body(x):\n    return x\n",
            "body",
            (("a",),),
            ((),),
        ),
        ("y = partial(shard_map, in_specs=P(), out_specs=P())(body)(x)", "body", ((),), ((),)),
    ],
)
def test_what_is_mapped_and_how(text, mapped, in_specs, out_specs):
    (site,) = map_sites(Source("m.py", text), {"a", "b"})
    assert (site.mapped, site.line) == (mapped, 1)
    for literals, expected in ((site.in_specs, in_specs), (site.out_specs, out_specs)):
        assert [
            None if literal is None else tuple(token.entry for token in literal.tokens)
            for literal in literals
        ] == list(expected)


def test_other_calls_map_nothing():
    text = "f = jax.jit(body, in_specs=P('a'))\ng = shard_map(body, mesh=m, in_specs=P('a'))\n"
    assert not list(map_sites(Source("m.py", text), {"a"}))
