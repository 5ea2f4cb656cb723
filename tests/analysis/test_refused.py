"""What Explicit mode refuses and what JAX accepts instead: JAX is asked about the edited source."""

import linecache

import jax
import jax.numpy as jnp
import pytest
from jax._src.core import ShardingTypeError
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as JaxP

from sdyscope.analysis.refused import refusal
from sdyscope.values.sharding import PartitionSpec as P
from sdyscope.views.refused import explanation
from sdyscope.words.types import jax_type_text

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(
        jax.__version_info__ < (0, 10), reason="older JAX refuses less, and sends are not known"
    ),
]

AXES = ("data", "model")
MESH = AbstractMesh((4, 2), AXES, axis_types=(AxisType.Explicit,) * 2)
HEAD = """import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P


def f({names}):
    return {expression}
"""


def array(shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, JaxP(*spec)))


#: The arguments; the operands with their types; one edit, with what it sends.
PROGRAMS = {
    "x @ w": (
        {"x": array((8, 16), "data", "model"), "w": array((16, 32), "model", None)},
        {"x": "f32[8@data,16@model]", "w": "f32[16@model,32]"},
        ("jnp.matmul(x, w, out_sharding=", "f32[8@data,32]", {"all-reduce": 256}),
    ),
    "x @ y": (
        {"x": array((8, 16), "data", None), "y": array((16, 32), None, "data")},
        {"x": "f32[8@data,16]", "y": "f32[16,32@data]"},
        ("jax.sharding.reshard(x, ", "f32[8,32@data]", {"all-gather": 384}),
    ),
    'jnp.einsum("bse,ef->bsf", x, w)': (
        {"x": array((8, 2, 16), "data", None, "model"), "w": array((16, 8), "model", None)},
        {"x": "f32[8@data,2,16@model]", "w": "f32[16@model,8]"},
        (
            'jnp.einsum("bse,ef->bsf", x, w, out_sharding=',
            "f32[8@data,2,8]",
            {"all-reduce": 128},
        ),
    ),
    "x + y": (
        {"x": array((8, 16), "data", None), "y": array((8, 16), None, "data")},
        {"x": "f32[8@data,16]", "y": "f32[8,16@data]"},
        ("jax.sharding.reshard(x, ", "f32[8,16@data]", {"all-to-all": 96}),
    ),
    "x[:, None] * y[None, :]": (
        {"x": array((8,), "data"), "y": array((8,), "data")},
        {"x[:, None]": "f32[8@data,1]", "y[None, :]": "f32[1,8@data]"},
        ("jax.sharding.reshard(x[:, None], ", "f32[8,8@data]", {"all-gather": 24}),
    ),
    'table["w"][tokens]': (
        {
            "table": {"w": array((32, 16), "model", None)},
            "tokens": array((8,), "data", dtype=jnp.int32),
        },
        {'table["w"]': "f32[32@model,16]", "tokens": "i32[8@data]"},
        ('table["w"].at[tokens].get(out_sharding=', "f32[8@data,16]", {"all-reduce": 128}),
    ),
    "x.reshape(16, 8)": (
        {"x": array((8, 16), "data", "model")},
        {"x": "f32[8@data,16@model]"},
        ("x.reshape(16, 8, out_sharding=", "f32[16@data,8]", {"all-gather": 64}),
    ),
    "jnp.concatenate([x, y])": (
        {"x": array((8, 16), "data", None), "y": array((8, 16), None, None)},
        {"x": "f32[8@data,16]", "y": "f32[8,16]"},
        ("jnp.concatenate([jax.sharding.reshard(x, ", "f32[16,16]", {"all-gather": 384}),
    ),
    "jnp.where(c, x, y)": (
        {
            "c": array((8,), "data", dtype=bool),
            "x": array((8,), None),
            "y": array((8,), "data"),
        },
        {"c": "bool[8@data]", "x": "f32[8]", "y": "f32[8@data]"},
        ("jnp.where(c, jax.sharding.reshard(x, ", "f32[8@data]", {}),
    ),
    "jnp.sort(x)": (
        {"x": array((32,), "data")},
        {"x": "f32[32@data]"},
        ("jnp.sort(jax.sharding.reshard(x, ", "f32[32]", {"all-gather": 96}),
    ),
    "jnp.cumsum(x)": (
        {"x": array((32,), "data")},
        {"x": "f32[32@data]"},
        ("jnp.cumsum(jax.sharding.reshard(x, ", "f32[32]", {"all-gather": 96}),
    ),
    "jnp.pad(x, ((1, 1), (0, 0)))": (
        {"x": array((8, 16), "data", None)},
        {"x": "f32[8@data,16]"},
        ("jnp.pad(jax.sharding.reshard(x, ", "f32[10,16@data]", {"all-to-all": 96}),
    ),
}


def compiled(path, expression, names, scope=()):
    path.write_text(HEAD.format(expression=expression, names=", ".join(names)))
    linecache.checkcache(str(path))
    namespace = dict(scope)
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return jax.jit(namespace["f"])


def refused(fun, arguments):
    with pytest.raises(ShardingTypeError) as caught:
        fun.trace(**arguments)
    return refusal(caught.value)


def typed(type_):
    return jax_type_text(type_.shape, type_.dtype, type_.spec, AXES)


@pytest.mark.parametrize("expression", PROGRAMS)
def test_each_choice_is_one_that_jax_accepts_in_place_of_the_expression(expression, tmp_path):
    arguments, operands, (text, result, sent) = PROGRAMS[expression]
    path = tmp_path / "step.py"
    refusal = refused(compiled(path, expression, arguments), arguments)
    assert (refusal.text, refusal.source.line) == (expression, 7)
    assert {operand.text: typed(operand.type) for operand in refusal.operands} == operands
    for choice in refusal.choices:
        out = compiled(tmp_path / "edited.py", choice.text, arguments).trace(**arguments).out_info
        aval = jax.core.ShapedArray(out.shape, out.dtype, sharding=out.sharding)
        assert [aval.str_short(True)] == [*map(typed, choice.results)]
    wanted = next(
        choice
        for choice in refusal.choices
        if choice.text.startswith(text) and [*map(typed, choice.results)] == [result]
    )
    assert {row.kind: row.bytes for row in wanted.sent} == sent
    costs = [choice.bytes for choice in refusal.choices]
    assert costs == sorted(costs)


X = array((8, 16), "data", None)
W = array((16, 16), None, "model")
ACROSS = 'NamedSharding(jax.typeof(x).sharding.mesh, P(None, "model"))'

#: What is above the call; the call; what differs; how often JAX accepts an edit, with its results.
LOOPS_AND_BRANCHES = {
    "scan": (
        "def body(c, _):\n"
        f"        h = jnp.dot(c, w, out_sharding={ACROSS})\n"
        "        return h, None",
        "jax.lax.scan(body, x, None, length=3)",
        [("carry", "c", "", "f32[8@data,16]", "f32[8,16@model]")],
        ["f32[8@data,16]", "f32[8,16@model]"],
    ),
    "bare specs, of the mesh that was set": (
        'def body(c, _):\n        return jax.sharding.reshard(c * 2, P(None, "model")), None',
        "jax.lax.scan(body, x, None, length=3)",
        [("carry", "c", "", "f32[8@data,16]", "f32[8,16@model]")],
        ["f32[8@data,16]", "f32[8,16@model]"],
    ),
    "a dict": (
        'def body(c, y):\n        return {"h": c["h"] + y, "n": c["n"] + 1}, c["n"]',
        'jax.lax.scan(body, {"h": x.sum(0), "n": 0}, w)',
        [("carry", "c['h']", "", "f32[16]", "f32[16@model]")],
        ["f32[16]", "f32[16@model]"],
    ),
    "two that are exchanged": (
        "def body(_, c):\n        a, b = c\n        return (b, a)",
        f"jax.lax.fori_loop(0, 3, body, (x, jax.sharding.reshard(x, {ACROSS})))",
        [
            ("carry", "loop_carry[1][0]", "", "f32[8@data,16]", "f32[8,16@model]"),
            ("carry", "loop_carry[1][1]", "", "f32[8,16@model]", "f32[8@data,16]"),
        ],
        ["f32[8@data,16], f32[8,16@model]", "f32[8,16@model], f32[8,16@model]"],
    ),
    "while_loop": (
        "",
        "jax.lax.while_loop("
        f"lambda c: c.sum() < 3, lambda c: jax.sharding.reshard(c, {ACROSS}), x)",
        [("carry", "c", "", "f32[8@data,16]", "f32[8,16@model]")],
        ["f32[8@data,16]", "f32[8,16@model]"],
    ),
    "cond": (
        "def yes(a):\n        return a * 2\n\n    def no(a):\n        return a @ w",
        "jax.lax.cond(w.sum() > 0, yes, no, x)",
        [("branch", "true_fun", "false_fun", "f32[8@data,16]", "f32[8@data,16@model]")],
        ["f32[8@data,16]", "f32[8@data,16@model]"],
    ),
    "switch": (
        "",
        f"jax.lax.switch(1, [lambda a: a, lambda a: jax.sharding.reshard(a, {ACROSS})], x)",
        [("branch", "branch 0", "branch 1", "f32[8@data,16]", "f32[8,16@model]")],
        ["f32[8@data,16]", "f32[8,16@model]"],
    ),
}


def lines_of(text, choice):
    """The program's text with a choice in it: in place of its last line, or of those it names."""
    lines = text.splitlines()
    for edit in choice.text.split("; "):
        code, _, line = edit.removesuffix(")").rpartition("  (line ")
        at = int(line) - 1 if code else len(lines) - 1
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at] = indent + (code or f"return {edit}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", LOOPS_AND_BRANCHES)
def test_what_goes_in_and_what_is_returned_are_made_equal(kind, tmp_path):
    above, call, differences, results = LOOPS_AND_BRANCHES[kind]
    head = HEAD.format(names="x, w", expression=call)
    text = head.replace("    return", f"    {above}\n    return") if above else head
    path = tmp_path / "step.py"

    def step(text):
        path.write_text(text)
        linecache.checkcache(str(path))
        namespace = {}
        exec(compile(text, str(path), "exec"), namespace)
        return jax.jit(namespace["f"])

    with (
        jax.sharding.use_abstract_mesh(MESH),
        pytest.raises(TypeError, match="must have equal") as caught,
    ):
        step(text).trace(X, W)
    refused = refusal(caught.value)
    assert refused.text == call
    assert differences == [
        (each.kind, each.value, each.other, typed(each.first), typed(each.second))
        for each in refused.differences
    ]
    with jax.sharding.use_abstract_mesh(MESH):
        for choice in refused.choices:
            out = jax.tree.leaves(step(lines_of(text, choice)).trace(X, W).out_info)
            # The counter is on no mesh.
            out = [each for each in out if each.dtype == jnp.float32]
            avals = [jax.core.ShapedArray(o.shape, o.dtype, sharding=o.sharding) for o in out]
            assert [aval.str_short(True) for aval in avals] == [*map(typed, choice.results)]
    made = sorted(", ".join(map(typed, choice.results)) for choice in refused.choices)
    assert made == sorted(results)
    assert refused.choices
    assert all(choice.sent is not None for choice in refused.choices)
    assert any(choice.an_iteration for choice in refused.choices) == (kind == "while_loop")


def test_types_that_differ_in_more_than_shardings_are_not_explained(tmp_path):
    with pytest.raises(TypeError, match="must have equal") as caught:
        jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, c: c.astype(jnp.int32), x)).trace(X)
    assert refusal(caught.value) is None


def test_an_expression_over_several_lines_is_one_line(tmp_path):
    arguments = PROGRAMS["jnp.sort(x)"][0]
    expression = "jnp.sort(\n        x,\n        axis=0,\n    )"
    refusal = refused(compiled(tmp_path / "step.py", expression, arguments), arguments)
    assert refusal.text == "jnp.sort( x, axis=0, )"
    assert len(refusal.choices) == 1


def test_a_mesh_that_is_set_needs_no_name(tmp_path):
    arguments = PROGRAMS["jnp.sort(x)"][0]
    with jax.sharding.use_abstract_mesh(MESH):
        refusal = refused(compiled(tmp_path / "step.py", "jnp.sort(x)", arguments), arguments)
    (choice,) = refusal.choices
    assert choice.text == "jnp.sort(jax.sharding.reshard(x, P(None)))"


def test_what_no_edit_of_one_place_explains_is_left_alone(tmp_path):
    assert refusal(None) is None
    assert refusal(ValueError("Got incompatible shardings")) is None

    # A statement has no text that could be traced by itself.
    arguments = {"x": array((8, 16), "data", None), "y": array((8, 16), None, "data")}
    path = tmp_path / "step.py"
    text = HEAD.format(names="x, y", expression="x").replace("return x", "x += y; return x")
    path.write_text(text)
    namespace = {}
    exec(compile(text, str(path), "exec"), namespace)
    assert refused(jax.jit(namespace["f"]), arguments) is None


def test_functions_of_the_author_s_are_called_if_they_are_few(tmp_path):
    arguments = PROGRAMS["x + y"][0]
    path = tmp_path / "own.py"
    path.write_text("def g(x, depth):\n    return g(x, depth - 1) if depth else -x\n")
    own = {}
    exec(compile(path.read_text(), str(path), "exec"), own)
    step = compiled(tmp_path / "step.py", "g(x, 2) + y", arguments, own)
    assert [operand.text for operand in refused(step, arguments).operands] == ["g(x, 2)", "y"]
    step = compiled(tmp_path / "step.py", "g(x, 100) + y", arguments, own)
    assert refused(step, arguments) is None


def test_results_keep_their_sizes(tmp_path):
    """An axis is only put on a dimension that it divides."""
    arguments = {"x": array((8, 16), "data", "model"), "w": array((16, 3), "model", None)}
    refusal = refused(compiled(tmp_path / "step.py", "x @ w", arguments), arguments)
    specs = [choice.results[0].spec for choice in refusal.choices]
    assert P(("data", None)) in specs
    assert {spec.entries[1] for spec in specs} == {None}


def test_a_library_that_is_refused_is_named_with_its_line(tmp_path):
    installed = tmp_path / "site-packages" / "haiku"
    installed.mkdir(parents=True)
    arguments = {"x": array((8, 16), "data", None), "y": array((8, 16), None, "data")}
    with pytest.raises(ShardingTypeError) as caught:
        compiled(installed / "embed.py", "x + y", arguments).trace(**arguments)
    assert refusal(caught.value) is None
    assert explanation(caught.value).startswith("What JAX refuses is haiku's, at haiku/embed.py:")
    # The author's own line is not a library's.
    with pytest.raises(ShardingTypeError) as caught:
        compiled(tmp_path / "step.py", "x + y", arguments).trace(**arguments)
    assert "What JAX refuses is" not in explanation(caught.value)
    assert explanation(ValueError("Got incompatible shardings")) == ""
