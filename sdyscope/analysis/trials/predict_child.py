"""The process that predicts candidates of one program, which it is given once.

A candidate is what arguments, results and constraints are to say, and the answer is what the search
weighs, or why nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from sdyscope.analysis.trials.cost import Prediction
from sdyscope.analysis.trials.trials import Edits, Trials, Written, figures
from sdyscope.annotations import read_annotations
from sdyscope.errors import SdyscopeError
from sdyscope.facts.program import Partitioner
from sdyscope.graph import build
from sdyscope.process import worker
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.values.mesh import Mesh

__all__ = ["Given", "answer", "encoded", "given", "serve"]


class Given(msgspec.Struct, array_like=True):
    """The program.

    Attributes:
        name: its name.
        module: the lowered module, in MLIR's bytecode.
        partitioner: for which it was lowered; None for a file.
        devices: how many it is partitioned for; 0 where that is unknown.
        mesh: the symbol of the mesh of all candidates.
    """

    name: str
    module: bytes
    partitioner: Partitioner | None
    devices: int
    mesh: str


class _Answer(msgspec.Struct, array_like=True):
    prediction: Prediction | None
    error: str = ""


_CANDIDATE = msgspec.msgpack.Decoder(list[tuple[str, int, str]])
_ANSWER = msgspec.msgpack.Decoder(_Answer)


def given(trials: Trials) -> Given:
    """What a child is given of a program."""
    lowered = trials.lowered
    mesh = next(name for name, mesh in trials.graph.meshes.items() if mesh == trials.mesh)
    return Given(lowered.name, lowered.bytecode(), lowered.partitioner, lowered.num_devices, mesh)


def encoded(candidate: Sequence[Written]) -> bytes:
    """A candidate as a request."""
    return msgspec.msgpack.encode([(kind, number, str(spec)) for kind, number, spec in candidate])


def answer(answered: bytes) -> Prediction | SdyscopeError:
    """What a child has answered."""
    read = _ANSWER.decode(answered)
    return SdyscopeError(read.error) if read.prediction is None else read.prediction


class _Predicts:
    """Predicts candidates of one program."""

    def __init__(self, program: Given) -> None:
        from sdyscope.analysis.collectives.predicted import Predictor
        from sdyscope.stages.lowered.read import read_bytes

        lowered = replace(
            read_bytes(program.module),
            name=program.name,
            partitioner=program.partitioner,
            num_devices=program.devices,
        )
        graph = build(lowered.module)
        mesh = graph.meshes[program.mesh]
        assert isinstance(mesh, Mesh)
        self._edits = Edits(program.name, read_annotations(graph), mesh)
        self._predictor = Predictor(lowered, graph)

    def of(self, request: bytes) -> _Answer:
        edits = [
            self._edits.of((kind, number, parse_partition_spec(spec)))
            for kind, number, spec in _CANDIDATE.decode(request)
        ]
        try:
            return _Answer(figures(self._predictor.predict(edits)))
        except SdyscopeError as error:
            return _Answer(None, error.message)


def serve() -> None:
    """Takes the program, then predicts candidates until the parent ends."""
    programs: list[_Predicts] = []

    def answered(request: bytes) -> bytes:
        if not programs:
            programs.append(_Predicts(msgspec.msgpack.decode(request, type=Given)))
            return b""
        return msgspec.msgpack.encode(programs[0].of(request))

    worker.serve(answered)
