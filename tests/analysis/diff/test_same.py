"""A diff says "same" exactly when the compiler's own texts place every value and result alike."""

import pytest
from hypothesis import HealthCheck, given, settings

from sdyscope.inspection import Inspection
from tests.dumped import before_partitioning, different, lowered_shardings
from tests.sharded_programs import Recipe, Step, pairs, recipes

pytestmark = pytest.mark.compiles

PARTITIONERS = ("shardy", "gspmd")


def examples(count):
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=slow)


def agree(found, dumps):
    """Whether a diff says "same" where the dumps do, and "different" where they do."""
    return (
        not different(*dumps, surely=True) if found.same else bool(different(*dumps, surely=False))
    )


@examples(12)
@given(recipe=recipes())
def test_propagated_by_two_partitioners(recipe):
    program = recipe.program()
    found = Inspection(program).propagated_diff()
    dumps = [before_partitioning(program, each) for each in PARTITIONERS]
    assert agree(found, dumps), (found.beginnings, different(*dumps, surely=False))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@examples(10)
@given(pair=pairs())
def test_propagated_of_two_programs(partitioner, pair):
    programs = [recipe.program() for recipe in pair]
    one, two = (Inspection(program, (partitioner,)) for program in programs)
    found = one.propagated_diff(two)
    dumps = [before_partitioning(program, partitioner) for program in programs]
    assert agree(found, dumps), (found.beginnings, different(*dumps, surely=False))


@examples(30)
@given(recipe=recipes())
def test_lowered_for_two_partitioners(recipe):
    program = recipe.program()
    found = Inspection(program).diff()
    one, two = (lowered_shardings(program, each) for each in PARTITIONERS)
    assert found.same == (one == two), (found.tensors, one, two)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@examples(30)
@given(pair=pairs())
def test_lowered_of_two_programs(partitioner, pair):
    programs = [recipe.program() for recipe in pair]
    one, two = (Inspection(program, (partitioner,)) for program in programs)
    found = one.diff(two)
    texts = [lowered_shardings(program, partitioner) for program in programs]
    assert found.same == (texts[0] == texts[1]), (found.tensors, texts)


def test_what_a_loop_uses_and_never_changes_is_where_the_loop_has_it():
    steps = (
        Step("constrain", (0,), (None, None)),
        Step("transpose", (1,), (None, None)),
        Step("add", (0, 0), (None, None)),
        Step("scan", (3, 0), (None, None)),
    )
    program = Recipe(((None, None), ("a", None)), steps, (5,), (None,)).program()
    found = Inspection(program).propagated_diff()
    assert found.same, found.beginnings
    dumps = [before_partitioning(program, each) for each in PARTITIONERS]
    assert not different(*dumps, surely=False)
