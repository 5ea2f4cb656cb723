"""Collectives of partitioned programs, against what the programs are known to send."""

# ruff: noqa: E501 - lines of HLO are long

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.collective_axes import axes_of_groups, axes_of_pairs
from sdyscope.analysis.collective_bytes import wire_bytes
from sdyscope.analysis.collectives import collectives
from sdyscope.analysis.rematerializations import rematerializations
from sdyscope.analysis.scopes import phase_of, scope_of
from sdyscope.hlo import read_hlo, trip_count
from sdyscope.mesh import AxisRef, Mesh, SubAxisInfo
from sdyscope.replica_groups import CollectiveDeviceList, MeshAxesReplicaGroupList
from sdyscope.syntax.replica_groups import parse_replica_groups

MESH = Mesh.of({"a": 2, "b": 2, "c": 2})


def names(axes):
    return None if axes is None else tuple(map(str, axes))


# --- axes of groups -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", ('"c"',)),
        ("{{1,0},{3,2},{5,4},{7,6}}", ('"c"',)),
        ("{{6,7},{0,1},{4,5},{2,3}}", ('"c"',)),
        ("{{0,4},{1,5},{2,6},{3,7}}", ('"a"',)),
        ("{{0,1,4,5},{2,3,6,7}}", ('"a"', '"c"')),
        ("{}", ('"a"', '"b"', '"c"')),
        ("[1,8]<=[8]", ('"a"', '"b"', '"c"')),
        ("[4,2]<=[4,2]T(1,0)", ('"b"',)),
        ("[4,2]<=[2,4]T(1,0)", ('"a"',)),
        ("mesh['x'=4,'y'=2] {'x'}", ('"a"', '"b"')),
        ("mesh['x'=8] {'x':(2)2}", ('"b"',)),
        ("{{0},{1},{2},{3},{4},{5},{6},{7}}", ()),
        ("{{0,3},{1,2},{4,7},{5,6}}", None),
        ("{{0,1},{2,4},{3,5},{6,7}}", None),
        ("{{0,1}}", None),
        ("{{0,1,2},{3,4,5,6,7}}", None),
        ("[2,2]<=[4]", None),
    ],
)
def test_axes_of_groups(groups, axes):
    assert names(axes_of_groups(parse_replica_groups(groups), MESH)) == axes


def test_sub_axes_are_named():
    mesh = Mesh.of({"data": 8, "model": 2})
    assert names(axes_of_groups(parse_replica_groups("[8,2]<=[4,2,2]T(0,2,1)"), mesh)) == (
        '"data":(4)2',
    )
    assert names(axes_of_groups(parse_replica_groups("[4,4]<=[16]"), mesh)) == (
        '"data":(4)2',
        '"model"',
    )
    assert axes_of_groups(parse_replica_groups("[2,3]<=[6]"), Mesh.of({"x": 2, "y": 3})) == (
        AxisRef("y"),
    )


def test_nothing_lists_32768_devices():
    mesh = Mesh.of({"slice": 8, "data": 256, "model": 16})
    found = axes_of_groups(parse_replica_groups("[16,2048]<=[2048,16]T(1,0)"), mesh)
    assert names(found) == ('"slice"', '"data"')


@st.composite
def meshes_and_axes(draw):
    """A mesh of up to 48 devices in any order, some of its axes or parts of them."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    total = math.prod(sizes)
    order = draw(st.none() | st.permutations(range(total)) | st.just(range(total)[::-1]))
    mesh = Mesh.of(
        {f"x{i}": size for i, size in enumerate(sizes)}, None if order is None else tuple(order)
    )
    axes = []
    for axis in mesh.axes:
        kind = draw(st.sampled_from(["no", "whole", "part"]))
        if kind == "part" and axis.size == 4:
            axes.append(AxisRef(axis.name, SubAxisInfo(draw(st.sampled_from([1, 2])), 2)))
        elif kind != "no" and axis.size > 1:
            axes.append(AxisRef(axis.name))
    return mesh, tuple(axes)


@given(meshes_and_axes(), st.randoms(use_true_random=False))
def test_axes_are_found_again_however_groups_are_written(case, random):
    mesh, axes = case
    groups = MeshAxesReplicaGroupList(mesh, axes)
    assert axes_of_groups(groups, mesh) == axes
    listed = groups.groups()
    random.shuffle(listed)
    for group in listed:
        random.shuffle(group)
    shuffled = CollectiveDeviceList(tuple(map(tuple, listed)))
    assert axes_of_groups(shuffled, mesh) == axes


@pytest.mark.parametrize(
    ("pairs", "axes"),
    [
        ([(0, 1), (1, 0), (2, 3), (3, 2)], ('"c"',)),
        ([(0, 2), (2, 0)], ('"b"',)),
        ([(0, 3), (3, 0)], ('"b"', '"c"')),
        ([(0, 0), (5, 5)], ()),
        ([(0, 8)], None),
    ],
)
def test_axes_of_pairs(pairs, axes):
    assert names(axes_of_pairs(pairs, MESH)) == axes


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sent", "received"),
    [
        ("all-gather", 300, 300),
        ("reduce-scatter", 300, 300),
        ("all-reduce", 600, 600),
        ("all-to-all", 300, 300),
        ("ragged-all-to-all", 400, 400),
        ("collective-permute", 400, 400),
        ("collective-broadcast", 400, 400),
        ("send", 400, 0),
        ("recv", 0, 400),
    ],
)
def test_bytes_of_each_kind(kind, sent, received):
    assert wire_bytes(kind, 400, 4) == (sent, received)
    assert wire_bytes(kind, 400, 1) == (0, 0)


# --- programs with known collectives --------------------------------------------------------------


def jax_mesh(order=None):
    devices = np.array(jax.devices()[:8])
    devices = devices if order is None else devices[list(order)]
    return jax.sharding.Mesh(
        devices.reshape(2, 2, 2), ("a", "b", "c"), axis_types=(AxisType.Auto,) * 3
    )


def compiled(fun, mesh, *arguments):
    return read_hlo(jax.jit(fun).lower(*arguments).compile().as_text())


def shard_mapped(body, mesh, in_spec, out_spec, shape=(64, 64)):
    mapped = jax.shard_map(body, mesh=mesh, in_specs=in_spec, out_specs=out_spec, check_vma=False)
    argument = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, in_spec))
    return compiled(mapped, mesh, argument)


def size_of(axes):
    return 2 ** len(axes)


BLOCK = 64 * 64 * 4  # every body below is given a block of 64 x 64 float32
AXES = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c")]


def gather(axes, x):
    return jax.lax.all_gather(x, axes, tiled=True)


def reduce(axes, x):
    return jax.lax.psum(x, axes)


def scatter(axes, x):
    return jax.lax.psum_scatter(x, axes, tiled=True)


def exchange(axes, x):
    return jax.lax.all_to_all(x, axes, 0, 1, tiled=True)


def shift(axes, x):
    count = size_of(axes)
    return jax.lax.ppermute(x, axes, [(i, (i + 1) % count) for i in range(count)])


KNOWN = {
    "all-gather": (gather, lambda n: (n - 1) * BLOCK),
    "all-reduce": (reduce, lambda n: 2 * (n - 1) * BLOCK // n),
    "reduce-scatter": (scatter, lambda n: (n - 1) * BLOCK // n),
    "all-to-all": (exchange, lambda n: (n - 1) * BLOCK // n),
    "collective-permute": (shift, lambda n: BLOCK),
}


@pytest.mark.compiles
@pytest.mark.parametrize("axes", AXES, ids="-".join)
@pytest.mark.parametrize("kind", KNOWN)
def test_shard_map_sends_what_its_collective_says(kind, axes):
    body, sent = KNOWN[kind]
    module = shard_mapped(partial(body, axes), jax_mesh(), P(), P())
    (one,) = collectives(module, [MESH]).collectives
    assert (one.kind, names(one.axes)) == (kind, tuple(f'"{axis}"' for axis in axes))
    assert one.group_size == size_of(axes)
    assert (one.sent, one.received) == (sent(size_of(axes)),) * 2
    assert one.parts[0].source.file == __file__
    assert one.parts[0].phase == "forward"


@pytest.mark.compiles
@pytest.mark.parametrize("order", [(7, 6, 5, 4, 3, 2, 1, 0), (3, 1, 4, 0, 5, 2, 7, 6)])
@pytest.mark.parametrize("axes", [("b",), ("a", "c")], ids="-".join)
@pytest.mark.parametrize("kind", KNOWN)
def test_the_order_of_the_devices_does_not_matter(kind, axes, order):
    body, sent = KNOWN[kind]
    module = shard_mapped(partial(body, axes), jax_mesh(order), P(), P())
    (one,) = collectives(module, [MESH]).collectives
    assert names(one.axes) == tuple(f'"{axis}"' for axis in axes)
    assert one.sent == sent(size_of(axes))


@pytest.mark.compiles
def test_a_scan_counts_as_often_as_it_runs():
    def body(x):
        return jax.lax.scan(lambda x, _: (jnp.sin(jax.lax.psum(x, "a")), None), x, length=7)[0]

    module = shard_mapped(body, jax_mesh(), P(), P())
    found = collectives(module, [MESH])
    (one,) = found.collectives
    assert (one.count, one.unknown_trips) == (7, False)
    assert found.total.sent == 7 * BLOCK


def test_the_loop_of_a_scan_is_counted_without_xla_s_help():
    def body(x):
        return jax.lax.scan(lambda x, _: (jnp.sin(x), None), x, length=7)[0]

    argument = jax.ShapeDtypeStruct((4,), jnp.float32)
    module = read_hlo(jax.jit(body).lower(argument).as_text(dialect="hlo"))
    (loop,) = [
        (computation, instruction)
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
        if instruction.opcode == "while"
    ]
    assert "known_trip_count" not in loop[1].rest
    assert trip_count(module, *loop) == 7


@pytest.mark.compiles
def test_a_while_of_unknown_length_says_so():
    def body(x):
        return jax.lax.while_loop(
            lambda x: x[0, 0] < 100, lambda x: jax.lax.psum(jnp.exp(x), "a"), x
        )

    (one,) = collectives(shard_mapped(body, jax_mesh(), P(), P()), [MESH]).collectives
    assert (one.count, one.unknown_trips) == (1, True)


# --- textbook formulas ----------------------------------------------------------------------------

BATCH, WIDTH, HIDDEN, LAYERS = 16, 32, 64, 3


def train_step(mesh, first, second, batch):
    """A step of plain gradient descent on an MLP, its weights and batch sharded as given."""

    def on(spec):
        return NamedSharding(mesh, spec)

    def loss(params, x):
        for up, down in params:
            hidden = jnp.tanh(x @ up)
            x = jax.lax.with_sharding_constraint(hidden @ down, on(batch))
        return (x**2).sum()

    def step(params, x):
        gradients = jax.grad(loss)(params, x)
        return jax.tree.map(
            lambda p, g, s: jax.lax.with_sharding_constraint(p - 0.1 * g, s),
            params,
            gradients,
            [(on(first), on(second))] * LAYERS,
        )

    def array(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(spec))

    params = [(array((WIDTH, HIDDEN), first), array((HIDDEN, WIDTH), second))] * LAYERS
    module = compiled(step, mesh, params, array((BATCH, WIDTH), batch))
    sizes = Mesh.of(dict(zip(mesh.axis_names, mesh.devices.shape, strict=True)))
    return collectives(module, [sizes])


def line_mesh(name, size=8):
    return jax.make_mesh((size,), (name,), axis_types=(AxisType.Auto,))


@pytest.mark.compiles
def test_a_megatron_mlp_reduces_activations_once_a_pass_and_layer():
    found = train_step(line_mesh("model"), P(None, "model"), P("model", None), P())
    assert set(found.by_axes) == {(AxisRef("model"),)}
    assert set(found.by_kind) == {"all-reduce"}
    # One forward and one backward a layer, but nobody asks for the gradient of the batch.
    activations = BATCH * WIDTH * 4
    assert found.by_kind["all-reduce"].tensors == 2 * LAYERS - 1
    assert found.total.sent == (2 * LAYERS - 1) * 2 * 7 * activations // 8
    assert found.by_phase["forward"].tensors == LAYERS
    assert found.by_phase["backward"].tensors == LAYERS - 1


@pytest.mark.compiles
def test_data_parallelism_reduces_every_gradient_once():
    found = train_step(line_mesh("data"), P(), P(), P("data"))
    weights = 2 * LAYERS * WIDTH * HIDDEN * 4
    assert set(found.by_kind) == {"all-reduce"}
    assert found.total.tensors == 2 * LAYERS
    assert found.total.sent == 2 * 7 * weights // 8
    assert found.by_phase["backward"].sent == found.total.sent


@pytest.mark.compiles
def test_fsdp_gathers_weights_and_reduces_gradients():
    found = train_step(line_mesh("fsdp"), P("fsdp"), P(None, "fsdp"), P("fsdp"))
    weights = 2 * LAYERS * WIDTH * HIDDEN * 4
    assert set(found.by_axes) == {(AxisRef("fsdp"),)}
    # Each weight is gathered once: XLA keeps it for the backward pass. CPUs have no
    # reduce-scatter of the partitioner: the gradients take whole all-reduces.
    assert found.by_kind["all-gather"].sent == 7 * weights // 8
    scattered = found.by_kind.get("reduce-scatter")
    reduced = found.by_kind.get("all-reduce")
    total = (0 if scattered is None else 2 * scattered.sent) + (
        0 if reduced is None else reduced.sent
    )
    assert total == 2 * 7 * weights // 8


# --- hand-written programs ------------------------------------------------------------------------


def of(lines, before="", header=", num_partitions=8", meshes=(MESH,)):
    body = "\n".join(f"  {line}" for line in lines.strip().splitlines())
    return collectives(read_hlo(f"HloModule m{header}\n{before}\nENTRY e {{\n{body}\n}}\n"), meshes)


def only(*args, **kwargs):
    (one,) = of(*args, **kwargs).collectives
    return one


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
    one = only(f"%p = f32[4]{{0}} parameter(0)\n%s = {start}\nROOT %d = {done}")
    assert (one.kind, one.count, one.asynchronous, one.sent) == (kind, 1, True, sent)
    assert names(one.axes) == ('"c"',)


def test_a_wrapped_asynchronous_collective_is_one():
    wrapped = f"""
w {{
  %q = f32[4]{{0}} parameter(0)
  ROOT %r = f32[2]{{0}} reduce-scatter(%q), {GROUPS}, dimensions={{0}}
}}
"""
    one = only(
        """
%p = f32[4]{0} parameter(0)
%s = ((f32[4]{0}), f32[2]{0}, u32[]) async-start(%p), calls=%w
%u = ((f32[4]{0}), f32[2]{0}, u32[]) async-update(%s), calls=%w
ROOT %d = f32[2]{0} async-done(%u), calls=%w
""",
        before=wrapped,
    )
    assert (one.kind, one.count, one.asynchronous, one.sent) == ("reduce-scatter", 1, True, 8)


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
    one = only(
        """
%p = f32[4]{0} parameter(0)
%s = f32[8]{0} fusion(%p), kind=kCustom, calls=%f0
%c = f32[8]{0} fusion(%p), kind=kOutput, calls=%f1
ROOT %d = f32[8]{0} fusion(%p), kind=kCustom, calls=%f2
""",
        before=fused,
    )
    assert (one.count, one.asynchronous, one.sent) == (1, True, 16)


def test_the_same_channel_in_a_function_that_is_called_twice_is_two():
    called = f"""
f {{
  %q = f32[4]{{0}} parameter(0)
  ROOT %r = f32[4]{{0}} all-reduce(%q), {GROUPS}, to_apply=%f
}}
"""
    one = only(
        "%p = f32[4]{0} parameter(0)\n%a = f32[4]{0} call(%p), to_apply=%f\nROOT %b = f32[4]{0} call(%a), to_apply=%f",
        before=called,
    )
    assert (one.count, one.sent) == (2, 32)


def test_a_reduce_scatter_fusion_is_one_and_takes_its_caller_s_line():
    fused = f"""
all-reduce-scatter {{
  %q = f32[8]{{0}} parameter(0)
  %r = f32[8]{{0}} all-reduce(%q), {GROUPS}
  %i = s32[] constant(0)
  ROOT %s = f32[4]{{0}} dynamic-slice(%r, %i), dynamic_slice_sizes={{4}}
}}
"""
    one = only(
        '%p = f32[8]{0} parameter(0)\nROOT %f = f32[4]{0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter, metadata={op_name="jit(f)/transpose(jvp(g))/dot_general" source_file="/a.py" source_line=3}',
        before=fused,
    )
    assert (one.kind, one.sent) == ("reduce-scatter", 16)
    (part,) = one.parts
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
    one = only(FUSED_WITH_TWO, before=joined_reduce_scatter("%t"))
    assert (one.kind, one.sent) == ("reduce-scatter", 16 + 8)
    assert [(part.scope, str(part.source)) for part in one.parts] == [
        ("transpose(jvp(a))", "/a.py:3"),
        ("jvp(b)", "/a.py:4"),
    ]


def test_a_fusion_that_keeps_the_whole_of_one_is_an_all_reduce():
    one = only(FUSED_WITH_TWO, before=joined_reduce_scatter("%y"))
    assert (one.kind, one.sent) == ("all-reduce", 2 * (16 + 8))


def test_a_gather_of_no_op_has_the_line_of_what_gives_it_another_form():
    one = only(
        f"""
%p = f32[4]{{0}} parameter(0), metadata={{op_name="params[0]"}}
%c = f32[4]{{0}} copy(%p), metadata={{op_name="params[0]"}}
%g = f32[8]{{0}} all-gather(%c), {GROUPS}, dimensions={{0}}
%d = f32[8]{{0}} copy(%g), metadata={{op_name="jit(f)/jvp(a)/convert_element_type" source_file="/a.py" source_line=7}}
ROOT %n = f32[8]{{0}} negate(%d)
"""
    )
    (part,) = one.parts
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
    (one,) = found.collectives
    assert [(part.scope, part.phase, part.sent) for part in one.parts] == [
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
    one = only(
        f"""
%p = f32[4]{{0}} parameter(0)
%m = f32[4]{{0}} multiply(%p, %p), metadata={{op_name="jit(f)/optimizer/mul" source_file="/a.py" source_line=9}}
%c = f32[4]{{0}} copy(%m)
ROOT %r = f32[8]{{0}} all-gather(%c), {GROUPS}, dimensions={{0}}
"""
    )
    (part,) = one.parts
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
    one = only(
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
    assert [(str(part.shape), part.scope, part.sent) for part in one.parts] == [
        ("f32[2,2]", "one", 16),
        ("f32[2]", "two", 8),
    ]


@pytest.mark.parametrize(("is_sync", "asynchronous"), [("true", False), ("false", True)])
def test_a_start_may_say_that_it_is_synchronous(is_sync, asynchronous):
    config = f'backend_config={{"collective_backend_config":{{"is_sync":{is_sync}}}}}'
    one = only(
        f"%p = f32[4]{{0}} parameter(0)\n%s = f32[4]{{0}} all-reduce-start(%p), {GROUPS}, {config}"
    )
    assert one.asynchronous is asynchronous


def test_pieces_of_an_all_to_all_are_one_tensor():
    one = only(
        f"%p = f32[4]{{0}} parameter(0)\n%q = f32[4]{{0}} parameter(1)\nROOT %r = (f32[4]{{0}}, f32[4]{{0}}) all-to-all(%p, %q), {GROUPS}"
    )
    assert (len(one.parts), one.bytes, one.sent) == (1, 32, 16)


def test_without_global_ids_a_channel_takes_all_partitions_of_its_replicas():
    line = "%p = f32[4]{0} parameter(0)\nROOT %r = f32[4]{0} all-reduce(%p), channel_id=1, replica_groups={{0}}"
    assert names(only(line).axes) == ('"a"', '"b"', '"c"')
    line = "%p = f32[4]{0} parameter(0)\nROOT %r = f32[4]{0} all-reduce(%p), replica_groups={{0,1}}"
    one = only(line, header=", replica_count=2, num_partitions=4")
    assert (names(one.axes), one.group_size, one.sent) == (('"a"',), 2, 16)


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
    assert [(one.kind, one.sent, one.received, one.axes) for one in found.collectives] == [
        ("send", 16, 0, None),
        ("recv", 0, 16, None),
    ]


def test_groups_that_no_axes_have_are_left_without():
    one = only(
        "%p = f32[4]{0} parameter(0)\nROOT %r = f32[4]{0} all-reduce(%p), channel_id=1, replica_groups={{0,3},{1,2},{4,7},{5,6}}, use_global_device_ids=true"
    )
    assert (one.axes, one.group_size, one.sent) == (None, 2, 16)


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
    assert {one.line for one in found.not_understood} == {5, 6}


# --- scopes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_name", "scope", "primitive"),
    [
        ("jit(step)/jvp(layer0)/mlp/dot_general", "jvp(layer0)/mlp", "dot_general"),
        ("jit(step)/dot_general", "", "dot_general"),
        ("pjit(step)/a/b", "a", "b"),
        ("jit(step)/jit(inner)/add", "jit(inner)", "add"),
        ("jit(f)/jvp(a)/(x/mul:y/add)", "jvp(a)", ""),
        ("reduce", "", "reduce"),
        ("", "", ""),
    ],
)
def test_scopes(op_name, scope, primitive):
    assert scope_of(op_name) == (scope, primitive)


def test_phases():
    assert phase_of("jit(f)/transpose(jvp(a))/mul", True) == "backward"
    assert phase_of("jit(f)/jvp(a)/mul", True) == "forward"
    assert phase_of("jit(f)/optimizer/mul", True) == "other"
    assert phase_of("jit(f)/mul", False) == "forward"
    assert phase_of("", False) == "other"


# --- rematerializations ---------------------------------------------------------------------------

WARNING = (
    "W1120 11:04:25.392020   28289 spmd_partitioner.cc:656] [SPMD] Involuntary full rematerialization."
    " The compiler cannot go from sharding {devices=[4,1,2]<=[2,4]T(1,0)} to {devices=[1,8,1]<=[8]}"
    " efficiently for HLO operation %c.0 = f32[2,16,16]{2,1,0} copy(%sin.0),"
    " sharding={devices=[4,1,2]<=[2,4]T(1,0)}, "
    'metadata={op_name="jit(step)/layer/sharding_constraint" stack_frame_id=1}. As the last resort, ...'
)


def test_a_rematerialization_is_tied_to_its_op_and_line():
    module = read_hlo("""HloModule m

FileNames
1 "/a.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=8 end_line=8 column=12 end_column=20}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e {
  ROOT %p = f32[] parameter(0)
}
""")
    (one,) = rematerializations([WARNING, WARNING], module)
    assert (one.operation, one.opcode, str(one.shape)) == ("c.0", "copy", "f32[2,16,16]")
    assert (one.before, one.after) == ("{devices=[4,1,2]<=[2,4]T(1,0)}", "{devices=[1,8,1]<=[8]}")
    assert (one.scope, one.primitive) == ("layer", "sharding_constraint")
    assert str(one.source) == "/a.py:8"
    (unknown,) = rematerializations(
        ["[SPMD] Involuntary full rematerialization of something."], module
    )
    assert (unknown.operation, unknown.source, unknown.is_cut) == ("", None, True)


def test_a_rematerialization_that_is_cut_short_says_so():
    module = read_hlo("HloModule m\n\nENTRY e {\n  ROOT %p = f32[] parameter(0)\n}\n")
    end = WARNING.index("As the last resort")
    for length in range(len(WARNING)):
        (one,) = rematerializations([WARNING[:length]], module)
        assert one.is_cut == (length < end), WARNING[:length]
