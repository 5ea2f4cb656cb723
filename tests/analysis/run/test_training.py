"""Steps in a row against one device, from made-up numbers; and two programs that really train."""

import math

import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.run.training import training, training_plan
from sdyscope.errors import TargetError
from sdyscope.facts.execution import Trained
from sdyscope.facts.program import Program, RequestedTensor
from sdyscope.facts.tensors import tensor_table
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.words.findings import finding_of


def table(*rows):
    """Rows (kind, path, shape, dtype), numbered by kind."""
    counts = {"argument": 0, "result": 0}
    made = []
    for kind, path, shape, dtype in rows:
        made.append(RequestedTensor(kind, path, shape, dtype, index=counts[kind]))
        counts[kind] += 1
    return tensor_table(made, {})


STEP = table(
    ("argument", "params['w']", (4,), "f32"),
    ("argument", "batch['x']", (8, 4), "f32"),
    ("result", "result[0]['w']", (4,), "f32"),
    ("result", "result[1]", (), "f32"),
    ("result", "result[2]", (), "i32"),
)


def compared(here, there, steps=3):
    plan = training_plan("step", STEP)
    found, findings = training(
        plan,
        steps,
        [Trained("shardy", numbers=tuple((value,) for value in here), step_seconds=(1.0,))],
        Trained(None, numbers=tuple((value,) for value in there)),
        ("f32",),
        lambda one: (0, 0, 0, []),
    )
    return found, [finding_of(one) for one in findings]


def test_state_goes_on_and_scalar_floats_are_watched():
    plan = training_plan("step", STEP)
    assert plan.carried == {0: 0}
    assert [row.path for row in plan.watched] == ["result[1]"]


def test_losses_that_are_the_same_but_for_rounding():
    found, findings = compared((2.0, 1.0, 0.5), (2.0, 1.0 + 1e-6, 0.5))
    (curve,) = found.curves
    assert curve.errors("shardy") == (0.0, pytest.approx(1e-6, rel=1e-3), 0.0)
    assert findings == []


def test_the_first_step_that_differs_is_named():
    found, (finding,) = compared((2.0, 1.1, 0.9), (2.0, 1.0, 0.5))
    assert finding.rule == "training-differs"
    assert finding.message.startswith(
        "In step 2 of 3 it is 1.1, and 1 on one device: off by 1.0e-01"
    )
    assert found.partitioners[0].error == pytest.approx(0.8)


def test_a_loss_that_is_no_number_on_one_side_differs():
    _, (finding,) = compared((math.nan,), (1.0,), steps=1)
    assert finding.rule == "training-differs"
    assert compared((math.nan,), (math.nan,), steps=1)[1] == []


def test_steps_that_fail_are_said():
    plan = training_plan("step", STEP)
    failed = Trained("shardy", "XlaRuntimeError: out of memory", numbers=((2.0,),))
    alone = Trained(None, numbers=((2.0,), (1.0,)))
    found, findings = training(plan, 2, [failed], alone, (), lambda one: (0, 0, 0, []))
    assert [one.rule for one in findings] == ["not-trained"]
    assert "under Shardy: XlaRuntimeError" in finding_of(findings[0]).message
    assert found.partitioners[0].steps == 1


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("argument", "x", (4,), "f32"), ("result", "result", (), "f32")], "next value"),
        (
            [("argument", "p['w']", (4,), "f32"), ("result", "result['w']", (4,), "f32")],
            "no single number",
        ),
    ],
)
def test_what_is_no_training_is_said(rows, said):
    with pytest.raises(TargetError, match=said):
        training_plan("step", table(*rows))


def test_a_gradient_is_no_argument_of_the_next_step():
    def loss(params, x):
        return (jnp.tanh(x @ params["w"]) ** 2).mean()

    def clipped(params, x):
        value, grads = jax.value_and_grad(loss)(params, x)
        flat, unravel = ravel_pytree(grads)
        return value, unravel(flat * (params["w"] ** 2).sum())

    def step(params, x):
        return loss(params, x), {"w": params["w"] - jax.grad(loss)(params, x)["w"]}

    def plan(fun):
        arguments = {"w": jnp.ones((4, 4))}, jnp.ones((8, 4))
        inspection = Inspection(Program("step", jax.jit(fun), arguments), ("shardy",))
        return training_plan("step", inspection.tensors, ("shardy", inspection.graph()))

    assert plan(step).carried == {1: 0}
    for fun in (jax.value_and_grad(loss), clipped):
        with pytest.raises(TargetError, match="No result of step is recognizably the next value"):
            plan(fun)


@pytest.mark.compiles
def test_a_model_trains_on_eight_devices_as_on_one():
    steps = []
    settings = {"features": 16, "hidden": 16, "outputs": 8, "optimizer": "sgd"}
    found = Inspection(resolve("mlp", settings=settings)).run(
        steps=4, train=True, notify=lambda what, done, total: steps.append((what, done, total))
    )
    assert found.passed
    (curve,) = found.training.curves
    assert list(curve.one_device) == sorted(curve.one_device, reverse=True)
    for one in found.training.partitioners:
        assert (one.steps, one.differing, one.arrays, one.shards) == (4, 0, 3, 24)
        assert one.error < 1e-6
    assert ("training under GSPMD", 4, 4) in steps


def summed_twice():
    """Gradients that a second psum makes eight times too large."""
    mesh = AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))

    def local(w, x):
        value, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.square(x @ w)))(w)
        return jax.lax.psum(gradient, "data"), jax.lax.pmean(value, "data")

    mapped = jax.shard_map(local, mesh=mesh, in_specs=(P(), P("data")), out_specs=(P(), P()))

    def step(params, x):
        gradient, value = mapped(params["w"], x)
        return {"w": params["w"] - 0.01 * gradient}, value

    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    arguments = {"w": array((4, 4))}, array((16, 4), "data")
    return Program("step", jax.jit(step), arguments, mesh=mesh)


@pytest.mark.compiles
def test_a_wrong_gradient_shows_in_the_second_loss():
    mesh = AbstractMesh((1,), ("data",), axis_types=(AxisType.Auto,))

    def reference(params, x):
        value, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.square(x @ w)))(params["w"])
        return {"w": params["w"] - 0.01 * gradient}, value

    found = Inspection(summed_twice(), ["shardy"]).run(steps=3, train=True, reference=reference)
    assert mesh.size == 1
    (finding,) = [one for one in found.findings if one.rule == "training-differs"]
    assert finding.fact.step == 2


def test_training_is_for_one_process():
    class Group:
        count = 2

    with pytest.raises(TargetError, match="compared in one process"):
        Inspection(resolve("mlp"), ["shardy"]).run(train=True, group=Group())
