"""Edits of calls and statements."""

import pytest

from sdyscope.errors import TargetError
from sdyscope.patches.jit import jit_sites
from sdyscope.patches.rewrites import (
    accumulation,
    first_argument,
    scattered,
    set_false,
    without_constraint,
)
from sdyscope.patches.source import Source, Span, spliced
from sdyscope.values.source import SourceLocation


def span(text, piece):
    """The place of a piece that is on one line, once."""
    start = text.index(piece)
    line = text[:start].count("\n") + 1
    column = start - text.rfind("\n", 0, start) - 1
    return Span("m.py", line, column, line, column + len(piece))


@pytest.mark.parametrize(
    ("text", "call", "then"),
    [
        ("y = f(x, s)\n", "f(x, s)", "y = x\n"),
        ("y = f(a + b, s) * 2\n", "f(a + b, s)", "y = (a + b) * 2\n"),
        ("y = g(f(a + b, s))\n", "f(a + b, s)", "y = g(a + b)\n"),
        ("def h(x):\n    x = f(x, s)\n    return x\n", "f(x, s)", "def h(x):\n    return x\n"),
        ("def h(x):\n    x = f(x, s)\n", "f(x, s)", "def h(x):\n    x = x\n"),
    ],
)
def test_a_call_gives_way_to_its_first_argument(text, call, then):
    assert spliced(text, first_argument(Source("m.py", text), span(text, call))) == then


@pytest.mark.parametrize(
    ("helper", "call", "then"),
    [
        (
            "def c(mesh, x, *axes):\n    return wsc(x, on(mesh, *axes))\n",
            'c(mesh, a + b, "d")',
            "a + b",
        ),
        ("def c(mesh, x, *axes):\n    return wsc(x, on(mesh, *axes))\n", "c(mesh, x=a)", "a"),
        ("def c(x, *axes):\n    return wsc(x, on(mesh, *axes))\n", 'c(a, "d")', "a"),
        (
            "def c(mesh, x):\n    def f(m):\n        return g(mesh)\n    return wsc(x, f(1))\n",
            "c(m, a)",
            "a",
        ),
        ("", "c(a, s)", "a"),
        ("", "with_sharding_constraint(shardings=s, x=a)", "a"),
        (
            "def c(mesh, x):\n    x = lax.with_sharding_constraint(x, on(mesh))\n    return x\n",
            "c(m, a)",
            "a",
        ),
        (
            "def c(mesh, x):\n    if not mesh:\n        return g(mesh)\n"
            "    return with_sharding_constraint(shardings=on(mesh), x=x)\n",
            "c(m, a)",
            "a",
        ),
        (
            "def c(*, mesh, value):\n    return wsc(value, on(mesh))\n",
            "c(mesh=m, value=a)",
            "a",
        ),
    ],
)
def test_a_constraint_gives_way_to_what_it_constrains(helper, call, then):
    """`c(mesh, x)` gave way to the mesh, and was said to constrain it."""
    text = f"{helper}y = {call}\n"
    edited = spliced(text, without_constraint(Source("m.py", text), span(text, call)))
    assert edited == f"{helper}y = {then}\n"
    # So is one in another file, by whatever name its module has.
    for prefix in ("", "utils."):
        text = f"y = {prefix}{call}\n"
        where = span(text, f"{prefix}{call}")
        others = [Source("utils.py", helper)]
        edited = spliced(text, without_constraint(Source("m.py", text), where, others))
        assert edited == f"y = {then}\n"


def test_a_method_that_constrains_keeps_its_first_argument():
    """Its own first parameter is no argument of the call."""
    helper = "class M:\n    def c(self, x, s):\n        return wsc(x, s)\n"
    text = "y = model.c(a, s)\n"
    others = [Source("utils.py", helper)]
    source = Source("m.py", text)
    edited = spliced(text, without_constraint(source, span(text, "model.c(a, s)"), others))
    assert edited == "y = a\n"


def test_a_sum_is_scattered():
    text = 'y = jax.lax.psum(x @ w, ("a", "b"))\n'
    found = scattered(Source("m.py", text), span(text, text[4:-1]), 1)
    assert spliced(text, found) == (
        'y = jax.lax.psum_scatter(x @ w, ("a", "b"), scatter_dimension=1, tiled=True)\n'
    )
    with pytest.raises(TargetError):
        scattered(Source("m.py", "y = f(x, a)"), span("y = f(x, a)", "f(x, a)"), 0)


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("f = jax.jit(step)", "f = jax.jit(step, donate_argnums=(0, 1))"),
        ("f = jit(step, donate_argnums=2)", "f = jit(step, donate_argnums=(0, 1, 2))"),
        ("f = jit(step, donate_argnums=(0,))", "f = jit(step, donate_argnums=(0, 1))"),
        ("@jax.jit\ndef f(): ...", "@jax.jit(donate_argnums=(0, 1))\ndef f(): ..."),
        (
            "@partial(jax.jit, static_argnums=3)\ndef f(): ...",
            "@partial(jax.jit, static_argnums=3, donate_argnums=(0, 1))\ndef f(): ...",
        ),
        (
            "f = jax.jit(\n    step,\n    out_shardings=s,\n)",
            "f = jax.jit(\n    step,\n    out_shardings=s,\n    donate_argnums=(0, 1),\n)",
        ),
    ],
)
def test_arguments_are_donated_where_a_function_is_jitted(text, then):
    (site,) = jit_sites(Source("m.py", text))
    assert spliced(text, site.donating([0, 1])) == then


def test_names_of_donated_arguments_are_left_alone():
    (site,) = jit_sites(Source("m.py", 'f = jax.jit(step, donate_argnames=("p",))'))
    assert site.donating([0]) is None


def test_equinox_has_no_place_for_what_jit_takes():
    """`filter_jit` refuses `donate_argnums` and shardings."""
    assert [*jit_sites(Source("m.py", '@eqx.filter_jit(donate="none")\ndef f(x): ...'))] == []


TWO_STEPS = """
@partial(jax.jit, static_argnums=1)
def evaluate(params, n): ...

def train(params): ...

def inner():
    def train(params): ...
    return jax.jit(train)

step = jax.jit(train)
other = jax.jit(make(train))

@jax.jit
@logged
def predict(params): ...
"""


@pytest.mark.parametrize(
    ("function", "line", "sites"),
    [
        ("evaluate", 2, [2, 12, 14]),
        ("train", 5, [11, 12, 14]),
        ("train", 8, [9, 12, 14]),
        ("wrapper", 99, [12, 14]),  # of what is jitted as something else, anything may be it
    ],
)
def test_what_jits_another_function_is_not_edited(function, line, sites):
    at = SourceLocation("m.py", line, 0, function)
    lines = [site.line for site in jit_sites(Source("m.py", TWO_STEPS)) if site.may_jit(at)]
    assert sorted(lines) == sites
    assert len([site for site in jit_sites(Source("m.py", TWO_STEPS)) if site.may_jit(None)]) == 5


def test_what_another_function_calls_so_does_not_stand_for_what_is_jitted():
    """As in a file of several programs, each with a function `f` of its own."""
    text = """
def first():
    def f(x): ...
    return jax.jit(f)

def second():
    f = make()
    return jax.jit(f)

def third(f):
    return jax.jit(f)

def fourth():
    f = 1
    def f(x): ...
    return jax.jit(f)
"""
    sites = {site.line: site.function for site in jit_sites(Source("m.py", text))}
    assert sites == {4: "f", 8: "", 11: "", 16: ""}


@pytest.mark.parametrize(
    ("calls", "is_shared"),
    [
        ("step = compiled(train)", False),
        ("step = compiled(train)\nevaluate = compiled(loss)", True),
        (
            "step = compiled(train)\nclass Model:\n    evaluate = staticmethod(m.compiled(loss))",
            True,
        ),
    ],
)
def test_what_jits_several_functions_is_shared(calls, is_shared):
    helper = "def compiled(function, *, shardings=None):\n    return jax.jit(function)\n"
    (site,) = jit_sites(Source("m.py", helper + calls))
    assert site.is_shared == is_shared
    (site,) = jit_sites(Source("m.py", helper), [Source("train.py", calls)])
    assert site.is_shared == is_shared
    # It jits its own function, whoever calls it.
    own = "def compiled(model):\n    def step(x): ...\n    return jax.jit(step)\n"
    assert not any(site.is_shared for site in jit_sites(Source("m.py", own + calls)))


def test_settings_that_are_false():
    text = 'jax.config.update("jax_x", False)\nwith jax.x(False):\n    f(False)\n'
    source = Source("m.py", text)
    found = [line for line, _ in set_false(source, "jax_x")]
    assert sorted(found) == [1, 2]
    splices = [splice for _, splice in set_false(source, "jax_x")]
    assert spliced(text, splices).count("True") == 2


LOOP = """def step(params, batch, mesh):
    def body(acc, x):
        g = grad(loss)(params, x)
        return add(acc, g), None

    acc, _ = scan(body, zeros(params), batch)
    return update(params, acc)
"""


def test_a_loop_is_mapped_with_what_it_takes():
    scan = "scan(body, zeros(params), batch)"
    loop = accumulation(Source("m.py", LOOP), span(LOOP, scan), ["params", "batch", "mesh"])
    assert (loop.names, loop.targets) == (("params", "batch"), ("acc", "_"))
    text = spliced(
        LOOP,
        loop.mapped("sm", {"params": "P()", "batch": "P('d')"}, "mesh=mesh", "pmean({}, 'd')"),
    )
    assert (
        text
        == """def step(params, batch, mesh):

    def accumulate(params, batch):
        def body(acc, x):
            g = grad(loss)(params, x)
            return add(acc, g), None
        acc, _ = scan(body, zeros(params), batch)
        return pmean(acc, 'd')

    acc = sm(
        accumulate,
        in_specs=(P(), P('d')),
        mesh=mesh,
    )(params, batch)
    return update(params, acc)
"""
    )


@pytest.mark.parametrize(
    "change",
    [
        ("acc, _ = scan", "acc = scan"),
        ("scan(body,", "scan(lambda a, x: a,"),
        ("    return update", "    also = body\n    return update"),
        ("    acc, _", "    scale = 2\n    acc, _"),
    ],
)
def test_a_loop_that_is_written_otherwise_is_left_alone(change):
    text = LOOP.replace(*change).replace(
        "g = grad", "g = scale * grad" * ("scale" in change[1]) or "g = grad"
    )
    line = next(line for line in text.splitlines() if "scan(" in line)
    call = line[line.index("scan(") :]
    with pytest.raises(TargetError):
        accumulation(Source("m.py", text), span(text, call), ["params", "batch"])


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("f = jax.jit(step, out_shardings=s)", "f = jax.jit(step)"),
        (
            "f = jax.jit(step, out_shardings=(s, P()), static_argnums=2)",
            "f = jax.jit(step, static_argnums=2)",
        ),
        ("f = jax.jit(\n    step,\n    out_shardings=((s)),\n)", "f = jax.jit(\n    step,\n)"),
        ("@partial(jax.jit, out_shardings=s)\ndef f(): ...", "@partial(jax.jit)\ndef f(): ..."),
    ],
)
def test_results_are_left_to_the_compiler_where_a_function_is_jitted(text, then):
    (site,) = jit_sites(Source("m.py", text))
    assert spliced(text, site.without("out_shardings")) == then
    assert site.without("in_shardings") is None
