"""The propagation that a recorded run's own JAX decides, kept in a file that any other JAX reads.

It is the module after Shardy's passes, or after GSPMD's as XLA dumps it, in MLIR's text form, each
op with its tag; and what Shardy wrote down of where axes come from. Another JAX's bindings need not
read that text, and number the ops of the lowered module as the run's own did.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated
from sdyscope.facts.remarks import PropagationSource, Remark
from sdyscope.graph import OpGraph, build, read_text
from sdyscope.graph.collection import no_collection
from sdyscope.stages import compat
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.stages.lowered.read import LARGEST, read_bytes
from sdyscope.stages.propagated.debug_info import WrittenDown
from sdyscope.stages.propagated.debug_info_child import DebugInfoAnswer
from sdyscope.stages.propagated.propagate import decide, propagated_of
from sdyscope.stages.propagated.propagated_text import propagated_text
from sdyscope.stages.propagated.xla_dump import decided_by_xla

SCHEMA: Literal["sdyscope.propagation/1"] = "sdyscope.propagation/1"


class RecordedPropagation(msgspec.Struct, kw_only=True, frozen=True):
    """What is in the file, as JSON.

    Attributes:
        schema: name and version of this form.
        jax: version of the JAX that propagated.
        partitioner: under which.
        nodes: how many nodes the op graph of the lowered module has, which the tags name.
        module: the module after propagation, with the tags of the lowered module's ops.
        doubts: why XLA might decide otherwise.
        devices: under GSPMD, for how many CPU devices XLA compiled.
        refusal: what XLA then said of the module, likewise.
        answer: what Shardy wrote down; null where it wrote nothing.
        has_origins: whether that is with origins.
        notes: why it is not, or why there is nothing.
    """

    schema: Literal["sdyscope.propagation/1"] = SCHEMA
    jax: str
    partitioner: Partitioner = "shardy"
    nodes: int
    module: str
    doubts: tuple[Remark, ...] = ()
    devices: int = 0
    refusal: str = ""
    answer: DebugInfoAnswer | None = None
    has_origins: bool = False
    notes: tuple[Remark, ...] = ()


def recorded_propagation(
    lowered: LoweredModule, graph: OpGraph, partitioner: Partitioner = "shardy"
) -> bytes:
    """What this JAX decides for every value of a module, to be kept in a file.

    Args:
        lowered: the module, with the partitioner's shardings.
        graph: its op graph.
        partitioner: who propagates.

    Raises:
        CompilerError: as of ``propagate``, and under GSPMD of ``propagated_by_xla``.
    """
    with no_collection():
        kept = partial(
            RecordedPropagation,
            jax=compat.version(),
            partitioner=partitioner,
            nodes=len(graph.ops),
        )
        if partitioner == "gspmd":
            dumped = decided_by_xla(lowered, graph, partitioner)
            return msgspec.json.encode(
                kept(
                    module=_text(dumped.module),
                    devices=dumped.source.devices,
                    refusal=dumped.refusal,
                )
            )
        decided = decide(lowered, graph)
        module = _text(decided.module)
        written = decided.written()
        return msgspec.json.encode(
            kept(
                module=module,
                doubts=decided.doubts,
                answer=written.answer,
                has_origins=written.has_origins,
                notes=written.notes,
            )
        )


def _text(module: Any) -> str:
    return str(module.operation.get_asm(enable_debug_info=True, use_local_scope=True))


def read_propagation(file: Path, lowered: LoweredModule, graph: OpGraph) -> Propagated | None:
    """What a recorded run's JAX decided for every value of a module.

    Args:
        file: what ``recorded_propagation`` was kept in.
        lowered: the module, as this JAX reads it.
        graph: its op graph.

    Returns:
        The propagation; None where the file is none, another sdyscope's, or of another module.
    """
    try:
        if file.stat().st_size > LARGEST:
            return None
        kept = msgspec.json.decode(file.read_bytes(), type=RecordedPropagation)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if kept.nodes != len(graph.ops) or not (kept.answer is None or _is_whole(kept.answer)):
        return None
    with no_collection():
        after, text = _read(kept.module)
        if not _has_its_main(after, graph):
            return None
        source = PropagationSource("recorded", jax=kept.jax, devices=kept.devices)
        if kept.partitioner == "gspmd":
            return propagated_of(
                lowered,
                graph,
                after,
                kept.partitioner,
                source=source,
                refusal=kept.refusal,
                read_text=text,
            )
        return propagated_of(
            lowered,
            graph,
            after,
            source=source,
            doubts=kept.doubts,
            written=lambda: WrittenDown(kept.answer, kept.has_origins, kept.notes),
            read_text=text,
        )


def _is_whole(answer: DebugInfoAnswer) -> bool:
    """Whether every number in it is one of something that is there."""
    texts, nodes, written = len(answer.texts), len(answer.kinds), len(answer.written)
    marks = [*answer.marks.values()]
    for read in (answer.results, answer.flow_results, answer.flow_arguments):
        marks += [mark for _, _, mark in read]
    named = [number for pair in answer.shardings.values() for number in pair]
    named += [*answer.kinds, *answer.names.values()]
    named += [number for names in answer.locations for number in names]
    return (
        len(answer.counts) == len(answer.parents) == len(answer.locations) == nodes
        and all(0 <= number < texts for number in named)
        and all(-1 <= mark.edges < texts and -1 <= mark.origins < written for mark in marks)
    )


def _has_its_main(after: OpGraph, graph: OpGraph) -> bool:
    """Whether a module has the main function of the one that it is to be made of."""
    if after.main is None or graph.main is None:
        return False
    ours, theirs = after.main.arguments, graph.main.arguments
    return [each.type for each in ours] == [each.type for each in theirs]


def _read(text: str) -> tuple[OpGraph, Callable[[], str]]:
    """The op graph of a propagated module, and what writes its text for people."""
    try:
        module = read_bytes(text.encode()).module
    except TargetError:  # what Shardy leaves need not verify
        module = None
    if module is None:
        return read_text(text), _no_text
    return build(module, named=False), partial(propagated_text, module)


def _no_text() -> str:
    raise CompilerError(
        "MLIR's bindings can't read the propagated module, which another JAX made.",
        hint="Ask for its text with the JAX that recorded it.",
    )
