"""Several command lines, each in a child process."""

from sdyscope.process.children import ChildWork, run_all

#: A result's sharding as Shardy writes it for HLO, and no sharding: XLA aborts on it.
GARBLED = """
sdy.mesh @mesh = <["data"=8]>
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = stablehlo.custom_call @xla.sdy.FuncResultSharding(%x)
    {mhlo.frontend_attributes = {xla.sdy.sharding = "garbled"}} : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}
"""


def test_where_propagation_crashes_the_rest_is_told(tmp_path):
    (tmp_path / "garbled.mlir").write_text(GARBLED)
    work = ChildWork("it", ("propagate", "garbled.mlir"), {"JAX_PLATFORMS": "cpu"}, tmp_path)
    (answer,) = run_all([work], 1)
    assert answer.error is None, answer.error
    said = answer.data.decode()
    assert "Shardy: approximate" in said
    assert "The compiler crashed on it (SIGABRT) in XLA's conversion to HLO: Check failed" in said
