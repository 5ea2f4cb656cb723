"""`with sdyscope.recording() as programs:`."""

import contextlib
import threading

import jax
import jax.numpy as jnp
import pytest
from jax._src import compiler
from jax._src.interpreters import pxla
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import sdyscope

ORIGINAL = pxla.lower_sharding_computation, compiler.compile_or_get_cached


@pytest.fixture(autouse=True)
def jax_is_as_it_was():
    jax.clear_caches()
    yield
    assert (pxla.lower_sharding_computation, compiler.compile_or_get_cached) == ORIGINAL


@pytest.fixture(scope="module")
def mesh():
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def step(params, x, unused):
    hidden = jax.lax.with_sharding_constraint(
        jnp.tanh(x @ params["w"]), NamedSharding(step.mesh, P("data", "model"))
    )
    return hidden.sum()


@pytest.mark.compiles
def test_programs_are_inspections(mesh):
    step.mesh = mesh
    w = jax.device_put(jnp.ones((8, 16)), NamedSharding(mesh, P(None, "model")))
    x = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("data")))
    jitted = jax.jit(step)
    with sdyscope.recording() as programs:
        jitted({"w": w}, x, 3)
        jitted({"w": w}, x, 3)
        found = programs["step"]
        # What is lowered to look at a program is not one of the script's.
        assert found.check().passed
        assert found.diff().same
    assert [one.name for one in programs.own] == ["step"]
    assert (found.compiles, found.types) == (1, ("f32[8,16]", "f32[8,8]", "i32[]"))
    assert found.defined.file == __file__
    assert found.called.file == __file__
    asked = {tensor.name: str(tensor.requested.sharding) for tensor in found.tensors.tensors}
    assert asked["params['w']"] == "P(None, 'model')"
    assert asked["x"] == "P('data')"
    assert found.tensors.tensors[2].requested.dropped
    assert programs.problems == []


@pytest.mark.compiles
def test_blocks_nest_and_hear_every_thread():
    def lowered(name):
        def function(x):
            return x + 1

        function.__name__ = name
        jax.jit(function).lower(jnp.ones(3))

    with sdyscope.recording() as outer:
        with contextlib.suppress(KeyError), sdyscope.recording() as inner:
            lowered("both")
            raise KeyError
        thread = threading.Thread(target=lowered, args=("of_a_thread",))
        thread.start()
        thread.join()
    lowered("after")
    assert [one.name for one in outer.own] == ["both", "of_a_thread"]
    assert [one.name for one in inner.own] == ["both"]
    assert [one.compiles for one in outer.own] == [0, 0]


@pytest.mark.compiles
def test_names():
    with sdyscope.recording() as programs:
        for size in (2, 3):
            jax.jit(lambda x: x).lower(jax.ShapeDtypeStruct((size,), "float32"))
    assert len(programs) == 2
    name = programs[0].name
    with pytest.raises(sdyscope.SdyscopeError, match=r"with \(f32\[2\]\) or \(f32\[3\]\)"):
        programs[name]
    with pytest.raises(sdyscope.SdyscopeError, match=r"jax\.clear_caches"):
        programs["step"]
