"""A function of the user's beside the program: how it is called, and what it has to return."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import inspect
from sdyscope.stages import compat
from sdyscope.stages.executed.execute import Runner
from sdyscope.stages.executed.reference_function import called, function_name
from sdyscope.values.mesh import Mesh

pytestmark = pytest.mark.compiles

ABSTRACT = compat.abstract_mesh(Mesh.of({"data": 4}))
X = jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=NamedSharding(ABSTRACT, P("data")))


@functools.partial(jax.jit, static_argnums=1, static_argnames="shift")
def step(state, power, *, shift, scale):
    return {"state": state["x"] ** power * scale + shift, "key": state["key"]}


def program():
    state = {"x": X, "key": jax.eval_shape(lambda: jax.random.key(0))}
    host = {"x": np.arange(32, dtype=np.float32).reshape(8, 4), "key": jax.random.key(0)}
    return Program(
        "step",
        step,
        (state, 2),
        {"shift": 3, "scale": jax.ShapeDtypeStruct((), jnp.float32)},
        inputs=lambda: ((host, 2), {"shift": 3, "scale": np.float32(2)}),
    )


def results_of(function):
    runner = Runner(program(), steps=1)
    found, seconds = called(
        function, runner.program, runner.traced, runner.values, runner.devices[0]
    )
    assert seconds >= 0
    return found


def test_it_is_called_with_the_same_arguments_whole_and_on_one_device():
    seen = []

    def reference(state, power, *, shift, scale):
        seen.append((state["x"].shape, state["x"].sharding.device_set, power, shift))
        # Of the host's numbers, in double precision.
        return {"key": state["key"], "state": np.float64(state["x"]) ** power * 2 + shift}

    key, state = results_of(reference)
    ((shape, devices, power, shift),) = seen
    assert (shape, len(devices), power, shift) == ((8, 4), 1, 2, 3)
    np.testing.assert_array_equal(state, np.arange(32.0).reshape(8, 4) ** 2 * 2 + 3)
    np.testing.assert_array_equal(key, jax.random.key_data(jax.random.key(0)))


def right(state, power, **_):
    return {"state": state["x"], "key": state["key"]}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda *a, **k: [right(*a)["state"]], r"returns 1 array, and step 2\.$"),
        (
            lambda *a, **k: list(right(*a).values()),
            r"returns result\[0\] where step returns result\['key'\]\.$",
        ),
        (
            lambda *a, **k: {**right(*a), "state": right(*a)["state"].T},
            r"result\['state'\] of the reference .* is float32\[4, 8\], and that of step "
            r"float32\[8, 4\]\.$",
        ),
        (
            lambda *a, **k: {**right(*a), "state": right(*a)["state"].astype(jnp.bfloat16)},
            r"is bfloat16\[8, 4\], and that of step float32\[8, 4\]\.$",
        ),
        (lambda *a, **k: 1 / 0, r"fails: ZeroDivisionError: division by zero$"),
    ],
)
def test_results_of_another_form_are_one_sentence(function, said):
    with pytest.raises(TargetError) as met:
        results_of(function)
    assert re.search(said, met.value.message)
    assert "\n" not in met.value.message


def test_its_name_has_its_file():
    assert function_name(right) == "test_reference_function.py:right"
    assert function_name(jax.jit(right)) == "test_reference_function.py:right"
    assert function_name(functools.partial(right)) == "partial"


def test_agrees_with_a_reference_or_not():
    fun = jax.jit(lambda x: x * 2)
    ran = inspect(fun, X, partitioners=("shardy",)).run(steps=1, reference=lambda x: x + x)
    assert (ran.passed, ran.reference.kind) == (True, "function")
    assert ran.reference.is_independent
    ran = inspect(fun, X, partitioners=("shardy",)).run(steps=1, reference=lambda x: x * 3)
    (finding,) = ran.findings
    assert finding.rule == "numerics-differ"
    assert finding.fact.function == "test_reference_function.py:<lambda>"
    # The program itself is the same on one device.
    assert (finding.fact.inside.first, finding.fact.inside.why) == (None, "other structure")
