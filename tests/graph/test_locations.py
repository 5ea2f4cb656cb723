"""Scopes of ops, without what JAX has in them for itself."""

import pytest

from sdyscope.graph import build, read_text, scope_in, written_primitive, written_scope
from sdyscope.stages import compat


def read_parsed(text):
    """By MLIR's own parser."""
    context = compat.new_context()
    with context:
        return build(compat.ir.Module.parse(text))


READERS = (read_parsed, read_text)


#: A scan as JAX lowers it: from 0.12 on its body stands in the loop.
AS_A_FUNCTION = """
module @jit_step {
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.negate %arg0 : tensor<8xf32> loc("jit(step)/layers/while/body/neg")
    %1 = func.call @closed_call(%0) : (tensor<8xf32>) -> tensor<8xf32> loc(#body)
    return %1 : tensor<8xf32>
  }
  func.func private @closed_call(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.sine %arg0 : tensor<8xf32> loc("mlp/sin")
    %1 = func.call @closed_call_0(%0) : (tensor<8xf32>) -> tensor<8xf32> loc(#inner)
    return %1 : tensor<8xf32>
  }
  func.func private @closed_call_0(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.cosine %arg0 : tensor<8xf32> loc("cos")
    return %0 : tensor<8xf32>
  }
}
#body = loc("jit(step)/layers/while/body/closed_call")
#inner = loc("mlp/while/body/closed_call")
"""
IN_THE_LOOP = """
module @jit_step {
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.negate %arg0 : tensor<8xf32> loc("jit(step)/layers/while/body/neg")
    %1 = stablehlo.sine %0 : tensor<8xf32> loc(#body)
    %2 = stablehlo.cosine %1 : tensor<8xf32> loc(#inner)
    return %2 : tensor<8xf32>
  }
}
#body = loc("jit(step)/layers/while/body/eval_jaxpr/mlp/sin")
#inner = loc("jit(step)/layers/while/body/eval_jaxpr/mlp/while/body/eval_jaxpr/cos")
"""


@pytest.mark.parametrize("text", [AS_A_FUNCTION, IN_THE_LOOP])
def test_scopes_in_a_scan_are_the_same_with_every_jax(text):
    named = [op for op in read_text(text).ops if op.scope and op.kind != "func.call"]
    assert [(op.scope, op.location.in_body) for op in named] == [
        ("jit(step)/layers/while/body/neg", None),
        ("jit(step)/layers/while/body/mlp/sin", "mlp/sin"),
        ("jit(step)/layers/while/body/mlp/while/body/cos", "cos"),
    ]


@pytest.mark.parametrize(
    ("scope", "written"),
    [
        ("jit(f)/while/body/jit(dynamic_index_in_dim)/slice", "jit(f)/while/body/slice"),
        ("jit(f)/while/body/closed_call", "jit(f)/while/body/closed_call"),
        ("jit(f)/jit(helper)/sin", "jit(f)/jit(helper)/sin"),
        ("jit(f)/not_closed_call/sin", "jit(f)/not_closed_call/sin"),
    ],
)
def test_what_the_author_did_not_write_is_left_out(scope, written):
    assert written_scope(scope) == written


def test_a_collective_is_called_what_the_program_calls():
    """Whether `shard_map` checks what varies is in JAX's name for it."""
    assert written_scope("jit(f)/shard_map/psum_invariant") == "jit(f)/shard_map/psum"
    assert written_scope("psum_invariant/all_to_all") == "psum_invariant/all_to_all"
    assert written_primitive("all_gather_invariant") == "all_gather"
    text = AS_A_FUNCTION.replace("jit(step)/layers/while/body/neg", "psum_invariant")
    for read in READERS:
        (op,) = [op for op in read(text).ops if op.kind == "stablehlo.negate"]
        assert op.scope == "psum"


def test_the_scope_of_a_call_stands_before_what_it_calls():
    assert scope_in("jit(f)/while/body/closed_call", "mlp/sin") == "jit(f)/while/body/mlp/sin"
    assert scope_in("jit(f)/layer", "jit(f)/layer/sin") == "jit(f)/layer/sin"
    assert scope_in("", "sin") == "sin"
    assert scope_in("layer", "") == "layer"


@pytest.mark.parametrize("read", READERS)
def test_the_arguments_of_a_loop_are_not_at_a_line_of_the_module_s_text(read):
    """MLIR writes no locations for them, and has them where they stand in the text."""
    loop = """
module @m {{
  func.func public @main(%arg0: tensor<f32>{argument}) -> tensor<f32> {{
    %0 = stablehlo.while(%iterArg = %arg0) : tensor<f32>
    cond {{
      %c = stablehlo.constant dense<true> : tensor<i1>{line}
      stablehlo.return %c : tensor<i1>{line}
    }} do {{
      %1 = stablehlo.negate %iterArg : tensor<f32>{line}
      stablehlo.return %1 : tensor<f32>{line}
    }}{line}
    return %0 : tensor<f32>{line}
  }}{line}
}}{line}"""

    def lines(**locations):
        graph = read(loop.format(**locations))
        loops = [op for op in graph.ops if op.kind == "stablehlo.while"]
        arguments = [op for op in graph.children(loops[0]) if op.is_argument]
        assert arguments
        return {op.source and op.source.file for op in arguments}

    assert lines(argument="", line="") == {"-"}
    assert lines(argument=' loc("x")', line=' loc("f"("m.py":3:4))') == {None}
