"""Shardy's own propagation: any mesh, no devices, seconds.

The module goes to HLO and back, as it does inside XLA; its ops are put into XLA's order; what XLA
imports into Shardy's dialect is imported; and Shardy's own passes run. The result is, text for
text, what XLA dumps after propagation (``02.after_propagation.mlir`` of a CPU compile), which the
tests compare on every JAX that is supported. Origins and steps come from another run
(``stages.propagated.debug_info``), when they are asked for.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from sdyscope.annotations import num_partitions
from sdyscope.errors import CompilerError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import DebugInfo, Propagated
from sdyscope.facts.remarks import PropagationSource, Remark
from sdyscope.graph import OpGraph, build
from sdyscope.graph.collection import no_collection
from sdyscope.stages import compat
from sdyscope.stages.align.align import align
from sdyscope.stages.align.tags import copy, tag
from sdyscope.stages.align.values import aligned_values
from sdyscope.stages.lowered.axis_names import garbled_axes
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.stages.propagated.debug_info import (
    WrittenDown,
    begin,
    debug_info,
    propagation_of,
    written_down,
)
from sdyscope.stages.propagated.hlo_order import inline_named
from sdyscope.stages.propagated.passes import run_guarded, through_hlo_guarded
from sdyscope.stages.propagated.propagated_text import propagated_text
from sdyscope.stages.propagated.shardy_import import import_module
from sdyscope.stages.stderr import captured_stderr
from sdyscope.values.sharding import TensorSharding

#: What MLIR says is wrong, without the tag that is the op's location in the copy.
_ERROR = re.compile(r"error: (?:loc\(\"sid\d+\"\): )?([^\n]*)")


def propagate(
    lowered: LoweredModule,
    graph: OpGraph,
    *,
    conservative: bool = False,
    explained: bool = False,
) -> Propagated:
    """What Shardy decides for every value of a module; why, and in which steps, when asked.

    To ask what other annotations would do, change them in a copy of the module
    (``stages.propagated.annotate``) and propagate that: nothing is traced again.

    Args:
        lowered: the module, lowered under Shardy or read from a file with Shardy's shardings.
        graph: its op graph, as ``graph.build`` makes it.
        conservative: only move an axis where no other could want to go, which XLA never asks for.
        explained: whether origins and steps will be asked for: they are made meanwhile.

    Raises:
        CompilerError: the module is not for Shardy, or Shardy or XLA refuse it; says why.
    """
    with no_collection():
        return _propagate(lowered, graph, conservative, explained)


def _propagate(
    lowered: LoweredModule, graph: OpGraph, conservative: bool, explained: bool
) -> Propagated:
    decided = decide(lowered, graph, conservative=conservative, explained=explained)
    return propagated_of(
        lowered,
        graph,
        build(decided.module, named=False),
        source=PropagationSource("passes", jax=compat.version()),
        doubts=decided.doubts,
        written=decided.written,
        read_text=partial(propagated_text, decided.module),
    )


class ShardyModule(NamedTuple):
    """A module after Shardy's propagation.

    Attributes:
        module: the ``ir.Module`` after propagation, with the tags of the lowered module's ops.
        doubts: why XLA might decide otherwise.
        written: waits for what Shardy writes down of it.
    """

    module: Any
    doubts: tuple[Remark, ...]
    written: Callable[[], WrittenDown]


def decide(
    lowered: LoweredModule, graph: OpGraph, *, conservative: bool = False, explained: bool = False
) -> ShardyModule:
    """Runs Shardy's propagation; the arguments, and what it raises, are those of ``propagate``."""
    module, doubts = imported(
        lowered,
        graph,
        lambda module: tag(module, graph, in_attributes=False),
        conservative=conservative,
    )
    asked = propagation_of(module, conservative=conservative)
    begun = begin(asked) if explained else None
    module = run_guarded(module, *asked.passes, bytecode=asked.bytecode)
    return ShardyModule(module, tuple(doubts), partial(written_down, asked, begun))


def propagated_of(
    lowered: LoweredModule,
    graph: OpGraph,
    after: OpGraph,
    partitioner: Partitioner = "shardy",
    *,
    source: PropagationSource,
    read_text: Callable[[], str],
    doubts: tuple[Remark, ...] = (),
    refusal: str = "",
    written: Callable[[], WrittenDown] | None = None,
) -> Propagated:
    """The values of a lowered module in what a propagation made of it.

    Args:
        lowered: the module.
        graph: its op graph.
        after: op graph of the module after propagation, with the tags of ``graph``.
        partitioner: who propagated.
        source: what that was taken from.
        read_text: writes the module after propagation for people.
        doubts: why XLA might decide otherwise.
        refusal: what XLA said of the module after it; empty where it said nothing.
        written: waits for what Shardy writes down of its propagation; None for XLA's dump, which
            says nothing of where axes come from.
    """
    count = max(lowered.num_devices, num_partitions(graph))
    alignment = align(graph, after)
    is_dump = written is None
    read = DebugInfo if written is None else cache(partial(_read_debug_info, written, after, graph))
    values, counts, notes = aligned_values(
        alignment,
        graph,
        after,
        count,
        None if is_dump else lambda value, sharding: read().origins(value, sharding),
    )
    if is_dump and lowered.platforms and "cpu" not in lowered.platforms:
        notes = (Remark("simplified before", lowered.platforms[0]), *notes)
    return Propagated(
        partitioner=partitioner,
        source=source,
        graph=after,
        values=values,
        counts=counts,
        doubts=doubts,
        refusal=refusal,
        not_aligned=tuple(sorted(alignment.retyped)),
        notes=notes,
        read_debug_info=read,
        read_text=read_text,
    )


def _read_debug_info(
    written: Callable[[], WrittenDown], after: OpGraph, graph: OpGraph
) -> DebugInfo:
    return debug_info(written(), after, graph)


def imported(
    lowered: LoweredModule,
    graph: OpGraph,
    copied: Callable[[Any], Any] = copy,
    *,
    conservative: bool = False,
    open_captures: bool = True,
) -> tuple[Any, list[Remark]]:
    """The module that Shardy propagates on, and why XLA might decide otherwise than it does.

    Args:
        lowered: what the module comes from; it stays as it is.
        graph: its op graph.
        copied: makes the copy of its ``ir.Module`` that is imported, with tags for example.
        conservative: whether the propagation is to be conservative.
        open_captures: see ``shardy_import.import_module``.

    Raises:
        CompilerError: the module is not for Shardy.
    """
    annotated = _annotated_for(lowered, graph)
    module = copied(lowered.module)
    doubts = _doubts(lowered, annotated, conservative)
    if compat.named_hlo_shardings() and _has_priorities(graph):
        doubts.append(Remark("priorities lost"))
    if any(op.kind == "sdy.named_computation" for op in graph.ops) and inline_named(module):
        doubts.append(Remark("inlined"))
    try:
        return import_from(lowered, module, open_captures=open_captures), doubts
    except CompilerError as error:
        doubts.append(Remark("not imported", error.message))
        return module, doubts


def _annotated_for(lowered: LoweredModule, graph: OpGraph) -> frozenset[Partitioner]:
    """Whose annotations the module has, from the graph, which is faster than from its text.

    Raises:
        CompilerError: only GSPMD's, or nothing could be read.
    """
    if lowered.module is None:
        raise CompilerError(
            "Shardy can't propagate on a module that MLIR's bindings could not read.",
            file=lowered.path,
        )
    partitioners: set[Partitioner] = set()
    for op in graph.ops:
        if op.kind == "sdy.mesh":
            partitioners.add("shardy")
        elif "mhlo.sharding" in op.attributes:
            partitioners.add("gspmd")
    if partitioners == {"gspmd"} and lowered.written_for == "shardy":
        # HLO that Shardy's annotations went through: they are beside those of HLO.
        partitioners = {"shardy"}
    if lowered.partitioner == "gspmd" or partitioners == {"gspmd"}:
        raise CompilerError(
            f"{lowered.name} has GSPMD's shardings, on which Shardy does not propagate.",
            hint="Lower it under Shardy, or look at what XLA dumps (compiling it).",
        )
    return frozenset(partitioners)


def _doubts(
    lowered: LoweredModule, annotated: frozenset[Partitioner], conservative: bool
) -> list[Remark]:
    """Why XLA might decide otherwise."""
    doubts = []
    if conservative:
        doubts.append(Remark("conservative"))
    if "gspmd" in annotated:
        doubts.append(Remark("both partitioners"))
    if "tpu" in lowered.platforms:
        doubts.append(Remark("simplified for TPU"))
    if not compat.tested_version():
        doubts.append(Remark("not compared", compat.version()))
    return doubts


def _has_priorities(graph: OpGraph) -> bool:
    """Whether some dimension has a user priority."""
    shardings = {sharding for op in graph.ops for sharding in op.shardings if sharding is not None}
    for function in graph.functions.values():
        shardings.update(
            result.sharding for result in function.results if result.sharding is not None
        )
    return any(
        dim.priority is not None
        for sharding in shardings
        if isinstance(sharding, TensorSharding)
        for dim in sharding.dim_shardings
    )


def import_from(lowered: LoweredModule, module: Any, *, open_captures: bool = True) -> Any:
    """The module that XLA propagates on, before it does: a new one, in the context of the old.

    Args:
        lowered: what the module came from.
        module: its ``ir.Module``, tagged or changed or as it is.
        open_captures: see ``shardy_import.import_module``.

    Raises:
        CompilerError: XLA refuses the module.
    """
    if garbled := garbled_axes(lowered):
        raise CompilerError(
            f"XLA can't import {lowered.name}: it garbles names of mesh axes with a quote, a "
            f"backslash or what is not printable ASCII: {', '.join(map(repr, garbled))}."
        )
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    with lowered.context, captured_stderr():
        try:
            parsed = compat.ir.Module.parse(through_hlo_guarded(file.getvalue()))
            attributes = module.operation.attributes
            # The number of partitions is the compiler's, not the computation's: it gets lost.
            if "mhlo.num_partitions" in attributes:
                parsed.operation.attributes["mhlo.num_partitions"] = attributes[
                    "mhlo.num_partitions"
                ]
            import_module(parsed, open_captures=open_captures)
        except CompilerError:
            raise
        except Exception as error:  # XlaRuntimeError and MLIRError, by several names
            match = _ERROR.search(str(error))
            said = (match[1] if match else str(error).strip().partition("\n")[0]).strip(" .")
            raise CompilerError(f"XLA can't import {lowered.name}: {said}.") from error
    return parsed
