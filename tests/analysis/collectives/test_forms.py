"""Collectives in every form that HLO writes them in, by hand: what is counted is what is sent."""

# ruff: noqa: E501 - lines of HLO are long

import pytest

from sdyscope.analysis.collectives.read import collectives
from sdyscope.hlo import read_hlo
from sdyscope.values.mesh import Mesh

MESH = Mesh.of({"a": 4, "b": 2})
PAIRS = "channel_id=1, replica_groups=[4,2]<=[8], use_global_device_ids=true"
FOURS = "channel_id=2, replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true"

#: The operands that lines below have: f32[4], f32[2], bf16[6] and s32[4].
OPERANDS = """
  %p = f32[4]{0} parameter(0)
  %q = f32[2]{0} parameter(1)
  %r = bf16[6]{0} parameter(2)
  %i = s32[4]{0} parameter(3)
  %t = pred[] parameter(4)
"""


def found(*lines, before=""):
    body = OPERANDS + "".join(f"  {line}\n" for line in lines)
    return collectives(
        read_hlo(f"HloModule m, num_partitions=8\n\n{before}\nENTRY e {{{body}}}\n"), [MESH]
    )


@pytest.mark.parametrize(
    ("line", "kind", "axes", "tensors", "size", "sent", "received"),
    [
        # One tensor, and several at once.
        (f"f32[8]{{0}} all-gather(%p), {PAIRS}, dimensions={{0}}", "all-gather", "b", 1, 32, 16, 16),
        (
            f"(f32[8]{{0}}, f32[4]{{0}}) all-gather(%p, %q), {PAIRS}, dimensions={{0}}",
            "all-gather", "b", 2, 48, 24, 24,
        ),
        (f"f32[4]{{0}} all-reduce(%p), {FOURS}, to_apply=%add", "all-reduce", "a", 1, 16, 24, 24),
        (
            f"(f32[4]{{0}}, bf16[6]{{0}}) all-reduce(%p, %r), {PAIRS}, to_apply=%add",
            "all-reduce", "b", 2, 28, 28, 28,
        ),
        # They are sent as one: no byte more is rounded up for the second.
        (
            f"(pred[], pred[]) all-reduce(%t, %t), {FOURS}, to_apply=%or",
            "all-reduce", "a", 2, 2, 3, 3,
        ),
        (
            f"f32[1]{{0}} reduce-scatter(%p), {FOURS}, dimensions={{0}}, to_apply=%add",
            "reduce-scatter", "a", 1, 16, 12, 12,
        ),
        (
            f"(f32[2]{{0}}, f32[1]{{0}}) reduce-scatter(%p, %q), {PAIRS}, dimensions={{0}}, to_apply=%add",
            "reduce-scatter", "b", 2, 24, 12, 12,
        ),
        # With a dimension to split along, or in pieces, which are one tensor.
        (f"f32[4]{{0}} all-to-all(%p), {FOURS}, dimensions={{0}}", "all-to-all", "a", 1, 16, 12, 12),
        (
            f"(f32[2]{{0}}, f32[2]{{0}}) all-to-all(%q, %q), {PAIRS}",
            "all-to-all", "b", 1, 16, 8, 8,
        ),
        # How much of the data is sent is data itself: at most all of it.
        (
            f"f32[4]{{0}} ragged-all-to-all(%p, %p, %i, %i, %i, %i), {FOURS}",
            "ragged-all-to-all", "a", 1, 16, 16, 16,
        ),
        (
            f"f32[4]{{0}} collective-broadcast(%p), {PAIRS}",
            "collective-broadcast", "b", 1, 16, 16, 16,
        ),
        (
            "f32[4]{0} collective-permute(%p), channel_id=3, source_target_pairs={{0,2},{2,4},{4,6},{6,0}}",
            "collective-permute", "a", 1, 16, 16, 16,
        ),
        (
            "(f32[4]{0}, f32[2]{0}) collective-permute(%p, %q), channel_id=3, source_target_pairs={{0,1}}",
            "collective-permute", "b", 2, 24, 24, 24,
        ),
        # Nothing leaves a device that only sends to itself, or works alone.
        (
            "f32[4]{0} collective-permute(%p), channel_id=3, source_target_pairs={{0,0},{1,1}}",
            "collective-permute", "", 1, 16, 0, 0,
        ),
        (
            "f32[4]{0} all-reduce(%p), channel_id=3, replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, use_global_device_ids=true, to_apply=%add",
            "all-reduce", "", 1, 16, 0, 0,
        ),
    ],
)  # fmt: skip
def test_as_it_is(line, kind, axes, tensors, size, sent, received):
    (collective,) = found(f"ROOT %x = {line}").collectives
    assert (collective.kind, collective.count, collective.asynchronous) == (kind, 1, False)
    assert [axis.name for axis in collective.axes] == ([axes] if axes else [])
    assert (len(collective.parts), collective.bytes, collective.sent, collective.received) == (
        tensors,
        size,
        sent,
        received,
    )


@pytest.mark.parametrize(
    ("shape", "operation", "kind", "sent"),
    [
        ("f32[8]{0}", f"all-gather(%w), {PAIRS}, dimensions={{0}}", "all-gather", 16),
        ("f32[4]{0}", f"all-reduce(%w), {FOURS}, to_apply=%add", "all-reduce", 24),
        ("f32[2]{0}", f"reduce-scatter(%w), {PAIRS}, dimensions={{0}}", "reduce-scatter", 8),
        ("f32[4]{0}", f"all-to-all(%w), {FOURS}, dimensions={{0}}", "all-to-all", 12),
        ("f32[4]{0}", f"collective-broadcast(%w), {PAIRS}", "collective-broadcast", 16),
        (
            "f32[4]{0}",
            "collective-permute(%w), channel_id=1, source_target_pairs={{0,1},{1,0}}",
            "collective-permute",
            16,
        ),
    ],
)
def test_wrapped_to_run_meanwhile(shape, operation, kind, sent):
    wrapped = f"""
w {{
  %w = f32[4]{{0}} parameter(0)
  ROOT %c = {shape} {operation}
}}
"""
    (collective,) = found(
        f"%s = ((f32[4]{{0}}), {shape}, u32[]) async-start(%p), calls=%w",
        f"%u = ((f32[4]{{0}}), {shape}, u32[]) async-update(%s), calls=%w",
        f"ROOT %d = {shape} async-done(%u), calls=%w",
        before=wrapped,
    ).collectives
    assert (collective.kind, collective.count, collective.asynchronous, collective.sent) == (
        kind,
        1,
        True,
        sent,
    )


@pytest.mark.parametrize(
    ("caller", "count", "conditional", "unknown"),
    [
        ("call(%p), to_apply=%c", 1, False, False),
        ('while(%p), condition=%other, body=%c, backend_config={"known_trip_count":{"n":"6"}}', 6,
         False, False),
        ('while(%p), condition=%c, body=%other, backend_config={"known_trip_count":{"n":"6"}}', 7,
         False, False),
        ("while(%p), condition=%other, body=%c", 1, False, True),
        ("conditional(%i, %p, %p), branch_computations={%c, %other}", 1, True, False),
        ("conditional(%i, %p, %p), true_computation=%c, false_computation=%c", 2, True, False),
        ("fusion(%p), kind=kCustom, calls=%c", 1, False, False),
        ('custom-call(%p), custom_call_target="f", called_computations={%c}', 1, False, False),
    ],
)  # fmt: skip
def test_in_what_runs_other_computations(caller, count, conditional, unknown):
    inside = f"""
c {{
  %w = f32[4]{{0}} parameter(0)
  ROOT %x = f32[4]{{0}} all-reduce(%w), {PAIRS}, to_apply=%add
}}

other {{
  ROOT %v = f32[4]{{0}} parameter(0)
}}
"""
    (collective,) = found(f"ROOT %y = f32[4]{{0}} {caller}", before=inside).collectives
    assert (collective.count, collective.conditional, collective.unknown_trips) == (
        count,
        conditional,
        unknown,
    )
    assert collective.sent == 16 * count


def test_what_looks_like_a_collective_and_is_none():
    nothing = found(
        "%partition-id = u32[] partition-id()",
        "%after-all = token[] after-all()",
        '%all-gather.1 = f32[4]{0} custom-call(%p), custom_call_target="all-gather"',
        '%all-reduce = f32[4]{0} copy(%p), metadata={op_name="all-reduce(%p), channel_id=1"}',
        "%copy-start = (f32[4]{0}, f32[4]{0}, u32[]) copy-start(%p)",
        "ROOT %copy-done = f32[4]{0} copy-done(%copy-start)",
    )
    assert nothing.collectives == ()
    assert nothing.not_understood_count == 0


def test_one_that_is_never_called_is_not_counted():
    inside = f"c {{\n  ROOT %x = f32[4]{{0}} all-reduce(%x), {PAIRS}\n}}\n"
    assert found("ROOT %y = f32[4]{0} copy(%p)", before=inside).collectives == ()
