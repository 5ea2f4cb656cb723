"""What results are compared with is not taken for right where XLA computes it in two ways."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from run_cases import sign_of_noise, simplified_wrongly

from sdyscope.analysis.run.run import ran
from sdyscope.facts.findings import NeverRan, NothingTold, NotOnMesh
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection, inspect
from sdyscope.words.findings import finding_of
from sdyscope.words.partitioners import partitioner_name

noisy = pytest.mark.skipif(
    jax.__version_info__ < (0, 10), reason="its XLA rounds that gradient alike on any mesh"
)


@pytest.mark.compiles
def test_a_reference_that_xla_simplifies_wrongly_is_not_the_programs_error():
    step, *arguments = simplified_wrongly()
    run = inspect(step, *arguments, partitioners=("shardy",)).run(steps=1)
    assert run.passed
    assert all(error.within for errors in run.numerics.values() for error in errors)


@pytest.mark.compiles
def test_loops_and_branches_that_did_not_run_are_said():
    """The made values are 0 and 1 in turn: nothing is repeated, and the second is taken."""

    @jax.jit
    def step(x, n):
        x = jax.lax.fori_loop(0, n[0], lambda _, h: jnp.sin(h), x)
        return jax.lax.switch(n[1], [jnp.tan, jnp.cos, jnp.sin], x), x[:0]

    arguments = (jax.ShapeDtypeStruct((8,), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.int32))
    run = inspect(step, *arguments, partitioners=("shardy",)).run(steps=1)
    (finding,) = run.findings  # Of the result without elements there is nothing to say.
    assert (finding.severity, finding.fact) == ("note", NeverRan(1, 2, is_known=True))
    assert finding_of(finding).message == (
        "1 loop and 2 branches did not run on these values. What is in them is not compared."
    )


@noisy
@pytest.mark.compiles
def test_the_sign_of_a_gradient_that_is_noise_is_not_compared():
    step, *arguments = sign_of_noise()
    run = inspect(step, *arguments, partitioners=("shardy",)).run(steps=1)
    assert run.passed
    errors = {error.path: error for error in run.numerics["shardy"]}
    assert errors["result['b']"].is_noise
    assert not errors["result['w']"].is_noise
    facts = [finding.fact for finding in run.findings]
    assert [fact.noise for fact in facts if isinstance(fact, NothingTold)] == [("result['b']",)]


@pytest.mark.compiles
def test_results_that_are_zero_are_told_together():
    @jax.jit
    def step(x):
        return x * 0, x * -0.0, x + 1

    run = inspect(step, jax.ShapeDtypeStruct((8,), jnp.float32), partitioners=["shardy"]).run(
        steps=1
    )
    (finding,) = run.findings
    assert "are zero everywhere" in finding_of(finding).message
    assert finding_of(finding).message.endswith("nothing of how they are computed.")


@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_what_a_mesh_can_not_hold_is_said_under_what_is_run(partitioner):
    def program(sizes):
        mesh = AbstractMesh((sizes["x"],), ("x",), axis_types=(AxisType.Auto,))
        x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("x")))
        return Program("step", jax.jit(lambda x: x * 2), (x,))

    lowered = Inspection(program({"x": 8}), (partitioner,))
    run = ran(lowered, steps=1, on_mesh=program, meshes=({"x": 5},))
    (reason,) = [found.fact.reason for found in run.findings if isinstance(found.fact, NotOnMesh)]
    assert f"under {partitioner_name(partitioner)}" in reason


@noisy
@pytest.mark.compiles
def test_what_is_noise_on_another_mesh_alone_is_said():
    def program(mesh):
        step, *arguments = sign_of_noise(devices=mesh.get("data", 1))
        return Program("step", step, tuple(arguments))

    alone = Inspection(program({}), ("shardy",))
    run = ran(alone, steps=1, on_mesh=program, meshes=({"data": 8},))
    _, other = run.meshes
    assert (other.differs, other.compared["shardy"].noise) == (False, ("result['b']",))
    facts = [finding.fact for finding in run.findings]
    assert [fact.noise for fact in facts if isinstance(fact, NothingTold)] == [("result['b']",)]
