"""The compiler's own parser of MLIR attributes, to compare with, and a module that several read."""

from functools import cache
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo

from sdyscope.values.explicit_collectives import (
    AllToAllParam,
    AllToAllParamList,
    AxisRefList,
    ListOfAxisRefLists,
)
from sdyscope.values.mesh import AxisRef
from sdyscope.values.propagation_edges import (
    PropagationEdges,
    ShardingOrigins,
    ShardingOriginsPerValue,
)
from sdyscope.values.sharding import DimSharding
from sdyscope.values.sharding_rule import OpShardingRule

#: It has annotations of both partitioners.
MIXED = """
module @mixed attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["a"=8]>
  func.func public @main(%arg0: tensor<8x8xf32>
      {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}) -> tensor<8x8xf32> {
    %0 = stablehlo.custom_call @Sharding(%arg0) {mhlo.sharding = "{devices=[1,8]<=[8]}"}
      : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}
"""


@cache
def context() -> ir.Context:
    """A context that knows the dialects the installed JAX writes."""
    made = ir.Context()
    sdy.register_dialect(made)
    stablehlo.register_dialect(made)
    return made


def reprinted(text: str) -> str | None:
    """The attribute as the compiler prints it; None when the compiler can't read it."""
    try:
        with context():
            return str(ir.Attribute.parse(text))
    except (ir.MLIRError, ValueError):
        return None


@cache
def knows_max_and_min() -> bool:
    """Whether the installed Shardy has reductions other than sum (JAX 0.12 and later)."""
    return reprinted('#sdy.sharding<@m, [], unreduced=max{"a"}>') is not None


#: How MLIR writes values by themselves that sdyscope only reads, or writes inside of others.
_ATTRIBUTES = {
    AxisRef: "#sdy<axis_ref{}>",
    DimSharding: "#sdy<dimension_sharding{}>",
    AxisRefList: "#sdy<axis_ref_list{}>",
    ListOfAxisRefLists: "#sdy<list_of_axis_ref_lists{}>",
    AllToAllParam: "#sdy<all_to_all_param{}>",
    AllToAllParamList: "#sdy<all_to_all_param_list{}>",
    OpShardingRule: "#sdy.op_sharding_rule{}",
    PropagationEdges: "#sdy.propagation_edges{}",
    ShardingOrigins: "{}",
    ShardingOriginsPerValue: "{}",
}


def shardy_attribute(value: Any) -> str:
    """A value of Shardy's dialect as an MLIR attribute."""
    form = _ATTRIBUTES.get(type(value))
    return str(value.attribute) if form is None else form.format(value)
