"""The process in which a recorded program is propagated, so that a crash costs only its answer."""

from __future__ import annotations

import msgspec

from sdyscope.errors import SdyscopeError
from sdyscope.facts.program import Partitioner
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


class ToKeep(msgspec.Struct, array_like=True):
    """A program to propagate.

    Attributes:
        file: the path of its module.
        partitioner: whose propagation.
    """

    file: str
    partitioner: Partitioner


def _answer(asked: ToKeep) -> KeptAnswer:
    try:
        lowered = read(asked.file)
        if lowered.module is None:
            return KeptAnswer(failed="MLIR's bindings could not read it.")
        graph = build(lowered.module)
        return KeptAnswer(recorded_propagation(lowered, graph, asked.partitioner))
    except SdyscopeError as error:
        return KeptAnswer(failed=error.message)


def serve() -> None:
    """Answers requests, each what is to be kept, until the parent ends."""
    decode, encode = msgspec.msgpack.Decoder(ToKeep).decode, msgspec.msgpack.encode
    worker.serve(lambda request: encode(_answer(decode(request))))
