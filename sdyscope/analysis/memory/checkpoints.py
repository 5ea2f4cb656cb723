"""Rematerialization and offloading of activations: `jax.checkpoint` on a call of the author's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import libcst as cst

from sdyscope.analysis.fix.workshop import Rebuild, Workshop
from sdyscope.analysis.memory.memory import Memory
from sdyscope.analysis.naming.scopes import phase_of
from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.over_time import MemoryOverTime, PeakRemedy
from sdyscope.graph import OpGraph
from sdyscope.patches.source import Source, Span, Splice
from sdyscope.staged import Staged
from sdyscope.values.source import SourceLocation

#: How many calls are proposed.
_MOST = 2

#: What keeps the results of matmuls with parameters in the host's memory.
_OFFLOAD = 'checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")'

#: Of calls within each other, the inner one has at least this part of what the outer keeps.
_PART = 0.5


def rematerialized(
    program: Staged, memory: Memory, over_time: MemoryOverTime, rebuild: Rebuild
) -> Iterator[tuple[PeakRemedy, Callable[[], Staged]]]:
    """Calls whose values are kept for the backward pass, each computed again there.

    Where there is another memory for them, the results of matmuls are also offloaded until then.
    The program is built from edited source; the files stay as they are.

    Args:
        program: the program.
        memory: what a device holds of it.
        over_time: the same over a step.
        rebuild: builds the program anew.
    """
    if program.program is None or memory.partitioner != "shardy" or memory.hardware is None:
        return
    kept: dict[SourceLocation, int] = defaultdict(int)
    for holding in over_time.held:
        if holding.category == "kept for backward" and holding.source is not None:
            kept[holding.source] += holding.bytes
    if not kept:
        return
    workshop = Workshop(program, rebuild, memory.hardware.platform)
    calls = _calls(workshop, program.graph("shardy"), kept)
    most = max((bytes_ for bytes_, _, _ in calls), default=0)
    chosen = [call for call in calls if call[0] >= _PART * most][:_MOST]
    for bytes_, span, function in chosen:
        line = SourceLocation(span.file, span.line, 0, span.function)
        remedy = PeakRemedy(
            "rematerialize", (function,), function, None, None, bytes_, "shardy", source=line
        )
        yield remedy, _building(workshop, span, function)
        if memory.can_offload:
            offloaded = replace(remedy, kind="offload activations")
            yield offloaded, _building(workshop, span, function, offloads=True)


def _building(
    workshop: Workshop, span: Span, function: str, *, offloads: bool = False
) -> Callable[[], Staged]:
    def build() -> Staged:
        jax = workshop.names(span).known.get("jax")
        if jax is None:
            raise TargetError("No name in scope leads to JAX.")
        source = workshop.source(span.file)
        node = _function_of(source, span, function)
        if node is None:
            raise TargetError(f"The call of {function} is written in a way that is not edited.")
        start, end = source.extent(node)
        policy = f", policy={jax}.{_OFFLOAD}" if offloads else ""
        around = [Splice(start, start, f"{jax}.checkpoint("), Splice(end, end, f"{policy})")]
        try:
            return workshop.built(workshop.texts({span.file: around}))
        except SdyscopeError:
            call = source.expression(span)
            if not isinstance(call, cst.Call) or call.func is not node:
                raise
        # What is no array, such as settings, can't be an argument, but can be captured.
        start, end = source.extent(call)
        around = [
            Splice(start, start, f"{jax}.checkpoint(lambda: "),
            Splice(end, end, f"{policy})()"),
        ]
        return workshop.built(workshop.texts({span.file: around}))

    return build


def _calls(
    workshop: Workshop, graph: OpGraph, kept: Mapping[SourceLocation, int]
) -> list[tuple[int, Span, str]]:
    """The calls of the author's functions that make what is kept, the inner ones first.

    With the bytes that are kept of each, and the name of the function.
    """
    lines: dict[tuple[str, int], int] = defaultdict(int)
    for source, bytes_ in kept.items():
        lines[source.file, source.line] += bytes_
    lines_of: dict[tuple[Span, str], set[tuple[str, int]]] = defaultdict(set)
    depths: dict[tuple[Span, str], int] = {}
    for op in graph.operations():
        if phase_of(op.scope, differentiated=True) == "backward":
            continue
        frames = workshop.spans.get(op.id, ())
        inside = {(frame.file, frame.line) for frame in frames} & lines.keys()
        for depth, span in enumerate(frames[1:], 1):
            inner = frames[depth - 1]
            if not inside or not (workshop.editable(span.file) and workshop.editable(inner.file)):
                continue
            function = inner.function.rpartition(".")[2]
            if _function_of(workshop.source(span.file), span, function) is None:
                continue
            within = {(frame.file, frame.line) for frame in frames[:depth]} & inside
            if within:
                lines_of[span, function] |= within
                depths[span, function] = depth
    calls = [
        (sum(lines[line] for line in within), span, function)
        for (span, function), within in lines_of.items()
    ]
    return sorted(calls, key=lambda call: (depths[call[1], call[2]], -call[0]))


def _function_of(source: Source, span: Span, function: str) -> cst.BaseExpression | None:
    """The function in a call of it, or in a call of what maps or scans it."""
    call = source.expression(span)
    if not isinstance(call, cst.Call):
        return None
    first = call.args[0].value if call.args and call.args[0].keyword is None else None
    for node in (call.func, first):
        name = node.attr if isinstance(node, cst.Attribute) else node
        if isinstance(name, cst.Name) and name.value == function:
            return node
    return None
