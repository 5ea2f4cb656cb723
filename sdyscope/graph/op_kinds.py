"""Kinds of ops that hold regions, end them, or say how a value is to be sharded."""

from __future__ import annotations

from typing import Final

#: Ops whose second region runs again on what it returned.
LOOPS: Final = frozenset({"stablehlo.while", "mhlo.while"})
#: Ops of which one region runs.
BRANCHES: Final = frozenset({"stablehlo.case", "stablehlo.if", "mhlo.case", "mhlo.if"})
#: What says of them that GSPMD shards what they take otherwise within them.
TAKEN_OTHERWISE: Final = "sdyscope.taken_otherwise"
#: Ops of Shardy whose region runs once, on their operands.
REGIONS: Final = frozenset({"sdy.manual_computation", "sdy.named_computation"})
#: Ops that return their operands, and across which nothing is moved.
BARRIERS: Final = frozenset({"stablehlo.optimization_barrier", "mhlo.optimization_barrier"})
#: Ops that only say how their operand is to be sharded. GSPMD's is a custom call: see
#: ``Op.is_constraint``.
CONSTRAINTS: Final = frozenset({"sdy.sharding_constraint", "sdy.reshard"})
#: Ops that end a function or a region, with what it returns.
TERMINATORS: Final = frozenset({"func.return", "stablehlo.return", "mhlo.return", "sdy.return"})

#: Ops that write into a part of their first operand, as into a cache, or into what a scan stacks.
WRITERS: Final = frozenset({"stablehlo.dynamic_update_slice", "stablehlo.scatter"})

#: StableHLO's ops by which devices exchange blocks of a tensor, without the dialect.
COLLECTIVES: Final = frozenset(
    {
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_broadcast",
        "collective_permute",
        "reduce_scatter",
    }
)

#: Ops whose result may have its operand's shape and is not made from it element by element.
_NOT_ELEMENTWISE: Final = COLLECTIVES | frozenset(
    {
        "case",
        "cholesky",
        "composite",
        "convolution",
        "custom_call",
        "dot_general",
        "dynamic_slice",
        "dynamic_update_slice",
        "fft",
        "gather",
        "if",
        "optimization_barrier",
        "pad",
        "reduce_window",
        "reverse",
        "rng_bit_generator",
        "scatter",
        "select_and_scatter",
        "sort",
        "top_k",
        "transpose",
        "triangular_solve",
        "while",
    }
)


def is_elementwise(kind: str) -> bool:
    """Whether an op makes each element from those at its place, where its tensors have one shape.

    Args:
        kind: the op, with its dialect.
    """
    dialect, _, name = kind.partition(".")
    return dialect in ("stablehlo", "chlo") and name not in _NOT_ELEMENTWISE
