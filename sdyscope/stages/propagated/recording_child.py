"""The process in which a recorded program is propagated, so that a crash costs only its answer."""

from __future__ import annotations

import msgspec

from sdyscope.errors import SdyscopeError
from sdyscope.graph import build
from sdyscope.process import worker
from sdyscope.stages.lowered.read import read
from sdyscope.stages.propagated.recorded_propagation import recorded_propagation


class KeptAnswer(msgspec.Struct, array_like=True):
    """What came of a program.

    Attributes:
        kept: what to keep; empty where there is nothing.
        failed: why, in a sentence.
    """

    kept: bytes = b""
    failed: str = ""


def _answer(file: str) -> KeptAnswer:
    try:
        lowered = read(file)
        if lowered.module is None:
            return KeptAnswer(failed="MLIR's bindings could not read it.")
        return KeptAnswer(recorded_propagation(lowered, build(lowered.module)))
    except SdyscopeError as error:
        return KeptAnswer(failed=error.message)


def serve() -> None:
    """Answers requests, each the path of a module's file, until the parent ends."""
    encoder = msgspec.msgpack.Encoder()
    worker.serve(lambda request: encoder.encode(_answer(request.decode())))
