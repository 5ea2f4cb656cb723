"""The process that tries edits of the program that it was given last.

A candidate of a search is what arguments, results and constraints are to say, and the answer is
what the search weighs, or why nothing is predicted. Other edits are asked about by a ``Question``.
What goes through the pipes are sdyscope's own values, between a process and its parent.
"""

from __future__ import annotations

import gc
import itertools
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from sdyscope.analysis.trials.cost import Prediction
from sdyscope.analysis.trials.trials import Edits, Trials, Written, figures
from sdyscope.annotations import read_annotations
from sdyscope.errors import SdyscopeError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import OpGraph, build
from sdyscope.process import worker
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.values.mesh import Mesh

if TYPE_CHECKING:
    from sdyscope.analysis.collectives.predicted import Predictor
    from sdyscope.stages.lowered.lower import LoweredModule
    from sdyscope.stages.propagated.annotate import ModuleEdit
    from sdyscope.stages.propagated.imported_module import ImportedModule

#: Behind how many answers what they left is collected.
_COLLECTED = 256

#: What a request begins with: what follows is a program, a candidate of it, or a question.
_PROGRAM, _CANDIDATE, _QUESTION = b"P", b"C", b"Q"


class _Given(msgspec.Struct, array_like=True):
    """The program.

    Attributes:
        name: its name.
        module: the lowered module, in MLIR's bytecode.
        partitioner: for which it was lowered; None for a file.
        devices: how many it is partitioned for; 0 where that is unknown.
        mesh: the symbol of the mesh of all candidates; empty where there are none.
    """

    name: str
    module: bytes
    partitioner: Partitioner | None
    devices: int
    mesh: str


class _Answer(msgspec.Struct, array_like=True):
    prediction: Prediction | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a program with edits.

    Attributes:
        edits: the edits.
        value: the value whose shardings are asked for; None for what the program would send.
        on_cpu: of the latter, whether as CPUs do it.
    """

    edits: tuple[ModuleEdit, ...]
    value: ValueId | None
    on_cpu: bool = False


_DECODED = msgspec.msgpack.Decoder(list[tuple[str, int, str]])
_ANSWER = msgspec.msgpack.Decoder(_Answer)


def given(lowered: LoweredModule, mesh: str = "") -> bytes:
    """A program as a request.

    Args:
        lowered: its module.
        mesh: the symbol of the mesh of all candidates.
    """
    program = _Given(
        lowered.name, lowered.bytecode(), lowered.partitioner, lowered.num_devices, mesh
    )
    return _PROGRAM + msgspec.msgpack.encode(program)


def given_of(trials: Trials) -> bytes:
    """The program of some trials as a request, for candidates on its mesh."""
    meshes = trials.graph.meshes
    return given(trials.lowered, next(name for name in meshes if meshes[name] == trials.mesh))


def encoded(candidate: Sequence[Written]) -> bytes:
    """A candidate as a request."""
    written = [(kind, number, str(spec)) for kind, number, spec in candidate]
    return _CANDIDATE + msgspec.msgpack.encode(written)


def answer(answered: bytes) -> Prediction | SdyscopeError:
    """What a child has answered of a candidate."""
    read = _ANSWER.decode(answered)
    return SdyscopeError(read.error) if read.prediction is None else read.prediction


def asked(question: Question) -> bytes:
    """A question as a request."""
    return _QUESTION + pickle.dumps(question)


def answer_of(answered: bytes) -> Any:
    """What a child has answered to a question.

    Raises:
        SdyscopeError: what the child raised.
    """
    read = pickle.loads(answered)
    if isinstance(read, SdyscopeError):
        raise read
    return read


class Tries:
    """Answers for one program, in this process.

    Args:
        lowered: its module.
        graph: its op graph.
    """

    def __init__(self, lowered: LoweredModule, graph: OpGraph) -> None:
        self.lowered, self.graph = lowered, graph

    @cached_property
    def predictor(self) -> Predictor:
        """What predicts what it would send."""
        from sdyscope.analysis.collectives.predicted import Predictor

        return Predictor(self.lowered, self.graph)

    @cached_property
    def _imported(self) -> ImportedModule:
        from sdyscope.stages.propagated.imported_module import ImportedModule

        return ImportedModule(self.lowered, self.graph)

    def answer(self, question: Question) -> Any:
        """The answer to a question.

        Raises:
            CompilerError: a pass of Shardy failed.
            TargetError: an edit that the module can't carry.
        """
        if question.value is not None:
            return self._imported.shardings(question.value, question.edits)
        return figures(self.predictor.predict(question.edits, on_cpu=question.on_cpu))


class _Served:
    """The program that a child has."""

    def __init__(self, program: _Given) -> None:
        from sdyscope.stages.lowered.read import read_bytes

        lowered = replace(
            read_bytes(program.module),
            name=program.name,
            partitioner=program.partitioner,
            num_devices=program.devices,
        )
        graph = build(lowered.module)
        self.tries = Tries(lowered, graph)
        mesh = graph.meshes.get(program.mesh)
        if isinstance(mesh, Mesh):
            self._edits = Edits(program.name, read_annotations(graph), mesh)

    def candidate(self, request: bytes) -> _Answer:
        edits = [
            self._edits.of((kind, number, parse_partition_spec(spec)))
            for kind, number, spec in _DECODED.decode(request)
        ]
        try:
            return _Answer(figures(self.tries.predictor.predict(edits)))
        except SdyscopeError as error:
            return _Answer(None, error.message)

    def question(self, request: bytes) -> Any:
        try:
            return self.tries.answer(pickle.loads(request))
        except SdyscopeError as error:
            return error


def serve() -> None:
    """Takes a program and answers requests about it, then the next, until the parent ends."""
    programs: list[_Served] = []
    numbers = itertools.count(1)
    # What is there stays, and is not walked again and again.
    gc.disable()

    def answered(request: bytes) -> bytes:
        kind, rest = request[:1], request[1:]
        if kind == _PROGRAM:
            programs.clear()
            programs.append(_Served(msgspec.msgpack.decode(rest, type=_Given)))
            gc.freeze()
            return b""
        if next(numbers) % _COLLECTED == 0:
            gc.collect()
        if kind == _CANDIDATE:
            return msgspec.msgpack.encode(programs[0].candidate(rest))
        return pickle.dumps(programs[0].question(rest))

    worker.serve(answered)
