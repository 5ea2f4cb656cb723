"""What results are compared with is not taken for right where XLA computes it in two ways."""

import jax
import pytest
from run_cases import sign_of_noise, simplified_wrongly

from sdyscope.analysis.run.run import ran
from sdyscope.facts.findings import NothingTold
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection, inspect

noisy = pytest.mark.skipif(
    jax.__version_info__ < (0, 10), reason="its XLA rounds that gradient alike on any mesh"
)


@pytest.mark.compiles
def test_a_reference_that_xla_simplifies_wrongly_is_not_the_programs_error():
    step, *arguments = simplified_wrongly()
    run = inspect(step, *arguments, partitioners=("shardy",)).run(steps=1)
    assert run.passed
    assert all(error.within for errors in run.numerics.values() for error in errors)


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
