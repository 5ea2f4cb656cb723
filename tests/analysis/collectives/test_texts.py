"""Collectives of hand-written programs: what is counted, and once."""

# ruff: noqa: E501 - lines of HLO are long

import pytest

from sdyscope.analysis.collectives.read import collectives
from sdyscope.hlo import read_hlo
from sdyscope.values.mesh import Mesh

MESH = Mesh.of({"a": 2, "b": 2, "c": 2})


def names(axes):
    return None if axes is None else tuple(map(str, axes))


def of(lines, before="", header=", num_partitions=8", meshes=(MESH,)):
    body = "\n".join(f"  {line}" for line in lines.strip().splitlines())
    return collectives(read_hlo(f"HloModule m{header}\n{before}\nENTRY e {{\n{body}\n}}\n"), meshes)


def only(*args, **kwargs):
    (collective,) = of(*args, **kwargs).collectives
    return collective


GROUPS = "channel_id=1, replica_groups=[4,2]<=[8], use_global_device_ids=true"


@pytest.mark.parametrize(
    ("start", "done", "kind", "sent"),
    [
        (
            f"(f32[4]{{0}}, f32[8]{{0}}) all-gather-start(%p), {GROUPS}, dimensions={{0}}",
            "f32[8]{0} all-gather-done(%s)",
            "all-gather",
            16,
        ),
        (
            f"((f32[4]{{0}}), (f32[8]{{0}})) all-gather-start(%p), {GROUPS}, dimensions={{0}}",
            "(f32[8]{0}) all-gather-done(%s)",
            "all-gather",
            16,
        ),
        (
            f"f32[4]{{0}} all-reduce-start(%p), {GROUPS}",
            "f32[4]{0} all-reduce-done(%s)",
            "all-reduce",
            16,
        ),
        (
            f"((f32[4]{{0}}), f32[2]{{0}}, u32[]) reduce-scatter-start(%p), {GROUPS}",
            "f32[2]{0} reduce-scatter-done(%s)",
            "reduce-scatter",
            8,
        ),
        (
            f"((f32[4]{{0}}), f32[4]{{0}}) all-to-all-start(%p), {GROUPS}",
            "f32[4]{0} all-to-all-done(%s)",
            "all-to-all",
            8,
        ),
        (
            "(f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}",
            "f32[4]{0} collective-permute-done(%s)",
            "collective-permute",
            16,
        ),
    ],
)
def test_start_and_done_are_one(start, done, kind, sent):
    op = only(f"%p = f32[4]{{0}} parameter(0)\n%s = {start}\nROOT %d = {done}")
    assert (op.kind, op.count, op.asynchronous, op.sent) == (kind, 1, True, sent)
    assert names(op.axes) == ('"c"',)


def test_a_wrapped_asynchronous_collective_is_one():
    wrapped = f"""
w {{
  %q = f32[4]{{0}} parameter(0)
  ROOT %r = f32[2]{{0}} reduce-scatter(%q), {GROUPS}, dimensions={{0}}
}}
"""
    op = only(
        """
%p = f32[4]{0} parameter(0)
%s = ((f32[4]{0}), f32[2]{0}, u32[]) async-start(%p), calls=%w
%u = ((f32[4]{0}), f32[2]{0}, u32[]) async-update(%s), calls=%w
ROOT %d = f32[2]{0} async-done(%u), calls=%w
""",
        before=wrapped,
    )
    assert (op.kind, op.count, op.asynchronous, op.sent) == ("reduce-scatter", 1, True, 8)


def test_async_collective_fusions_are_one_by_channel():
    fused = "".join(
        f"""
f{i} {{
  %q{i} = f32[4]{{0}} parameter(0)
  ROOT %g{i} = f32[8]{{0}} all-gather(%q{i}), {GROUPS}, dimensions={{0}}
}}
"""
        for i in range(3)
    )
    op = only(
        """
%p = f32[4]{0} parameter(0)
%s = f32[8]{0} fusion(%p), kind=kCustom, calls=%f0
%c = f32[8]{0} fusion(%p), kind=kOutput, calls=%f1
ROOT %d = f32[8]{0} fusion(%p), kind=kCustom, calls=%f2
""",
        before=fused,
    )
    assert (op.count, op.asynchronous, op.sent) == (1, True, 16)


def test_the_same_channel_in_a_function_that_is_called_twice_is_two():
    called = f"""
f {{
  %q = f32[4]{{0}} parameter(0)
  ROOT %r = f32[4]{{0}} all-reduce(%q), {GROUPS}, to_apply=%f
}}
"""
    op = only(
        "%p = f32[4]{0} parameter(0)\n%a = f32[4]{0} call(%p), to_apply=%f\nROOT %b = f32[4]{0} call(%a), to_apply=%f",
        before=called,
    )
    assert (op.count, op.sent) == (2, 32)


def test_a_reduce_scatter_fusion_is_one_and_takes_its_caller_s_line():
    fused = f"""
all-reduce-scatter {{
  %q = f32[8]{{0}} parameter(0)
  %r = f32[8]{{0}} all-reduce(%q), {GROUPS}
  %i = s32[] constant(0)
  ROOT %s = f32[4]{{0}} dynamic-slice(%r, %i), dynamic_slice_sizes={{4}}
}}
"""
    op = only(
        '%p = f32[8]{0} parameter(0)\nROOT %f = f32[4]{0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter, metadata={op_name="jit(f)/transpose(jvp(g))/dot_general" source_file="/a.py" source_line=3}',
        before=fused,
    )
    assert (op.kind, op.sent) == ("reduce-scatter", 16)
    (part,) = op.parts
    assert (part.scope, part.primitive, part.phase) == (
        "transpose(jvp(g))",
        "dot_general",
        "backward",
    )
    assert str(part.source) == "/a.py:3"


def joined_reduce_scatter(last):
    return f"""
all-reduce-scatter {{
  %q0 = f32[8]{{0}} parameter(0)
  %q1 = f32[4]{{0}} parameter(1)
  %r = (f32[8]{{0}}, f32[4]{{0}}) all-reduce(%q0, %q1), {GROUPS}
  %i = s32[] constant(0)
  %x = f32[8]{{0}} get-tuple-element(%r), index=0
  %y = f32[4]{{0}} get-tuple-element(%r), index=1
  %s = f32[4]{{0}} dynamic-slice(%x, %i), dynamic_slice_sizes={{4}}
  %t = f32[2]{{0}} dynamic-slice(%y, %i), dynamic_slice_sizes={{2}}
  ROOT %u = (f32[4]{{0}}, f32[2]{{0}}) tuple(%s, {last})
}}
"""


FUSED_WITH_TWO = """
%p = f32[8]{0} parameter(0)
%a = f32[8]{0} negate(%p), metadata={op_name="jit(f)/transpose(jvp(a))/dot_general" source_file="/a.py" source_line=3}
%b = f32[4]{0} slice(%p), slice={[0:4]}, metadata={op_name="jit(f)/jvp(b)/mul" source_file="/a.py" source_line=4}
%c = f32[4]{0} copy(%b)
ROOT %f = (f32[4]{0}, f32[2]{0}) fusion(%a, %c), kind=kCustom, calls=%all-reduce-scatter
"""


def test_a_fusion_that_slices_all_that_it_reduces_is_a_reduce_scatter_of_each():
    op = only(FUSED_WITH_TWO, before=joined_reduce_scatter("%t"))
    assert (op.kind, op.sent) == ("reduce-scatter", 16 + 8)
    assert [(part.scope, str(part.source)) for part in op.parts] == [
        ("transpose(jvp(a))", "/a.py:3"),
        ("jvp(b)", "/a.py:4"),
    ]


def test_a_fusion_that_keeps_the_whole_of_one_is_an_all_reduce():
    op = only(FUSED_WITH_TWO, before=joined_reduce_scatter("%y"))
    assert (op.kind, op.sent) == ("all-reduce", 2 * (16 + 8))


def test_a_gather_of_no_op_has_the_line_of_what_gives_it_another_form():
    op = only(
        f"""
%p = f32[4]{{0}} parameter(0), metadata={{op_name="params[0]"}}
%c = f32[4]{{0}} copy(%p), metadata={{op_name="params[0]"}}
%g = f32[8]{{0}} all-gather(%c), {GROUPS}, dimensions={{0}}
%d = f32[8]{{0}} copy(%g), metadata={{op_name="jit(f)/jvp(a)/convert_element_type" source_file="/a.py" source_line=7}}
ROOT %n = f32[8]{{0}} negate(%d)
"""
    )
    (part,) = op.parts
    assert (part.scope, part.primitive, str(part.source)) == (
        "jvp(a)",
        "convert_element_type",
        "/a.py:7",
    )


def test_joined_tensors_are_parts_with_their_own_scopes():
    found = of(
        f"""
%p = f32[4]{{0}} parameter(0)
%q = f32[2]{{0}} parameter(1)
%r = (f32[4]{{0}}, f32[2]{{0}}) all-reduce(%p, %q), {GROUPS}, metadata={{op_name="jit(f)/(a/mul:b/add)"}}
%x = f32[4]{{0}} get-tuple-element(%r), index=0, metadata={{op_name="jit(f)/jvp(a)/mul"}}
ROOT %y = f32[2]{{0}} get-tuple-element(%r), index=1, metadata={{op_name="jit(f)/transpose(jvp(b))/add"}}
"""
    )
    (collective,) = found.collectives
    assert [(part.scope, part.phase, part.sent) for part in collective.parts] == [
        ("jvp(a)", "forward", 16),
        ("transpose(jvp(b))", "backward", 8),
    ]
    assert (found.total.count, found.total.tensors, found.total.sent) == (1, 2, 24)
    assert sum(tally.count for tally in found.by_phase.values()) == 1
    assert {phase: tally.sent for phase, tally in found.by_phase.items()} == {
        "forward": 16,
        "backward": 8,
    }


def test_without_a_name_it_is_named_for_the_value_that_it_moves():
    op = only(
        f"""
%p = f32[4]{{0}} parameter(0)
%m = f32[4]{{0}} multiply(%p, %p), metadata={{op_name="jit(f)/optimizer/mul" source_file="/a.py" source_line=9}}
%c = f32[4]{{0}} copy(%m)
ROOT %r = f32[8]{{0}} all-gather(%c), {GROUPS}, dimensions={{0}}
"""
    )
    (part,) = op.parts
    assert (part.scope, part.primitive, str(part.source)) == ("optimizer", "mul", "/a.py:9")


@pytest.mark.parametrize(
    "concatenate", ["concatenate(%x, %y), dimensions={0}", "fusion(%x, %y), kind=kLoop, calls=%cat"]
)
def test_tensors_that_are_joined_end_to_end_are_parts(concatenate):
    cat = """
cat {
  %a = f32[4]{0} parameter(0)
  %b = f32[2]{0} parameter(1)
  ROOT %c = f32[6]{0} concatenate(%a, %b), dimensions={0}
}
"""
    op = only(
        f"""
%p = f32[2,2]{{1,0}} parameter(0)
%m = f32[2,2]{{1,0}} negate(%p), metadata={{op_name="jit(f)/one/neg"}}
%x = f32[4]{{0}} bitcast(%m)
%y = f32[2]{{0}} parameter(1), metadata={{op_name="jit(f)/two/mul"}}
%j = f32[6]{{0}} {concatenate}
ROOT %r = f32[6]{{0}} all-reduce(%j), {GROUPS}
""",
        before=cat,
    )
    assert [(str(part.shape), part.scope, part.sent) for part in op.parts] == [
        ("f32[2,2]", "one", 16),
        ("f32[2]", "two", 8),
    ]


@pytest.mark.parametrize(("is_sync", "asynchronous"), [("true", False), ("false", True)])
def test_a_start_may_say_that_it_is_synchronous(is_sync, asynchronous):
    config = f'backend_config={{"collective_backend_config":{{"is_sync":{is_sync}}}}}'
    op = only(
        f"%p = f32[4]{{0}} parameter(0)\n%s = f32[4]{{0}} all-reduce-start(%p), {GROUPS}, {config}"
    )
    assert op.asynchronous is asynchronous


def test_pieces_of_an_all_to_all_are_one_tensor():
    op = only(
        f"%p = f32[4]{{0}} parameter(0)\n%q = f32[4]{{0}} parameter(1)\nROOT %r = (f32[4]{{0}}, f32[4]{{0}}) all-to-all(%p, %q), {GROUPS}"
    )
    assert (len(op.parts), op.bytes, op.sent) == (1, 32, 16)


def test_without_global_ids_a_channel_takes_all_partitions_of_its_replicas():
    line = "%p = f32[4]{0} parameter(0)\nROOT %r = f32[4]{0} all-reduce(%p), channel_id=1, replica_groups={{0}}"
    assert names(only(line).axes) == ('"a"', '"b"', '"c"')
    line = "%p = f32[4]{0} parameter(0)\nROOT %r = f32[4]{0} all-reduce(%p), replica_groups={{0,1}}"
    op = only(line, header=", replica_count=2, num_partitions=4")
    assert (names(op.axes), op.group_size, op.sent) == (('"a"',), 2, 16)


def test_send_and_recv_are_one_way():
    found = of(
        """
%p = f32[4]{0} parameter(0)
%t = token[] after-all()
%s = (f32[4]{0}, u32[], token[]) send(%p, %t), channel_id=1
%r = (f32[4]{0}, u32[], token[]) recv(%t), channel_id=2
%sd = token[] send-done(%s), channel_id=1
ROOT %rd = (f32[4]{0}, token[]) recv-done(%r), channel_id=2
"""
    )
    assert [
        (collective.kind, collective.sent, collective.received, collective.axes)
        for collective in found.collectives
    ] == [
        ("send", 16, 0, None),
        ("recv", 0, 16, None),
    ]


def test_groups_that_no_axes_have_are_left_without():
    op = only(
        "%p = f32[4]{0} parameter(0)\nROOT %r = f32[4]{0} all-reduce(%p), channel_id=1, replica_groups={{0,3},{1,2},{4,7},{5,6}}, use_global_device_ids=true"
    )
    assert (op.axes, op.group_size, op.sent) == (None, 2, 16)


def test_the_mesh_that_explains_most_is_taken():
    line = f"%p = f32[4]{{0}} parameter(0)\nROOT %r = f32[4]{{0}} all-reduce(%p), {GROUPS}"
    wrong = Mesh.of({"x": 8}, (0, 2, 4, 6, 1, 3, 5, 7))
    found = of(line, meshes=(Mesh.of({"y": 4}), wrong, MESH))
    assert found.mesh == MESH
    assert of(line, meshes=()).mesh is None


def test_what_cannot_be_read_is_listed_and_the_rest_is_there():
    found = of(
        f"""
%p = f32[4]{{0}} parameter(0)
%bad = f32[4]{{0}} all-reduce(%p), channel_id=1, replica_groups={{{{0,}}, to_apply=%x
strange
ROOT %r = f32[4]{{0}} all-reduce(%p), {GROUPS}
"""
    )
    assert len(found.collectives) == 1
    assert found.not_understood_count == 2
    assert {line.line for line in found.not_understood} == {5, 6}
