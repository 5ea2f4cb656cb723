"""What is compared before numbers are called the same."""

import jax
import jax.numpy as jnp
import pytest
from run_cases import sign_of_noise, simplified_wrongly

from sdyscope import Program
from sdyscope.analysis.fix.prove import Twin
from sdyscope.inspection import Inspection
from sdyscope.stages.executed.one_device import unsharded
from sdyscope.words.edits import numbers_text


@pytest.mark.compiles
def test_a_result_that_is_zero_in_both_proves_nothing_of_code_that_was_changed():
    def half(x):
        return x * 2, x * 0

    argument = jax.ShapeDtypeStruct((8,), jnp.float32)
    program = Inspection(Program("half", jax.jit(half), (argument,)), ("shardy",))
    twin = Twin(program)
    numbers = twin.against(program)
    assert (numbers.verdict, numbers.compared, numbers.results) == ("same", 1, 2)
    numbers = twin.against(program, rewrites=True)
    assert (numbers.verdict, numbers.compared) == ("not compared", 1)
    assert "only 1 of 2 results" in numbers.reason

    def other(x):
        return x * 3, x * 0

    changed = Inspection(Program("half", jax.jit(other), (argument,)), ("shardy",))
    assert twin.against(changed).verdict == "differ"


@pytest.mark.skipif(
    not (0, 10, 2) <= jax.__version_info__ < (0, 11), reason="XLA simplifies it rightly"
)
@pytest.mark.compiles
def test_what_xla_simplifies_wrongly_on_one_device_is_not_the_edits_error():
    step, *arguments = simplified_wrongly()
    # Blocks one behind the other are what the simplifier gets wrong, and a program may have them.
    blocks = Program("blocks", jax.jit(unsharded(step.trace(*arguments))), tuple(arguments))
    program = Inspection(blocks, ("shardy",))
    numbers = Twin(program).against(program, lambda: blocks, corrects=True)
    assert (numbers.verdict, numbers.compared, numbers.is_simplified) == ("same", 1, False)


@pytest.mark.compiles
def test_other_random_numbers_are_not_the_same_because_they_weigh_little():
    def dropped(key, x):
        kept = jax.random.bernoulli(key, 0.5, x.shape)
        return x + 1e-9 * jnp.where(kept, x, 0)

    arguments = (
        jax.eval_shape(lambda: jax.random.key(0)),
        jax.ShapeDtypeStruct((64,), jnp.float32),
    )
    program = Inspection(Program("dropped", jax.jit(dropped), arguments), ("shardy",))
    twin = Twin(program)
    assert twin.against(program).verdict == "same"
    assert twin.against(program, redraws=True).verdict == "other random"
    still = Inspection(Program("still", jax.jit(lambda x: x * 2), arguments[1:]), ("shardy",))
    assert Twin(still).against(still, redraws=True).verdict == "same"


@pytest.mark.compiles
def test_a_small_step_of_another_gradient_is_not_the_same():
    def step(times):
        def updated(params, x):
            return {"w": params["w"] - 1e-4 * times * jnp.sin(params["w"] * x)}

        array = jax.ShapeDtypeStruct((64,), jnp.float32)
        program = Program("updated", jax.jit(updated), ({"w": array}, array))
        return Inspection(program, ("shardy",))

    twin = Twin(step(1.0))
    assert twin.against(step(1.0), rewrites=True).verdict == "same"
    assert twin.against(step(8.0), rewrites=True).verdict == "differ"
    # What a step changes by less than rounding is not compared by what it returns.
    numbers = Twin(step(1e-3)).against(step(1e-2), rewrites=True)
    assert (numbers.verdict, numbers.compared) == ("not compared", 0)


@pytest.mark.compiles
def test_a_sum_in_another_order_is_the_same_though_noise_is_not():
    def program(**how):
        step, *arguments = sign_of_noise(**how)
        return Inspection(Program("step", step, tuple(arguments)), ("shardy",))

    twin = Twin(program())
    numbers = twin.against(program(groups=32))
    assert (numbers.verdict, numbers.compared, numbers.results) == ("same", 1, 2)
    # Nothing tells whether a rewrite of the code computes that as it did.
    assert twin.against(program(groups=32), rewrites=True).verdict == "not compared"
    assert twin.against(program(rate=-1e-3)).verdict == "differ"


@pytest.mark.compiles
def test_results_that_rest_on_a_loop_that_did_not_run_prove_nothing_of_it():
    """The made values are 0 and 1 in turn: nothing is repeated."""

    def repeated(x, count):
        return jax.lax.fori_loop(0, count[0], lambda _, h: jnp.sin(h), x)

    def numbers(**inputs):
        arguments = (jax.ShapeDtypeStruct((8,), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.int32))
        program = Program("repeated", jax.jit(repeated), arguments, **inputs)
        inspected = Inspection(program, ("shardy",))
        return Twin(inspected).against(inspected)

    made = numbers()
    assert (made.verdict, made.idle_loops, made.is_right) == ("same", 1, False)
    text, tone = numbers_text(made)
    assert "; 1 loop did not run on these inputs" in text
    assert tone == "warning"
    given = numbers(inputs=lambda: ((jnp.ones(8), jnp.array([3, 0], jnp.int32)), {}))
    assert (given.verdict, given.idle_loops, given.is_right) == ("same", 0, True)


@pytest.mark.compiles
def test_results_that_rest_on_a_branch_that_was_not_taken_prove_nothing_of_it():
    def chosen(x, which):
        return jax.lax.cond(which[0] > 0, jnp.sin, jnp.cos, x)

    arguments = (jax.ShapeDtypeStruct((8,), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.int32))
    inspected = Inspection(Program("chosen", jax.jit(chosen), arguments), ("shardy",))
    numbers = Twin(inspected).against(inspected)
    assert (numbers.verdict, numbers.idle_branches, numbers.is_right) == ("same", 1, False)
    assert "; 1 branch did not run on these inputs" in numbers_text(numbers)[0]
