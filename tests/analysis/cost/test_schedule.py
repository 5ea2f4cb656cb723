"""A step over time: what is exposed, by hand, and what would hide it."""

# ruff: noqa: E501 - lines of HLO are long

import math

import pytest

from sdyscope.analysis.cost.cost import Given, cost
from sdyscope.analysis.cost.schedule import schedule_of
from sdyscope.errors import TargetError
from sdyscope.facts.compiled import Compiled
from sdyscope.hardware.names import Hardware
from sdyscope.hlo import read_hlo
from sdyscope.hlo.loops import known_before
from sdyscope.values.mesh import AxisRef, Mesh

MESH = Mesh.of({"data": 2, "model": 2})

HEAD = """HloModule jit_f, is_scheduled=true, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""

#: A product takes 2 * 1024 ** 3 / 1.97e14 s = 10.9 us, a gather or a reduction of 2 MiB what it is
#: given.
STEP = (
    HEAD
    + """
ENTRY %e (p: bf16[512,1024], q: bf16[1024,1024], r: bf16[1024,1024]) -> (bf16[1024,1024], bf16[1024,1024], bf16[1024,1024]) {
  %p = bf16[512,1024]{1,0} parameter(0)
  %q = bf16[1024,1024]{1,0} parameter(1)
  %r = bf16[1024,1024]{1,0} parameter(2)
  %first = bf16[1024,1024]{1,0} dot(%q, %r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %start = (bf16[512,1024]{1,0}, bf16[1024,1024]{1,0}) all-gather-start(%p), channel_id=1, replica_groups=[2,2]<=[4], dimensions={0}, use_global_device_ids=true, metadata={op_name="jit(f)/gather/x"}
  %beside = bf16[1024,1024]{1,0} dot(%first, %r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %done = bf16[1024,1024]{1,0} all-gather-done(%start)
  %used = bf16[1024,1024]{1,0} dot(%done, %r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %sum = bf16[1024,1024]{1,0} all-reduce(%used), channel_id=2, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true, to_apply=%add, metadata={op_name="jit(f)/sum/x"}
  %after = bf16[1024,1024]{1,0} dot(%sum, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %all = (bf16[1024,1024]{1,0}, bf16[1024,1024]{1,0}, bf16[1024,1024]{1,0}) tuple(%beside, %used, %after)
}
"""
)

LOOP = (
    HEAD
    + """
%body (s: (s32[], bf16[512,1024], bf16[1024,1024])) -> (s32[], bf16[512,1024], bf16[1024,1024]) {
  %s = (s32[], bf16[512,1024]{1,0}, bf16[1024,1024]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %w = bf16[512,1024]{1,0} get-tuple-element(%s), index=1
  %x = bf16[1024,1024]{1,0} get-tuple-element(%s), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %g = bf16[1024,1024]{1,0} all-gather(%w), channel_id=1, replica_groups=[2,2]<=[4], dimensions={0}, use_global_device_ids=true
  %y = bf16[1024,1024]{1,0} dot(%x, %g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %z = bf16[1024,1024]{1,0} all-reduce(%y), channel_id=2, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true, to_apply=%add
  ROOT %t = (s32[], bf16[512,1024]{1,0}, bf16[1024,1024]{1,0}) tuple(%next, %w, %z)
}

%condition (s: (s32[], bf16[512,1024], bf16[1024,1024])) -> pred[] {
  %s = (s32[], bf16[512,1024]{1,0}, bf16[1024,1024]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %e (w: bf16[512,1024], x: bf16[1024,1024]) -> bf16[1024,1024] {
  %w = bf16[512,1024]{1,0} parameter(0)
  %x = bf16[1024,1024]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %s = (s32[], bf16[512,1024]{1,0}, bf16[1024,1024]{1,0}) tuple(%zero, %w, %x)
  %loop = (s32[], bf16[512,1024]{1,0}, bf16[1024,1024]{1,0}) while(%s), condition=%condition, body=%body, metadata={op_name="jit(f)/layers/while"}
  ROOT %r = bf16[1024,1024]{1,0} get-tuple-element(%loop), index=2
}
"""
)

PRODUCT = 2 * 1024**3 / 1.97e14


def made(hlo, mesh=MESH, data=1e11, model=1e11):
    compiled = Compiled(
        name="f",
        partitioner="shardy",
        hardware=Hardware("tpu", chip="v5e", topology="2x2"),
        devices=4,
        device_kind="TPU v5 lite",
        hlo=hlo,
        topology=None,
    )
    rates = {name: model if name == "model" else data for name in mesh.shape}
    return schedule_of(cost(compiled, [mesh], Given(rates, dict.fromkeys(rates, 0.0))))


def by_name(program_collectives):
    return {collective.name: collective for collective in program_collectives.collectives}


def close(value, other):
    return math.isclose(value, other, rel_tol=1e-6, abs_tol=1e-12)


def test_what_is_beside_an_asynchronous_collective_hides_it():
    # 1 MiB in 5 us, half of a product; then what is slower than the product is exposed.
    found = made(STEP, model=1024**2 / (PRODUCT / 2))
    start = by_name(found)["start"]
    assert close(start.seconds, PRODUCT / 2)
    assert (start.exposed, start.way) == (0.0, None)
    found = made(STEP, model=1024**2 / (3 * PRODUCT))
    start = by_name(found)["start"]
    assert close(start.exposed, 2 * PRODUCT)
    # It could begin before the first product.
    assert close(start.work, PRODUCT)
    assert (start.way, start.scope) == ("reorder", "gather")
    assert close(start.hideable, PRODUCT)


def test_what_is_waited_for_at_once_is_exposed():
    found = made(STEP)
    reduced = by_name(found)["sum"]
    assert close(reduced.exposed, reduced.seconds)
    assert (reduced.work, reduced.way) == (0.0, "less")
    assert close(found.seconds, found.compute + found.exposed)
    assert close(
        found.exposed + found.hidden, sum(collective.seconds for collective in found.collectives)
    )
    compute, *links = found.lanes
    assert close(compute.busy, found.compute)
    assert {lane.axes for lane in links} == {(AxisRef("data"),), (AxisRef("model"),)}
    alone = [segment for lane in links for segment in lane.segments if segment.exposed]
    assert close(sum(one.end - one.start for one in alone), found.exposed)


def test_what_comes_after_a_collective_and_does_not_need_it_could_hide_it():
    moved = STEP.replace("dot(%sum, %q)", "dot(%beside, %q)").replace(
        "tuple(%beside, %used, %after)", "tuple(%sum, %used, %after)"
    )
    reduced = by_name(made(moved))["sum"]
    assert reduced.way == "asynchronous"
    assert close(reduced.work, PRODUCT)


def test_a_loop_takes_as_long_as_its_iterations():
    found = made(LOOP)
    gathered, reduced = by_name(found)["g"], by_name(found)["z"]
    assert found.compute >= 5 * PRODUCT
    assert close(gathered.exposed, 5 * 1024**2 / 1e11)
    # What is gathered is the same each time; what is reduced is needed next.
    assert gathered.way == "pipelined"
    assert math.isclose(gathered.other, found.compute, rel_tol=1e-4)
    assert reduced.way == "less"
    assert found.pipelines == ()
    # One iteration is drawn over all the time that the loop takes.
    segment = next(one for lane in found.lanes for one in lane.segments if one.name == "g")
    assert close(segment.end - segment.start, gathered.seconds)


def test_what_a_loop_knows_before_an_iteration():
    body = read_hlo(LOOP).computations["body"]
    assert known_before(body) == {"i", "w", "one", "next", "g"}


@pytest.mark.parametrize(
    ("hlo", "kind", "words"),
    [
        (STEP.replace(", is_scheduled=true", ""), "TPU v5 lite", "not scheduled"),
        (STEP, "cpu", "No rates are known for cpu"),
    ],
)
def test_what_has_no_schedule_is_said(hlo, kind, words):
    compiled = Compiled(
        "f", "shardy", Hardware("tpu", chip="v5e", topology="2x2"), 4, kind, hlo, None, None,
        (), (), (), 0.0, None,
    )  # fmt: skip
    with pytest.raises(TargetError, match=words):
        schedule_of(cost(compiled, [MESH]))
