"""The compiler's own parser of MLIR attributes, for tests to compare with."""

from functools import cache

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo


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
