"""What results are compared with is not taken for right where XLA computes it in two ways."""

import pytest
from run_cases import simplified_wrongly

from sdyscope.inspection import inspect


@pytest.mark.compiles
def test_a_reference_that_xla_simplifies_wrongly_is_not_the_programs_error():
    step, *arguments = simplified_wrongly()
    run = inspect(step, *arguments, partitioners=("shardy",)).run(steps=1)
    assert run.passed
    assert all(error.within for errors in run.numerics.values() for error in errors)
