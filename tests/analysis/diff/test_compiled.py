"""Two partitioned programs: exactly what differs is named, and where it begins."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.diff.causes import _Side
from sdyscope.analysis.diff.collectives import collective_differences
from sdyscope.analysis.diff.compiled import CompiledSide, compiled_diff
from sdyscope.analysis.diff.entries import compared_entries
from sdyscope.analysis.naming.scopes import phase_of
from sdyscope.facts.program import Program
from sdyscope.graph import read_text
from sdyscope.hlo import Shape
from sdyscope.inspection import Inspection
from sdyscope.syntax.replica_groups import parse_replica_groups
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.source import SourceLocation
from sdyscope.words.differences import compiled_verdict, entry_text
from tests.programs import AUTO, on

MESH = Mesh.of({"data": 4, "model": 2})
LINE = SourceLocation("/home/one/model.py", 10)


def part(scope, size=64, *, primitive="dot_general", source=LINE):
    phase = phase_of(f"jit(f)/{scope}/{primitive}", differentiated=True)
    return Part(Shape("f32", (size // 4,)), size, size, size, scope, primitive, phase, source)


def collective(*parts, kind="all-gather", axes=("model",), count=1):
    return Collective(
        name="c",
        kind=kind,
        axes=tuple(map(AxisRef, axes)),
        group_size=2,
        count=count,
        unknown_trips=False,
        conditional=False,
        asynchronous=False,
        channel_id=None,
        groups="",
        parts=parts,
        line=1,
    )


def program(*every, mesh=MESH):
    return Collectives(every, 8, mesh, differentiated=True)


def compared(a, b):
    return compiled_diff("program", a, b, "programs")


def differences(a, b):
    return between(program(*a), program(*b))


def between(a, b):
    differing, moved = collective_differences(a, b)
    return tuple(difference.fact(None) for difference in differing), moved


# --- what is matched ------------------------------------------------------------------------------


def test_order_names_and_joining_make_no_difference():
    one, two = part("jvp(layer0)/mlp"), part("jvp(layer1)/mlp", 128)
    a = [collective(one), replace(collective(two), name="d", line=9)]
    b = [replace(collective(two, one), name="e", asynchronous=True)]
    assert differences(a, b) == ((), 0)
    whole = compared(CompiledSide("a", program(*a)), CompiledSide("b", program(*b)))
    # Joined in one they are as many tensors and bytes, and one collective less: that is told.
    assert not whole.same
    assert not whole.collectives


def test_another_line_is_no_difference_and_another_axis_is():
    moved = part("jvp(layer0)/mlp", source=SourceLocation("model.py", 99))
    assert differences([collective(part("jvp(layer0)/mlp"))], [collective(moved)]) == ((), 0)
    found, _ = differences(
        [collective(part("jvp(layer0)/mlp"))],
        [collective(part("jvp(layer0)/mlp"), axes=("data",))],
    )
    assert [(one.change, one.key.axes[0].name) for one in found] == [
        ("only in a", "model"),
        ("only in b", "data"),
    ]


def test_a_permutation_that_sends_elsewhere_is_a_difference():
    ahead, back, reordered = (
        replace(collective(part("f"), kind="collective-permute"), groups=groups)
        for groups in ("{{0,1},{1,0}}", "{{0,0},{1,1}}", "{{1,0},{0,1}}")
    )
    assert differences([ahead], [reordered]) == ((), 0)
    ((difference,), _) = differences([ahead], [back])
    assert (difference.otherwise, difference.sent) == ("devices", 0)
    # What groups are called makes none: the axes say who sends to whom.
    one, two = (replace(collective(part("f")), groups=groups) for groups in ("{{0,1}}", "[1,2]"))
    assert differences([one], [two]) == ((), 0)


def in_groups(text, kind="all-gather", size=2):
    gathered = collective(part("f"), kind=kind)
    return replace(gathered, axes=None, group_size=size, devices=parse_replica_groups(text))


def test_groups_that_no_axes_have_are_compared_device_by_device():
    for other in ("{{5,3},{0,1},{2,7},{4,6}}", "{{2,7},{4,6},{0,1},{5,3}}"):
        assert differences([in_groups("{{0,1},{5,3},{2,7},{4,6}}")], [in_groups(other)]) == ((), 0)
    for other in ("{{0,2},{5,3},{1,7},{4,6}}", "{{1,0},{5,3},{2,7},{4,6}}"):
        ((difference,), _) = differences(
            [in_groups("{{0,1},{5,3},{2,7},{4,6}}")], [in_groups(other)]
        )
        assert (difference.otherwise, difference.sent) == ("devices", 0)
    whole = [in_groups(text, "all-reduce", 8) for text in ("{}", "{{1,0,2,3,4,5,6,7}}")]
    assert differences(whole[:1], whole[1:]) == ((), 0)


def test_without_a_mesh_groups_say_what_the_axes_say():
    one, two = (
        replace(collective(part("f")), devices=parse_replica_groups(text))
        for text in ("[4,2]<=[8]", "{{0,4},{1,5},{2,6},{3,7}}")
    )
    ((difference,), _) = between(program(one), program(two, mesh=None))
    assert (difference.otherwise, difference.key.axes) == ("devices", None)
    same = replace(one, devices=parse_replica_groups("{{0,1},{2,3},{4,5},{6,7}}"))
    assert between(program(one), program(same, mesh=None)) == ((), 0)


def test_blocks_in_another_order_are_a_difference_of_the_same_axes():
    def over_both(text, kind="all-gather"):
        both = collective(part("f"), kind=kind, axes=("data", "model"))
        return [replace(both, group_size=8, devices=parse_replica_groups(text))]

    in_order = over_both("[1,8]<=[8]")
    for text in ("{}", "{{0,1,2,3,4,5,6,7}}"):
        assert differences(in_order, over_both(text)) == ((), 0)
    turned = over_both("[1,8]<=[4,2]T(1,0)")
    assert differences(turned, over_both("{{0,2,4,6,1,3,5,7}}")) == ((), 0)
    for other in (turned, over_both("{{0,2,1,3,4,5,6,7}}")):
        ((difference,), _) = differences(in_order, other)
        assert (difference.otherwise, difference.sent) == ("devices", 0)
    sums = (over_both(text, "all-reduce") for text in ("{}", "[1,8]<=[4,2]T(1,0)"))
    assert differences(*sums) == ((), 0)


def test_other_types_of_as_many_bytes_are_a_difference():
    wide, narrow = (
        collective(replace(part("f"), shape=Shape(dtype, (count,))))
        for dtype, count in (("f32", 16), ("bf16", 32))
    )
    ((difference,), _) = differences([wide], [narrow])
    assert (difference.otherwise, difference.sent) == ("types", 0)


def test_layers_are_one_difference_and_the_one_that_differs_is_named():
    a = [collective(part(f"jvp(layer{n})/mlp"), kind="all-reduce") for n in range(80)]
    found, _ = differences(a, [])
    (one,) = found
    assert one.key.scope == "jvp(layer*)/mlp"
    assert one.scopes == tuple(f"jvp(layer{n})/mlp" for n in range(80))
    assert (one.change, one.a.tensors, one.b.tensors, one.sent) == ("only in a", 80, 0, -80 * 64)
    (one,), _ = differences(a, a[:7] + a[8:])
    assert one.key.scope == "jvp(layer7)/mlp"
    assert one.scopes == ("jvp(layer7)/mlp",)


def test_what_grows_in_one_layer_and_shrinks_in_another_is_not_netted():
    a = [collective(part("layer0"), part("layer0")), collective(part("layer1"))]
    b = [collective(part("layer0")), collective(part("layer1"), part("layer1"))]
    found, _ = differences(a, b)
    assert [(one.key.scope, one.change, one.sent) for one in found] == [
        ("layer0", "changed", -64),
        ("layer1", "changed", 64),
    ]


def test_a_loop_written_out_is_moved():
    a = [collective(part(f"layer{n}/mlp")) for n in range(6)]
    b = [collective(part("while/body/mlp", source=replace(LINE, file="other/model.py")), count=6)]
    assert differences(a, b) == ((), 6)
    found, moved = differences(a, [replace(b[0], count=5)])
    assert moved == 0
    assert {one.change for one in found} == {"only in a", "only in b"}
    sides = [CompiledSide("unrolled", program(*a)), CompiledSide("scan", program(*b))]
    assert compared(*sides).same


def test_what_is_moved_may_be_for_several_lines():
    other = replace(LINE, line=11)
    a = [
        collective(part(scope, source=line))
        for scope in ("layer0/mlp", "layer1/mlp")
        for line in (LINE, other)
    ]
    b = [collective(part("while/body/mlp", source=line), count=2) for line in (other, LINE)]
    assert differences(a, b) == ((), 4)


def test_without_a_mesh_groups_are_told_by_their_size():
    a = program(collective(part("layer0")))
    b = program(replace(collective(part("layer0")), axes=None), mesh=None)
    assert between(a, b) == ((), 0)
    bigger = program(replace(collective(part("layer0")), axes=None, group_size=4), mesh=None)
    assert len(between(a, bigger)[0]) == 2


@st.composite
def programs(draw):
    made = []
    for _ in range(draw(st.integers(0, 8))):
        scope = draw(st.sampled_from(["", "layer0/mlp", "layer1/mlp", "transpose(jvp(layer2))"]))
        source = draw(st.sampled_from([None, LINE, SourceLocation("model.py", 3)]))
        parts = [
            part(scope, draw(st.sampled_from([4, 64])), source=source)
            for _ in range(draw(st.integers(1, 3)))
        ]
        kind = draw(st.sampled_from(["all-gather", "all-reduce"]))
        axes = draw(st.sampled_from([("data",), ("model",), ("data", "model")]))
        made.append(collective(*parts, kind=kind, axes=axes, count=draw(st.integers(1, 3))))
    return made


@settings(max_examples=60)
@given(programs(), programs(), st.randoms(use_true_random=False))
def test_differences_account_for_every_byte(a, b, random):
    found, moved = differences(a, b)
    ours, theirs = program(*a).total, program(*b).total
    assert sum(one.sent for one in found) == theirs.sent - ours.sent
    change = sum(one.b.tensors - one.a.tensors for one in found)
    assert change == theirs.tensors - ours.tensors
    assert 0 <= moved <= min(ours.tensors, theirs.tensors)
    shuffled = list(a)
    random.shuffle(shuffled)
    assert differences(a, shuffled) == ((), 0)
    # The other way round is the same the other way round.
    back, again = differences(b, a)
    assert again == moved
    assert sorted(-one.sent for one in back) == sorted(one.sent for one in found)


# --- against the compiler -------------------------------------------------------------------------


def layers(*turned, count=3):
    """Layers of a matmul whose results are left sharded over `data`, but for the turned ones."""

    def step(x, w):
        for layer in range(count):
            with jax.named_scope(f"layer{layer}"):
                x = jnp.tanh(x @ w)
                x = jax.lax.with_sharding_constraint(x, on("data", None))
                if layer in turned:
                    x = jax.lax.with_sharding_constraint(x, on(None, "data"))
        return jax.lax.with_sharding_constraint(x, on("data", None))

    x = jax.ShapeDtypeStruct((16, 64), jnp.float32, sharding=on("data", None))
    w = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=on(None, None))
    return Inspection(Program("layers", jax.jit(step), (x, w)))


@pytest.mark.compiles
def test_a_constraint_in_one_layer_is_exactly_the_extra_collectives():
    diff = layers(1).compiled_diff(layers())
    assert not diff.same
    assert diff.b.total.count == 0
    assert {collective.change for collective in diff.collectives} == {"only in a"}
    assert sum(collective.a.tensors for collective in diff.collectives) == diff.a.total.tensors
    # It is turned in its layer, and turned back where the next one needs it.
    scopes = {collective.key.scope for collective in diff.collectives}
    assert "layer1" in scopes
    assert scopes <= {"layer1", "layer2"}
    (cause,) = {collective.cause for collective in diff.collectives}
    places = diff.causes[cause].places
    assert [(place.kind, place.change, place.tensor) for place in places] == [
        ("constraint", "only in a", "jit(step)/layer1")
    ]
    total = diff.memory[-1]
    assert (total.kind, total.differs) == ("total", True)


@pytest.mark.compiles
def test_a_constraint_in_every_layer_is_one_row():
    diff = layers(0, 1, 2, 3, 4, count=5).compiled_diff(layers(count=5))
    (cause,) = {collective.cause for collective in diff.collectives}
    assert [place.tensor for place in diff.causes[cause].places] == [
        f"jit(step)/layer{layer}" for layer in range(5)
    ]
    # The first and the last layer may be turned otherwise; those between them are alike.
    assert [collective for collective in diff.collectives if len(collective.scopes) >= 3]
    assert all(
        "*" in collective.key.scope for collective in diff.collectives if len(collective.scopes) > 1
    )


@pytest.mark.compiles
def test_the_same_program_twice_is_the_same():
    diff = layers(1).compiled_diff(layers(1))
    assert diff.same
    assert diff.memory
    assert diff.moved == 0


@pytest.mark.compiles
def test_arguments_and_results_that_are_stored_otherwise_are_a_difference():
    rows = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=on("data"))

    def added(donated):
        jitted = jax.jit(lambda a, w: a + w, donate_argnums=donated)
        return Inspection(Program("step", jitted, (rows, rows)), ["shardy"])

    first, second = added(0), added(1)
    diff = first.compiled_diff(second)
    assert not diff.same
    assert [(entry.name, entry.change) for entry in diff.entries.different] == [
        ("a", "buffer"),
        ("w", "buffer"),
        ("result", "buffer"),
    ]
    said = [entry_text(entry.b, None, entry.change) for entry in diff.entries.different]
    assert said == ["own buffer", "shares the buffer of result", "shares the buffer of w"]
    verdict = compiled_verdict(diff)
    assert verdict.startswith("3 arguments and results are stored differently in step")

    halved = jax.ShapeDtypeStruct((16, 8), jnp.bfloat16, sharding=on("data"))
    jitted = jax.jit(lambda a, w: a + w, donate_argnums=0)
    verdict = compiled_verdict(
        first.compiled_diff(Inspection(Program("step", jitted, (halved, halved)), ["shardy"]))
    )
    assert "3 arguments and results have another dtype or shape" in verdict
    columns = jax.ShapeDtypeStruct((16, 8), jnp.bfloat16, sharding=on(None, "data"))
    moved = first.compiled_diff(Inspection(Program("step", jitted, (columns, columns)), ["shardy"]))
    assert "3 arguments and results are sharded differently" in compiled_verdict(moved)

    memory = first.memory()
    argument, *others = memory.tensors
    for change, stored in (
        ("layout", replace(argument.stored, layout="0,1")),
        ("memory", replace(argument.stored, memory_space=5)),
    ):
        other = replace(memory, tensors=(replace(argument, stored=stored), *others))
        (entry,) = compared_entries(memory, other, by_name=True).different
        assert (entry.name, entry.change) == ("a", change)


@pytest.mark.compiles
def test_a_scan_and_the_loop_written_out_come_to_the_same():
    def layer(x, w):
        with jax.named_scope("layer"):
            return jax.lax.psum(jnp.tanh(x @ w), "model"), None

    def looped(x, ws):
        return jax.lax.scan(layer, x, ws)[0]

    def written_out(x, ws):
        for w in ws:
            x, _ = layer(x, w)
        return x

    def inspection(body):
        mapped = jax.shard_map(
            body,
            mesh=AUTO,
            in_specs=(P("data", None), P(None, "model", None)),
            out_specs=P("data", None),
            check_vma=False,
        )
        x = jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=on("data", None))
        ws = jax.ShapeDtypeStruct((5, 64, 32), jnp.float32, sharding=on(None, "model", None))
        return Inspection(Program("step", jax.jit(mapped), (x, ws)), ["shardy"])

    diff = inspection(looped).compiled_diff(inspection(written_out))
    assert diff.a.total == diff.b.total
    assert diff.a.total.count == 5
    assert diff.collectives == ()
    assert diff.moved == 5


@pytest.mark.compiles
def test_two_partitioners_differ_because_propagation_does():
    def step(x, w):
        with jax.named_scope("take"):
            rows = jnp.take(w, x, axis=0)
        return (rows * 2).sum(axis=1)

    x = jax.ShapeDtypeStruct((16, 8), jnp.int32, sharding=on("data", None))
    w = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=on("model", "data"))
    diff = Inspection(Program("take", jax.jit(step), (x, w))).compiled_diff()
    assert (diff.a.label, diff.b.label) == ("shardy", "gspmd")
    assert not diff.same
    kinds = {(collective.change, collective.key.kind) for collective in diff.collectives}
    assert kinds == {("only in a", "all-gather"), ("only in b", "all-to-all")}
    for collective in diff.collectives:
        assert collective.cause is not None
        (place,) = diff.causes[collective.cause].places
        if collective.key.kind == "all-to-all":
            assert collective.key.primitive == "gather"
            assert place.begins.value.kind == "stablehlo.gather"
    sent = diff.b.total.sent - diff.a.total.sent
    assert sent == sum(collective.sent for collective in diff.collectives)
    assert sent == sum(cause.sent for cause in diff.causes)


def test_what_is_gathered_for_a_result_alone_follows_from_that_result():
    """The result is no user of the op that computes it: what returns it is."""
    graph = read_text("""
module @m {
  func.func public @main(%arg0: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = stablehlo.tanh %arg0 : tensor<8xf32>
    %1 = stablehlo.negate %0 : tensor<8xf32>
    return %1, %0 : tensor<8xf32>, tensor<8xf32>
  }
}""")
    tanh, negate = (op.id for op in graph.operations() if op.kind.startswith("stablehlo"))
    side, results = _Side(graph), [result.id for result in graph.results()]
    side.begun[results[1]] = Counter({0: 1})
    gather = part("", primitive="")
    for node, expected in ((tanh, {0: 1}), (negate, {})):
        assert side.hits(replace(gather, tags=((node,),))) == expected
