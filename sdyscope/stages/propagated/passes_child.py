"""The process in which Shardy's passes run, and XLA converts, so that a crash ends only it.

It imports jaxlib and not JAX, which saves a second, and has the same names in all versions.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import msgspec
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from sdyscope.process import worker
from sdyscope.stages.conversion import through_hlo
from sdyscope.stages.stderr import captured_stderr


class ConversionRequest(msgspec.Struct, array_like=True, tag=True):
    """A module to turn into HLO and back, see ``conversion.through_hlo``.

    Attributes:
        module: bytecode, of StableHLO.
    """

    module: bytes


class PassesRequest(msgspec.Struct, array_like=True, tag=True):
    """A module to run passes over.

    Attributes:
        module: bytecode, imported into Shardy's dialect.
        passes: the passes, in order.
    """

    module: bytes
    passes: tuple[str, ...]


class PassesAnswer(msgspec.Struct, array_like=True):
    """What came of it.

    Attributes:
        module: bytecode of the module afterwards; empty where a pass or the conversion failed.
        error: what MLIR or XLA raised then.
        written: what they wrote to standard error.
    """

    module: bytes = b""
    error: str = ""
    written: str = ""


class _Context(ir.Context):
    """An MLIR context with the dialects that JAX's bindings know, and no others."""

    def __init__(self) -> None:
        # Not that of jaxlib's own subclass, which loads what each of its extensions asks for.
        super(ir.Context, self).__init__()


def shardy_context() -> Any:
    """An MLIR context in which a module that Shardy propagates on can be parsed."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = _Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    sdy.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    return context


def pass_manager(passes: Sequence[str]) -> Any:
    """What runs passes over a module, in place, and verifies none between them.

    Raises:
        Exception: there is no such pass: MLIR's error, by several names, as of a pass that fails.
    """
    manager = passmanager.PassManager.parse(f"builtin.module({','.join(passes)})")
    # What Shardy writes on a while, as its steps, is more than its verifier allows.
    manager.enable_verifier(False)
    return manager


def _answer(request: ConversionRequest | PassesRequest) -> PassesAnswer:
    with captured_stderr() as written:
        try:
            if isinstance(request, ConversionRequest):
                return PassesAnswer(through_hlo(request.module))
            return PassesAnswer(_after(request))
        except Exception as error:  # MLIRError or XlaRuntimeError, by several names
            return PassesAnswer(error=str(error) or type(error).__name__, written=written())


def _after(request: PassesRequest) -> bytes:
    with shardy_context():
        module = ir.Module.parse(request.module)
        pass_manager(request.passes).run(module.operation)
        file = io.BytesIO()
        module.operation.write_bytecode(file)
        return file.getvalue()


def serve() -> None:
    """Answers requests until the parent ends."""
    decoder = msgspec.msgpack.Decoder(ConversionRequest | PassesRequest)
    encoder = msgspec.msgpack.Encoder()
    worker.serve(lambda request: encoder.encode(_answer(decoder.decode(request))))
