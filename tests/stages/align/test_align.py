"""Values found in a partitioner's module, on small modules written by hand."""

from sdyscope.facts.remarks import Remark
from sdyscope.graph import build
from sdyscope.stages import compat
from sdyscope.stages.align.align import align
from sdyscope.stages.align.values import aligned_values

CONTEXT = compat.new_context()


def graph_of(text):
    return build(compat.ir.Module.parse(text, CONTEXT))


def only(graph, kind, result=0, function=None):
    (op,) = (
        op for op in graph.ops if op.kind == kind and (function is None or op.function == function)
    )
    return op.id, result


def tagged(graph, text):
    """The partitioner's module: `sid = KIND` stands for the tag of the lowered module's one op."""
    for op in graph.operations():
        text = text.replace(f"sid = {op.kind} ", f'sid = "{op.id}"')
    return graph_of(text)


def aligned(lowered, text):
    graph = graph_of(lowered)
    after = tagged(graph, text)
    alignment = align(graph, after)
    return graph, after, alignment, aligned_values(alignment, graph, after, 8)


LOOP = """
func.func public @main(%x: tensor<8xf32>, %w: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:3 = stablehlo.while(%c = %w, %i = %zero, %y = %x)
      : tensor<8xf32>, tensor<i32>, tensor<8xf32>
    cond {
      %p = stablehlo.compare LT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.subtract %i, %i : tensor<i32>
      %z = stablehlo.add %y, %c : tensor<8xf32>
      stablehlo.return %c, %j, %z : tensor<8xf32>, tensor<i32>, tensor<8xf32>
    }
  return %0#0, %0#2 : tensor<8xf32>, tensor<8xf32>
}
"""

LOOP_AFTER = """
module attributes {mhlo.num_partitions = 8 : i32} {
sdy.mesh @mesh = <["a"=8]>
func.func public @main(%x: tensor<8xf32>, %w: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %zero = sdy.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%y = %x, %i = %zero) : tensor<8xf32>, tensor<i32>
    attributes {mhlo.frontend_attributes = {sid = stablehlo.while },
      sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"a"}]>, <@mesh, []>]>}
    cond {
      %p = stablehlo.compare LT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %z = stablehlo.add %w, %y {mhlo.frontend_attributes = {sid = stablehlo.add }} : tensor<8xf32>
      %j = stablehlo.subtract %i, %i {mhlo.frontend_attributes = {sid = stablehlo.subtract }}
        : tensor<i32>
      stablehlo.return %z, %j : tensor<8xf32>, tensor<i32>
    }
  return %w, %0#0 : tensor<8xf32>, tensor<8xf32>
}
}
"""


def test_a_loop_that_lost_what_it_never_changes_and_is_in_another_order():
    graph, after, alignment, (values, counts, notes) = aligned(LOOP, LOOP_AFTER)
    loop, there = only(graph, "stablehlo.while")[0], only(after, "stablehlo.while")[0]
    x, w = (argument.node for argument in after.main.arguments)
    assert [alignment.counterparts[loop, k] for k in range(3)] == [
        [(w, 0)],
        [(there, 1)],
        [(there, 0)],
    ]
    arguments = [op for op in graph.children(loop, 1) if op.is_argument]
    theirs = [op for op in after.children(there, 1) if op.is_argument]
    assert [alignment.counterparts[argument.id, 0] for argument in arguments] == [
        [(w, 0)],
        [(theirs[1].id, 0)],
        [(theirs[0].id, 0)],
    ]
    # The arguments of a loop's body are sharded as its results are.
    assert str(values[arguments[2].id, 0].sharding) == '<@mesh, [{"a"}]>'
    assert values[loop, 0].fate == "merged"
    assert graph.main.arguments[1].node in [node for node, _ in values[loop, 0].merged_with]
    assert values[only(graph, "stablehlo.constant")].fate == "kept"  # by the loop's operand
    assert counts["folded"] == 0
    assert notes == ()
    assert (x, 0) not in alignment.counterparts[loop, 0]


TWICE = """
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = call @f(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = call @f(%0) : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
func.func private @f(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.tanh %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func private @never(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.sine %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""

TWICE_AFTER = """
module attributes {mhlo.num_partitions = 8 : i32} {
sdy.mesh @mesh = <["a"=8]>
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.tanh %x {mhlo.frontend_attributes = {sid = stablehlo.tanh },
    sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"a"}]>]>} : tensor<8xf32>
  %1 = stablehlo.tanh %0 {mhlo.frontend_attributes = {sid = stablehlo.tanh },
    sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}]>]>} : tensor<8xf32>
  return %1 : tensor<8xf32>
}
}
"""


def test_each_call_of_a_function_has_values_of_its_own():
    graph, after, alignment, (values, counts, notes) = aligned(TWICE, TWICE_AFTER)
    first, second = [op.id for op in after.ops if op.kind == "stablehlo.tanh"]
    calls = [op.id for op in graph.ops if op.kind == "func.call"]
    assert [alignment.counterparts[call, 0] for call in calls] == [[(first, 0)], [(second, 0)]]
    tanh = only(graph, "stablehlo.tanh")
    assert alignment.counterparts[tanh] == [(first, 0), (second, 0)]
    assert values[tanh].node == first
    assert Remark("several calls", count=2) in notes
    assert Remark("never called", count=2) in notes
    assert counts["folded"] == 2


REDUCE = """
func.func public @main(%x: tensor<8x4xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) across dimensions = [1]
    : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
    reducer(%a: tensor<f32>, %b: tensor<f32>) {
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }
  %1 = stablehlo.negate %0 : tensor<8xf32>
  return %1 : tensor<8xf32>
}
"""

REDUCE_AFTER = """
func.func public @main(%x: tensor<8x4xf32>) -> tensor<8xf32> {
  %zero = sdy.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
    {mhlo.frontend_attributes = {sid = stablehlo.reduce }}
    : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = stablehlo.reshape %0 : (tensor<8xf32>) -> tensor<1x8xf32>
  %2 = stablehlo.negate %1 {mhlo.frontend_attributes = {sid = stablehlo.negate }}
    : tensor<1x8xf32>
  %3 = stablehlo.reshape %2 : (tensor<1x8xf32>) -> tensor<8xf32>
  return %3 : tensor<8xf32>
}
"""


RESHAPES = """
func.func public @main(%x: tensor<1x64xf32>) -> tensor<1x1x64xf32> {
  %0 = stablehlo.reshape %x : (tensor<1x64xf32>) -> tensor<64xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
  return %1 : tensor<1x1x64xf32>
}
"""


def test_an_op_that_went_into_the_next_one_has_no_other_types():
    graph = graph_of(RESHAPES)
    tags = ";".join(
        f"sid{only(graph, f'stablehlo.{kind}')[0]}" for kind in ("broadcast_in_dim", "reshape")
    )
    after = graph_of(f"""
func.func public @main(%x: tensor<1x64xf32>) -> tensor<1x1x64xf32> {{
  %0 = stablehlo.reshape %x : (tensor<1x64xf32>) -> tensor<1x1x64xf32> loc("{tags}")
  return %0 : tensor<1x1x64xf32>
}}
""")
    alignment = align(graph, after)
    assert alignment.counterparts[only(graph, "stablehlo.reshape")] == [None]
    last = only(after, "stablehlo.reshape")
    assert alignment.counterparts[only(graph, "stablehlo.broadcast_in_dim")] == [last]
    assert not alignment.retyped


def test_an_iota_that_went_into_its_broadcast_has_no_other_types():
    graph = graph_of("""
func.func public @main() -> tensor<2x16x8xi32> {
  %0 = stablehlo.iota dim = 1 : tensor<1x16x8xi32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<1x16x8xi32>) -> tensor<2x16x8xi32>
  return %1 : tensor<2x16x8xi32>
}
""")
    iota, broadcast = (only(graph, f"stablehlo.{kind}") for kind in ("iota", "broadcast_in_dim"))
    after = graph_of(f"""
func.func public @main() -> tensor<2x16x8xi32> {{
  %0 = stablehlo.iota dim = 0 : tensor<16xi32> loc("sid{iota[0]}")
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<16xi32>) -> tensor<2x16x8xi32>
    loc("sid{broadcast[0]}")
  return %1 : tensor<2x16x8xi32>
}}
""")
    alignment = align(graph, after)
    assert alignment.counterparts[iota] == [None]
    assert alignment.counterparts[broadcast] == [only(after, "stablehlo.broadcast_in_dim")]
    assert not alignment.retyped


def test_a_sort_without_what_nobody_uses_is_the_same_sort():
    """As of jnp.quantile's, which is sorted with its places for the backward pass."""
    body = """({{
  ^bb0({arguments}):
    %l = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }})"""
    both = body.format(
        arguments="%p: tensor<i32>, %q: tensor<i32>, %a: tensor<f32>, %b: tensor<f32>"
    )
    graph = graph_of(f"""
func.func public @main(%x: tensor<8xf32>, %y: tensor<8xi32>) -> tensor<8xf32> {{
  %0:2 = "stablehlo.sort"(%y, %x) {both}
    : (tensor<8xi32>, tensor<8xf32>) -> (tensor<8xi32>, tensor<8xf32>)
  %1 = stablehlo.negate %0#1 : tensor<8xf32>
  return %1 : tensor<8xf32>
}}
""")
    sort, negate = (only(graph, f"stablehlo.{kind}") for kind in ("sort", "negate"))
    after = graph_of(f"""
func.func public @main(%x: tensor<8xf32>, %y: tensor<8xi32>) -> tensor<8xf32> {{
  %0 = "stablehlo.sort"(%x) {body.format(arguments="%a: tensor<f32>, %b: tensor<f32>")}
    : (tensor<8xf32>) -> tensor<8xf32> loc("sid{sort[0]}")
  %1 = stablehlo.negate %0 : tensor<8xf32> loc("sid{negate[0]}")
  return %1 : tensor<8xf32>
}}
""")
    alignment = align(graph, after)
    assert alignment.counterparts[sort[0], 0] == [None]
    assert alignment.counterparts[sort[0], 1] == [only(after, "stablehlo.sort")]
    assert not alignment.retyped


def test_a_reductions_body_is_not_partitioned_and_other_shapes_are_not_aligned():
    graph, after, alignment, (values, counts, notes) = aligned(REDUCE, REDUCE_AFTER)
    assert counts["not partitioned"] == 3  # two arguments and a sum
    assert alignment.counterparts[only(graph, "stablehlo.reduce")] == [
        only(after, "stablehlo.reduce")
    ]
    assert only(graph, "stablehlo.negate")[0] in alignment.retyped
    assert len(alignment.retyped) == 1
    assert not notes
    # What main returns is known all the same.
    assert values[only(graph, "stablehlo.negate")].node == after.without_results()[-2].id


MANUAL = """
module {
sdy.mesh @mesh = <["a"=4, "b"=2]>
func.func public @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a"}, {?}]>]
      out_shardings=[<@mesh, [{"a"}, {?}]>] manual_axes={"a"} (%arg: tensor<2x8xf32>) {
    %1 = stablehlo.tanh %arg : tensor<2x8xf32>
    sdy.return %1 : tensor<2x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
}
"""


def test_inside_a_manual_computation_its_axes_are_left_out():
    after = MANUAL.replace("{?}", '{"b"}').replace(
        "tanh %arg", "tanh %arg {mhlo.frontend_attributes = {sid = stablehlo.tanh }}"
    )
    graph, _, _, (values, _, _) = aligned(MANUAL, after)
    owner = only(graph, "sdy.manual_computation")
    (argument,) = (op for op in graph.children(owner[0]) if op.is_argument)
    assert str(values[argument.id, 0].sharding) == '<@mesh, [{}, {"b"}]>'
    assert str(values[owner].sharding) == '<@mesh, [{"a"}, {"b"}]>'
    assert {value.fate for value in values.values()} == {"kept"}
