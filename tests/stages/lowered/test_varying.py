"""What `check_vma` refuses: the value, the axis, and the edit, after which JAX accepts it."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from sdyscope.facts.varying import Varying
from sdyscope.stages.lowered.varying import varying
from sdyscope.words.refusals import varying_text
from tests.programs import AUTO

pytestmark = pytest.mark.skipif(
    jax.__version_info__ < (0, 9), reason="what this JAX says of check_vma is shown as it is"
)


def same(x):
    return x


def vary(x):
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(x, ("data",), to="varying")
    return jax.lax.pvary(x, ("data",))


def total(x):
    return jax.lax.psum(x, "data")


def carried(x, start=same, end=same):
    def body(c, _):
        return end(c + x.sum()), None

    return jax.lax.scan(body, start(jnp.zeros(())), None, length=3)[0]


def counted(x, start=same, end=same):
    def body(state):
        return state[0] + 1, end(state[1] + x.sum()), state[2]

    first = (0, start(jnp.zeros(())), jnp.zeros(()))
    return jax.lax.while_loop(lambda state: state[0] < 3, body, first)[1]


def chosen(x, start=same):
    return jax.lax.cond(x.sum() > 0, lambda: {"a": x}, lambda: {"a": start(jnp.zeros(x.shape))})[
        "a"
    ]


def differentiated(x, end=same):
    @jax.custom_vjp
    def f(w):
        return (w * x).sum()

    f.defvjp(lambda w: (f(w), x), lambda x, g: (end(g * x),))
    return jax.grad(f)(jnp.ones(x.shape))


def returned(x, end=same):
    return {"a": end(x.sum()), "b": jax.lax.pmean(x, "data")}


CASES = {
    "a result": (
        returned,
        {"a": P(), "b": P()},
        Varying("result", "out_specs['a']", ("data",), "P()", "returned"),
        {"end": total},
    ),
    "a scan's carry": (carried, P(), Varying("carry", "c", ("data",)), {"end": total}),
    "a scan's start": (
        lambda x, **edit: carried(x, **edit)[None],
        P("data"),
        Varying("carry", "c", ("data",)),
        {"start": vary},
    ),
    "a while's carry": (counted, P(), Varying("carry", "state[1]", ("data",)), {"end": total}),
    "a branch": (
        chosen,
        P("data"),
        Varying("branch", "['a']", ("data",), function="false_fun"),
        {"start": vary},
    ),
    "a gradient": (
        differentiated,
        P(),
        Varying("gradient", "output[0]", ("data",)),
        {"end": total},
    ),
}


def trace(fun, out_specs, edit):
    def f(x):
        return fun(x, **edit)

    f.__name__ = f.__qualname__ = fun.__name__
    mapped = jax.shard_map(f, mesh=AUTO, in_specs=P("data"), out_specs=out_specs)
    return jax.jit(mapped).trace(jax.ShapeDtypeStruct((8,), jnp.float32))


@pytest.mark.parametrize("case", CASES)
def test_the_value_and_the_axis_are_found_and_the_edit_is_accepted(case):
    fun, out_specs, wanted, edit = CASES[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        trace(fun, out_specs, {})
    (value,) = varying(str(caught.value))
    assert (value.place, value.value, value.axes) == (wanted.place, wanted.value, wanted.axes)
    assert (value.spec, value.function) == (wanted.spec, wanted.function)
    assert trace(fun, out_specs, edit)


def test_several_axes_and_values():
    def f(x):
        return x, x.sum(), jax.lax.psum(x.sum(), ("data", "model"))

    mapped = jax.shard_map(
        f, mesh=AUTO, in_specs=P("data", "model"), out_specs=(P("data"), P(), P())
    )
    with pytest.raises(ValueError, match="out_specs") as caught:
        jax.jit(mapped).trace(jax.ShapeDtypeStruct((8, 8), jnp.float32))
    first, second = varying(str(caught.value))
    assert (first.value, first.axes) == ("out_specs[0]", ("model",))
    assert (second.value, set(second.axes)) == ("out_specs[1]", {"data", "model"})


def test_another_error_says_nothing_of_it():
    assert varying("add got incompatible shapes for broadcasting: (8,), (4,).") == ()
    assert varying("") == ()


def test_words():
    result = Varying("result", "out_specs", ("data", "model"), "P()", "<lambda>")
    assert varying_text([result]) == (
        "out_specs is P(), but the value that the function returns for it varies over data and "
        "model. To add up the devices' values, return jax.lax.psum(..., ('data', 'model')) (pmean "
        "for their mean). If they are blocks of the result, name data and model in out_specs."
    )
    carry = Varying("carry", "c[1]", ("data",), cast="pvary")
    assert varying_text([carry, carry]).count("jax.lax.pvary(..., ('data',)) of the initial") == 2
    branch = Varying("branch", "", ("data",), function="false_fun")
    assert varying_text([branch]) == (
        "The output of false_fun is the same over data, and the other branch's varies: return "
        "jax.lax.pcast(..., ('data',), to='varying') of it there."
    )
