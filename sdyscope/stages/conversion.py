"""StableHLO and HLO, each turned into the other by XLA; it imports jaxlib and not JAX."""

from __future__ import annotations

from jaxlib import _jax


def hlo_to_stablehlo(proto: bytes) -> bytes:
    """A serialized HloModuleProto as StableHLO bytecode; V3 shardings and post-SPMD HLO included.

    Raises:
        Exception: XLA's error, when the proto is none or has ops without a StableHLO form.
    """
    module = _jax.mlir.hlo_to_stablehlo(proto)
    return module if isinstance(module, bytes) else module.encode()


def through_hlo(bytecode: bytes) -> bytes:
    """StableHLO as XLA has it after StableHLO -> HLO -> StableHLO, in bytecode.

    Raises:
        Exception: XLA's error, when the module has ops without an HLO form.
    """
    computation = _jax.mlir.mlir_module_to_xla_computation(
        bytecode, use_tuple_args=False, return_tuple=False
    )
    return hlo_to_stablehlo(computation.as_serialized_hlo_module_proto())
