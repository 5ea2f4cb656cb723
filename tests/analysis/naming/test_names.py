"""What values are called: by the argument that they are another form of, through calls as well."""

from __future__ import annotations

import pytest

from sdyscope.analysis.naming.names import ValueNames
from sdyscope.analysis.naming.resolve import resolve_value, ssa_name
from sdyscope.annotations import op_name
from sdyscope.errors import TargetError
from sdyscope.graph import OpGraph, build
from tests.graph_modules import parse

#: One function cuts a layer's weight out of two arguments; another only adds.
MODULE = """
module @jit_step {
  func.func public @main(%arg0: tensor<4x8xf32> loc("params['up']"),
                         %arg1: tensor<4x8xf32> loc("params['down']"),
                         %arg2: tensor<i32> loc("layer")) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = call @pick(%arg0, %arg2) : (tensor<4x8xf32>, tensor<i32>) -> tensor<8xf32>
    %1 = call @pick(%arg1, %arg2) : (tensor<4x8xf32>, tensor<i32>) -> tensor<8xf32>
    %2 = call @outer(%1) : (tensor<8xf32>) -> tensor<8xf32>
    %3 = call @sum(%0, %2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    return %3, %2 : tensor<8xf32>, tensor<8xf32>
  }
  func.func private @pick(%arg0: tensor<4x8xf32>, %arg1: tensor<i32>) -> tensor<8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, sizes = [1, 8]
        : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x8xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
  func.func private @outer(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = call @same(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
  func.func private @same(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    return %arg0 : tensor<8xf32>
  }
  func.func private @sum(%arg0: tensor<8xf32>, %arg1: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""


#: The condition and the body of a loop count their values alike.
BESIDE = """
module @jit_fit {
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0:2 = stablehlo.while(%a = %arg0, %b = %arg0) : tensor<8xf32>, tensor<8xf32>
    cond {
      %1 = stablehlo.custom_call @full(%a) : (tensor<8xf32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.add %a, %b : tensor<8xf32>
      stablehlo.return %1, %1 : tensor<8xf32>, tensor<8xf32>
    }
    return %0#1 : tensor<8xf32>
  }
}
"""


def calls(graph: OpGraph) -> list[tuple[int, int]]:
    """The results of the calls of main, in order."""
    assert graph.main is not None
    return [(op.id, 0) for op in graph.children(graph.main.op) if graph.callee(op) is not None]


def test_a_function_that_is_called_twice_is_gone_through_with_what_each_call_gives_it() -> None:
    graph = build(parse(MODULE))
    names = ValueNames(graph)
    up, down, outer, added = calls(graph)
    assert [names.name(value) for value in (up, down, outer)] == [
        "params['up']",
        "params['down']",
        "params['down']",
    ]
    assert names.name(added) == "add in sum"


def test_the_form_is_the_part_that_is_taken() -> None:
    graph = build(parse(MODULE))
    names = ValueNames(graph)
    up, _, outer, added = calls(graph)
    for value in (up, outer):
        form = names.form(value)
        assert form is not None
        assert form.mnemonic == "dynamic_slice"
    assert names.form(added) is None


def test_inside_a_function_that_is_given_several_values_all_are_named() -> None:
    graph = build(parse(MODULE))
    cut = next(op for op in graph.operations() if op.mnemonic == "dynamic_slice")
    assert ValueNames(graph).name((cut.id, 0)) == "params['up'] or params['down']"


#: A scan as JAX lowers it: its body is a function, which is given the carry.
LOOP = """
module @jit_step {
  func.func public @main(%arg0: tensor<8xf32> loc("x"), %arg1: tensor<i32> loc("layer"))
      -> tensor<8xf32> {
    %0 = stablehlo.sine %arg0 : tensor<8xf32> loc("jit(step)/first/sin")
    %1:2 = stablehlo.while(%iterArg = %arg1, %iterArg_1 = %0) : tensor<i32>, tensor<8xf32>
    cond {
      %c = stablehlo.constant dense<4> : tensor<i32>
      %4 = stablehlo.compare LT, %iterArg, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    } do {
      %4 = func.call @closed_call(%iterArg_1, %iterArg) : (tensor<8xf32>, tensor<i32>)
          -> tensor<8xf32>
      stablehlo.return %iterArg, %4 : tensor<i32>, tensor<8xf32>
    }
    CALLS
    return %1#1 : tensor<8xf32>
  }
  func.func private @closed_call(%arg0: tensor<8xf32>, %arg1: tensor<i32>) -> tensor<8xf32> {
    %0 = stablehlo.dynamic_slice %arg0, %arg1, sizes = [1]
        : (tensor<8xf32>, tensor<i32>) -> tensor<1xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<1xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}
"""


@pytest.mark.parametrize(
    ("operands", "name"),
    [
        ((), "sin in first"),
        (("%0",), "sin in first"),
        (("%arg0",), "x or sin in first"),
        (("%arg0", "%1#1"), "x or 2 other values"),
    ],
)
def test_a_carry_that_is_cut_is_what_the_loop_begins_with(
    operands: tuple[str, ...], name: str
) -> None:
    calls = "\n".join(
        f"%call{number} = func.call @closed_call({operand}, %arg1)"
        " : (tensor<8xf32>, tensor<i32>) -> tensor<8xf32>"
        for number, operand in enumerate(operands)
    )
    graph = build(parse(LOOP.replace("CALLS", calls)))
    cut = next(op for op in graph.operations() if op.mnemonic == "dynamic_slice")
    (carry, edge), *_ = graph.operands(cut)
    assert ValueNames(graph).name((carry.id, edge.result)) == name


def test_a_carry_is_told_from_what_the_loop_begins_with_and_from_what_it_only_uses() -> None:
    graph = build(parse(LOOP.replace("CALLS", "")))
    names = ValueNames(graph)
    cut = next(op for op in graph.operations() if op.mnemonic == "dynamic_slice")
    (carry, _), (layer, _) = graph.operands(cut)
    assert [names.name((each.id, 0)) for each in (carry, layer)] == ["sin in first", "layer"]
    assert [names.is_carried((each.id, 0)) for each in (carry, layer)] == [True, False]
    assert names.is_carried((cut.id, 0))
    (begins,) = (op for op in graph.operations() if op.mnemonic == "sine")
    assert not names.is_carried((begins.id, 0))


#: Calls as JAX writes them: of a jitted function, of a primitive that is lowered to a function of
#: its own (by its scope alone), and as older JAX does.
CALLS = """
module @jit_step {
  func.func public @main(%arg0: tensor<8xf32> loc("x")) -> tensor<8xf32> {
    %0 = call @CALLEE(%arg0) : (tensor<8xf32>) -> tensor<8xf32> loc("SCOPE")
    return %0 : tensor<8xf32>
  }
  func.func private @CALLEE(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""


@pytest.mark.parametrize(
    ("scope", "callee", "name"),
    [
        ("jit(step)/layer0/jit(_where)", "_where_1", "layer0/_where"),
        ("jit(step)/jit(helper)", "helper", "helper"),
        ("jit(step)/jit(step)", "step", "step"),
        ("jit(quantile)", "quantile_0", "quantile"),
        ("jit(step)/layer0", "argmax", "layer0/argmax"),
        ("jit(step)", "argmax_2", "argmax"),
        ("jit(step)/layer0/pjit", "layer_1", "layer0/layer_1"),
        ("jit(step)/shard_map", "shmap_body", "shard_map"),
        ("", "layer_1", "layer_1"),
    ],
)
def test_a_call_is_called_what_it_calls(scope: str, callee: str, name: str) -> None:
    graph = build(parse(CALLS.replace("SCOPE", scope).replace("CALLEE", callee)))
    ((call, _),) = calls(graph)
    assert op_name(graph.ops[call]) == name
    assert ValueNames(graph).name((call, 0)) == f"add in {name}"
    assert call in {value.id[0] for value in resolve_value(graph, name)}


@pytest.mark.parametrize("name", ["layer0/psum", "layer0/psum_invariant"])
def test_a_collective_is_named_as_the_program_calls_it_or_as_jax_does(name: str) -> None:
    graph = build(parse(CALLS.replace("SCOPE", "jit(step)/layer0/psum_invariant")))
    ((call, _),) = calls(graph)
    assert call in {value.id[0] for value in resolve_value(graph, name)}


def test_regions_beside_each_other_have_names_of_their_own() -> None:
    graph = build(parse(BESIDE))
    values = [(op.id, n) for op in graph.without_results() for n in range(len(op.types))]
    assert len({ssa_name(graph, value) for value in values}) == len(values)
    both = resolve_value(graph, "%1")
    assert [(named.ssa, named.kind) for named in both] == [
        ("%1", "stablehlo.custom_call"),
        ("%1~2", "stablehlo.add"),
    ]
    assert resolve_value(graph, "%1~2") == both[1:]
    assert [named.ssa for named in resolve_value(graph, "%0#1")] == ["%0#1"]
    with pytest.raises(TargetError, match="is called %1~3"):
        resolve_value(graph, "%1~3")
