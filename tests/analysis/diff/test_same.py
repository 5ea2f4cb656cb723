"""A diff says "same" exactly when the compiler's own texts place every value and result alike."""

from itertools import combinations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sdyscope.inspection import Inspection
from sdyscope.staged import compile_together
from tests.dumped import (
    before_partitioning,
    compiled,
    different,
    different_compiled,
    lowered_shardings,
)
from tests.sharded_programs import Recipe, Step, families, pairs, recipes, unscoped_pairs

pytestmark = pytest.mark.compiles

PARTITIONERS = ("shardy", "gspmd")


def examples(count, *phases):
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=slow,
        phases=phases or tuple(Phase),
    )


def agree(diff, dumps):
    """Whether a diff says "same" where the dumps do, and "different" where they do."""
    return (
        not different(*dumps, surely=True) if diff.same else bool(different(*dumps, surely=False))
    )


def compiled_agree(diff, dumps):
    """The same of what one device sends and holds."""
    if diff.entries is None or diff.entries.not_compared:
        return False
    differ = different_compiled(*dumps, surely=diff.same)
    return not differ if diff.same else bool(differ)


@examples(12)
@given(recipe=recipes())
def test_propagated_by_two_partitioners(recipe):
    program = recipe.program()
    diff = Inspection(program).propagated_diff()
    dumps = [before_partitioning(program, each) for each in PARTITIONERS]
    assert agree(diff, dumps), (diff.beginnings, different(*dumps, surely=False))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@examples(10)
@given(pair=pairs())
def test_propagated_of_two_programs(partitioner, pair):
    programs = [recipe.program() for recipe in pair]
    one, two = (Inspection(program, (partitioner,)) for program in programs)
    diff = one.propagated_diff(two)
    dumps = [before_partitioning(program, partitioner) for program in programs]
    assert agree(diff, dumps), (diff.beginnings, different(*dumps, surely=False))


@examples(30)
@given(recipe=recipes())
def test_lowered_for_two_partitioners(recipe):
    program = recipe.program()
    diff = Inspection(program).diff()
    one, two = (lowered_shardings(program, each) for each in PARTITIONERS)
    assert diff.same == (one == two), (diff.tensors, one, two)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@examples(30)
@given(pair=st.one_of(pairs(), unscoped_pairs()))
def test_lowered_of_two_programs(partitioner, pair):
    programs = [recipe.program() for recipe in pair]
    one, two = (Inspection(program, (partitioner,)) for program in programs)
    diff = one.diff(two)
    texts = [lowered_shardings(program, partitioner) for program in programs]
    assert diff.same == (texts[0] == texts[1]), (diff.tensors, texts)


# A smaller example would take minutes of compiles to find.
@examples(3, Phase.generate)
@given(family=families(3))
def test_compiled_under_two_partitioners_and_of_two_programs(family):
    """Each program is compiled once, and compared in every way."""
    programs = [recipe.program() for recipe in family]
    staged = [Inspection(program) for program in programs]
    compile_together([(one, under, None) for one in staged for under in PARTITIONERS])
    dumps = {under: [compiled(program, under) for program in programs] for under in PARTITIONERS}
    compared = [
        (one.compiled_diff(), both)
        for one, both in zip(staged, zip(*dumps.values(), strict=True), strict=True)
    ]
    for under in PARTITIONERS:
        for (one, mine), (two, theirs) in combinations(zip(staged, dumps[under], strict=True), 2):
            compared.append((one.compiled_diff(two, under), (mine, theirs)))
    for found, both in compared:
        assert compiled_agree(found, both), (found, different_compiled(*both, surely=False))


def test_what_a_loop_uses_and_never_changes_is_where_the_loop_has_it():
    steps = (
        Step("constrain", (0,), (None, None)),
        Step("transpose", (1,), (None, None)),
        Step("add", (0, 0), (None, None)),
        Step("scan", (3, 0), (None, None)),
    )
    program = Recipe(((None, None), ("a", None)), steps, (5,), (None,)).program()
    diff = Inspection(program).propagated_diff()
    assert diff.same, diff.beginnings
    dumps = [before_partitioning(program, each) for each in PARTITIONERS]
    assert not different(*dumps, surely=False)
