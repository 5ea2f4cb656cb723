"""The search for the first value that differs, and what is the same in blocks. No jax in here."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sdyscope.analysis.run import inside
from sdyscope.analysis.run.inside import (
    compared_arrays,
    compared_inside,
    first_difference,
    search,
)
from sdyscope.facts.findings import Regrouped
from sdyscope.facts.inside import Frame, InnerLevel, InnerValue, OtherOps
from sdyscope.values.mesh import Mesh

ALLOWED = 1e-5
DIFFERS = inside._Compared(False, 1.0)


def value(number, inputs=(), scope="", body="", path=None):
    place = ((number,) if path is None else path, 0)
    return InnerValue(place, "op", scope, None, "f32", (2,), 8, tuple(inputs), body)


@st.composite
def programs(draw):
    """Values made of earlier ones, and which of them are wrong by their own op."""
    count = draw(st.integers(1, 100))
    random = draw(st.randoms(use_true_random=False))
    made_of = [
        sorted({random.randrange(k) for _ in range(random.randrange(4))}) if k else []
        for k in range(count)
    ]
    # One of those that the last value is made of, so that that differs, and any others.
    behind = [count - 1]
    while made_of[behind[-1]] and random.random() < 0.7:
        behind.append(random.choice(made_of[behind[-1]]))
    wrong = {behind[-1], *(random.randrange(count) for _ in range(random.randrange(3)))}
    return made_of, wrong


@given(programs())
def test_the_named_value_differs_and_nothing_that_it_is_made_of_does(program):
    made_of, wrong = program
    differs = []
    for number, inputs in enumerate(made_of):
        differs.append(number in wrong or any(differs[one] for one in inputs))
    root = len(made_of) - 1
    assert differs[root]
    values = [value(number, inputs) for number, inputs in enumerate(made_of)]
    rounds = []

    def look(numbers):
        rounds.append(numbers)
        return {k: inside._Compared(not differs[k], 1.0) for k in numbers}

    found, unseen, known = search(values, root, DIFFERS, look)
    assert differs[found]
    assert len(rounds) <= inside.ROUNDS
    if not unseen:
        assert not any(differs[one] for one in made_of[found])
        assert found in wrong
    assert known[found].agrees is False


def test_a_long_program_takes_a_few_rounds():
    values = [value(k, [k - 1] if k else [], scope=f"layer{k // 10}") for k in range(20_000)]
    rounds = []

    def look(numbers):
        rounds.append(len(numbers))
        return {k: inside._Compared(k < 12_345, 1.0) for k in numbers}

    assert search(values, 19_999, DIFFERS, look)[:2] == (12_345, 0)
    assert len(rounds) <= 5
    assert max(rounds) <= inside.VALUES


def test_what_comes_right_again_is_not_blamed():
    # A device's own maximum differs, and is taken out of the result again.
    values = [value(0), value(1, [0]), value(2, [1]), value(3, [2])]
    wrong = {0: False, 1: True, 2: False, 3: True}

    def look(numbers):
        return {k: inside._Compared(not wrong[k], 1.0) for k in numbers}

    assert search(values, 3, DIFFERS, look)[0] == 3


def test_what_can_not_be_compared_is_passed_through():
    values = [value(0), value(1, [0]), value(2, [1])]

    def look(numbers):
        return {k: inside._Compared(None if k == 1 else False, 1.0) for k in numbers}

    assert search(values, 2, DIFFERS, look)[0] == 0


# --- blocks ---------------------------------------------------------------------------------------

PLACED = ("dim 0", "dim 1", "replica", "sum", "mean", "max", "min")


def in_blocks(whole, sizes, kinds, random):
    """Blocks, with a dimension in front for each axis, that are put together to `whole`."""
    blocks = whole
    for at, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        match kind:
            case "dim 0" | "dim 1":
                parts = np.split(blocks, size, axis=at + int(kind[-1]))
            case "replica":
                parts = [blocks] * size
            case "sum" | "mean":
                parts = [random.normal(size=blocks.shape) for _ in range(size - 1)]
                total = blocks * (size if kind == "mean" else 1)
                parts.append(total - sum(parts))
            case _:
                less = -1 if kind == "max" else 1
                away = [np.abs(random.normal(size=blocks.shape)) for _ in range(size - 1)]
                parts = [blocks, *(blocks + less * one for one in away)]
        blocks = np.stack(parts, axis=at)
    return blocks


@given(
    sizes=st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=2),
    kinds=st.lists(st.sampled_from(PLACED), min_size=2, max_size=2),
    seed=st.integers(0, 1000),
)
def test_blocks_are_put_together_as_they_were_cut(sizes, kinds, seed):
    kinds = kinds[: len(sizes)]
    # A maximum of what is added up, or the other way round, is what a program may have as well.
    assume(len([one for one in kinds if one in ("sum", "mean", "max", "min")]) <= 1)
    random = np.random.default_rng(seed)
    whole = random.normal(size=(36, 36))
    here = in_blocks(whole, sizes, kinds, random)
    there = whole.reshape((1,) * len(sizes) + whole.shape)
    frame = Frame("shard_map", tuple(sizes), (1,) * len(sizes), ("a", "b")[: len(sizes)])
    assert compared_inside(here, there, [frame], (), ALLOWED).agrees
    assert compared_inside(here * 1.5, there, [frame], (), ALLOWED).agrees is False


def test_a_sum_over_what_is_summed_already_is_so_many_times_as_large():
    whole = np.arange(6.0).reshape(2, 3)
    frame = Frame("shard_map", (4,), (1,), ("data",))
    found = compared_inside(np.stack([4 * whole] * 4), whole[None], [frame], (), ALLOWED)
    assert (found.agrees, found.ratio) == (False, 4.0)


def test_the_same_blocks_are_compared_with_each_other():
    blocks = np.arange(8.0).reshape(4, 2)
    frame = Frame("shard_map", (4,), (4,), ("data",))
    assert compared_inside(blocks, blocks, [frame], (), ALLOWED).agrees
    assert compared_inside(blocks[::-1], blocks, [frame], (), ALLOWED).agrees is False


def test_a_loop_is_looked_at_in_one_iteration():
    here, there = np.ones((3, 2)), np.ones((3, 2))
    here[2] = 7
    frame = Frame("scan", (3,), (3,))
    assert compared_inside(here, there, [frame], (1,), ALLOWED).agrees
    assert compared_inside(here, there, [frame], (2,), ALLOWED).agrees is False


@pytest.mark.parametrize("shape", [(4, 5), (4, 2, 3)])
def test_of_other_shapes_nothing_is_said(shape):
    frame = Frame("shard_map", (4,), (1,), ("data",))
    found = compared_inside(np.ones(shape), np.ones((1, 8)), [frame], (), ALLOWED)
    assert found.agrees is None


def test_of_what_rounding_may_turn_nothing_is_said():
    mask = np.arange(100) < 50
    turned = mask.copy()
    turned[50] = True
    assert compared_arrays(turned, mask, 0.0).agrees is None
    assert compared_arrays(mask, mask, 0.0).agrees
    assert compared_arrays(~mask, mask, 0.0).agrees is False


# --- all of it ------------------------------------------------------------------------------------


class Made:
    """A loop of three iterations in a program, whose second value is wrong from some iteration."""

    def __init__(self, reverse=False, since=1):
        self.reverse, self.since = reverse, since

    def level(self, entered=()):
        if not entered:
            return InnerLevel((value(0, body="scan"),), (0,))
        values = (value(0, path=(0, 0)), value(1, [0], path=(0, 1)), value(2, [1], path=(0, 2)))
        return InnerLevel(values, (2,), (Frame("scan", (3,), (3,), reverse=self.reverse),))

    def look(self, places):
        pairs = {place: (np.ones(2), np.full(2, 9.0)) for place in places}
        for path, _ in places:
            if len(path) == 2:
                rows = np.ones((3, 2))
                if path[1] >= 1:
                    rows[np.arange(3)[:: -1 if self.reverse else 1][self.since :]] = 2
                pairs[path, 0] = rows, np.ones((3, 2))
        return pairs


@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_is_entered_at_its_first_iteration_that_differs(reverse):
    mesh = Mesh.of({"data": 2})
    found = first_difference(Made(reverse), 0, "result", ("f32",), mesh)
    first = found.first
    assert (first.iteration, first.ratio, first.axes, first.unseen) == (1, 2.0, ("data",), 0)
    assert found.why == ""


class Chosen:
    """A `cond` whose second branch is wrong, and what chooses it, alike on both sides or not."""

    def __init__(self, chosen_alike):
        self.chosen_alike = chosen_alike

    def level(self, entered=()):
        if not entered:
            chooser, cond = value(0), value(1, [0], body="cond")
            return InnerLevel((chooser, replace(cond, branches=2, chosen_by=0)), (1,))
        return InnerLevel((replace(value(0, path=(*entered, 0)), op=f"of {entered[-1]}"),), (0,))

    def look(self, places):
        differ = {(1,), (1, 1, 0), *([] if self.chosen_alike else [(0,)])}
        return {
            place: (np.full(2, 5.0 if place[0] in differ else 1.0), np.ones(2)) for place in places
        }


def test_the_branch_that_differs_is_entered():
    assert first_difference(Chosen(True), 0, "result", ("f32",)).first.op == "of 1"


def test_no_branch_is_entered_where_another_is_taken():
    search = inside._Search(Chosen(False), ("f32",))
    level = Chosen(False).level()
    assert search._entered(level, level.values[1], ()) is None
    assert search._entered(level, replace(level.values[1], chosen_by=None), ()) is None


def test_a_conditional_that_can_not_be_looked_into_is_named():
    class Refused(Chosen):
        def look(self, places):
            if any(len(path) > 1 for path, _ in places):
                raise RuntimeError("INTERNAL: inconsistent conditional sharding")
            return super().look(places)

    result = first_difference(Refused(True), 0, "result", ("f32",))
    assert (result.first.op, result.why) == ("op", "")


@pytest.mark.parametrize(
    ("own", "after", "whole", "whole_after", "expected"),
    [
        ((2, 8), (2, 4, 2), (2, 16), (2, 4, 4), Regrouped(8, 16, 4, ("tp",))),
        ((8, 3), (2, 2, 2, 3), (32, 3), (2, 4, 4, 3), Regrouped(8, 32, 2, ("dp",))),
        ((2, 8), (2, 2, 4), (2, 16), (2, 4, 4), None),  # whole groups
        ((2, 8), (2, 1, 8), (2, 16), (2, 1, 16), None),  # a single one
        ((2, 8), (2, 4, 2), (2, 8), (2, 4, 2), None),  # not in parts
        ((2, 8), (16,), (2, 16), (32,), None),  # merged
        ((2, 8), (4, 4), (2, 16), (4, 8), None),  # neither
    ],
)
def test_which_reshapes_form_groups_of_a_devices_own_elements(
    own, after, whole, whole_after, expected
):
    here, there = (
        replace(value(0), op="reshape", shape=shape, operands=(operand,))
        for shape, operand in ((after, own), (whole_after, whole))
    )
    sizes = {"tp": 2, "dp": 4}
    assert inside._regrouped(here, there, sizes) == expected
    assert inside._regrouped(replace(here, op="tanh"), there, sizes) is None
    assert inside._regrouped(here, None, sizes) is None


def test_of_the_results_that_differ_the_one_that_is_made_first_is_searched():
    class Step(Made):
        """A gradient, a loss that is made before it, and a result that the step does not make."""

        def level(self, entered=()):
            values = (value(0, scope="forward"), value(1, scope="backward"))
            return InnerLevel(values, (1, 0, None))

    alone = first_difference(Step(), 0, "gradient", ("f32",))
    beside = first_difference(Step(), 0, "gradient", ("f32",), others=[1, 2])
    assert (alone.first.scope, beside.first.scope) == ("backward", "forward")


def test_what_is_not_found_has_a_reason():
    class Gone(Made):
        def look(self, places):
            return {place: (np.ones(2), np.ones(2)) for place in places}

    class Other(Made):
        def level(self, entered=()):
            raise OtherOps

    class Fails(Made):
        def look(self, places):
            raise RuntimeError("out of memory:\nand more")

    reasons = [
        (found.why, found.reason)
        for found in (first_difference(made(), 0, "result", ()) for made in (Gone, Other, Fails))
    ]
    assert reasons == [
        ("gone", ""),
        ("other ops", ""),
        ("failed", "RuntimeError: out of memory"),
    ]
