"""What ops and tensors are called."""

import pytest

from sdyscope.annotations import op_name, scope_of, within_program
from sdyscope.graph import read_text


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("jit(step)/jvp(layer0)/dot_general", "jvp(layer0)/dot_general"),
        ("pjit(step)/layer0", "layer0"),
        ("jit(step)", ""),
        ("layer0/jit(relu)", "layer0/jit(relu)"),
        ("params['jit(w)/a']", "params['jit(w)/a']"),
        ("", ""),
    ],
)
def test_the_program_s_own_name_is_no_part_of_a_scope(path: str, own: str) -> None:
    assert within_program(path) == own


def test_the_body_of_a_loop_is_no_primitive():
    """An argument of the function that JAX lowers `argmin` to has the scope of the call."""
    graph = read_text("""module {
  func.func private @argmin(%arg0: tensor<8xf32> loc("jit(f)/while/body"), %arg1: tensor<i1> loc("jit(f)/cond/branch_1_fun")) -> tensor<8xf32> {
    %0 = stablehlo.sine %arg0 : tensor<8xf32> loc("jit(f)/while/body/sin")
    return %0 : tensor<8xf32>
  }
}""")  # noqa: E501
    value, taken, sine = (op for op in graph.ops if op.types)
    assert scope_of(value) == ("while/body", "")
    assert scope_of(taken) == ("cond/branch_1_fun", "")
    assert [op_name(op) for op in (value, sine)] == ["while/body/argument", "while/body/sin"]
