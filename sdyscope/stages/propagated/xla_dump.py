"""What XLA itself propagates, from the dump of a compile: exact, under both partitioners.

The module is tagged and compiled for virtual CPU devices, up to 2,048 of them, and the compile ends
as soon as propagation is dumped. It runs in a process of its own: it can abort in C++, and the
number of JAX's CPU devices is fixed once it has some. Each compile is a fork of one process that
has imported what it takes.
"""

from __future__ import annotations

import io
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sdyscope.annotations import num_partitions
from sdyscope.errors import CompilerError, FallbackError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.facts.remarks import PropagationSource
from sdyscope.graph import Argument, OpGraph, Result, build
from sdyscope.graph.custom_calls import CUSTOM_PARTITIONING
from sdyscope.graph.tags import sids
from sdyscope.hardware.names import LARGEST_CPU
from sdyscope.process.compiler_log import (
    last_line,
    last_words,
    refusal,
    rematerializing_lines,
    signal_name,
)
from sdyscope.process.scratch import scratch_folder
from sdyscope.process.worker import Worker, WorkerDiedError
from sdyscope.stages import compat, inspections
from sdyscope.stages.align.align import Alignment
from sdyscope.stages.align.tags import tag
from sdyscope.stages.align.values import aligned_values
from sdyscope.stages.conversion import hlo_to_stablehlo
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.stages.propagated import xla_child
from sdyscope.stages.propagated.hlo_shardings import mark_branches, restore_shardings
from sdyscope.stages.propagated.propagate import propagated_of
from sdyscope.stages.propagated.propagated_text import propagated_text
from sdyscope.stages.stderr import captured_stderr
from sdyscope.values.convert import unspecified_dims
from sdyscope.values.source import IN_TEXT
from sdyscope.values.tiling import TupleSharding

#: What XLA says where it leaves Shardy.
_FELL_BACK = "Module has GSPMD attrs or ops, but Shardy is enabled"
_OP_NAME = re.compile(r'(?:op_name=|\bloc\()"([^"]*)"')
#: Custom calls that XLA knows without JAX.
_KNOWN_CALLS = frozenset(
    {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", inspections.TARGET}
)


_worker = Worker(f"from {__package__} import xla_child; xla_child.serve()")


class XlaModule(NamedTuple):
    """A module after the propagation of XLA's compiler.

    Attributes:
        module: the ``ir.Module`` after propagation, with the tags of the lowered module's ops.
        graph: its op graph.
        source: what it was taken from.
        refusal: what XLA then said of the module, where it did; empty otherwise.
    """

    module: Any
    graph: OpGraph
    source: PropagationSource
    refusal: str


class Dump(NamedTuple):
    """What XLA wrote down after propagation.

    Attributes:
        name: the dump's file name.
        text: Shardy's module, or the HLO module after GSPMD's propagation.
        refusal: what XLA then said of the module, where it did; empty otherwise.
        rematerializations: lines of the log about reshardings that make a tensor whole; known of a
            partitioned program.
    """

    name: str
    text: str
    refusal: str
    rematerializations: tuple[str, ...]


def propagated_by_xla(
    lowered: LoweredModule, graph: OpGraph, partitioner: Partitioner | None = None
) -> Propagated:
    """The shardings that XLA's CPU compiler gives every value of a module.

    Args:
        lowered: the module.
        graph: its op graph.
        partitioner: which one; the one that it was lowered for, or whose shardings it has.

    Raises:
        CompilerError: XLA refuses the module or aborts on it, does not run this partitioner on it,
            or there are more partitions than its CPU client takes.
    """
    chosen = partitioner or lowered.compiled_under
    if _partitions(lowered, graph) == 1:
        return _one_partition(lowered, graph, chosen)
    decided = decided_by_xla(lowered, graph, chosen)
    return propagated_of(
        lowered,
        graph,
        decided.graph,
        chosen,
        source=decided.source,
        refusal=decided.refusal,
        read_text=partial(propagated_text, decided.module),
    )


def decided_by_xla(lowered: LoweredModule, graph: OpGraph, partitioner: Partitioner) -> XlaModule:
    """Has XLA compile a module for several CPU devices until it is propagated.

    Raises:
        CompilerError: as of ``propagated_by_xla``.
    """
    count = _partitions(lowered, graph)
    if partitioner == "gspmd" and any(
        op.call_target == CUSTOM_PARTITIONING for op in graph.operations()
    ):
        raise CompilerError(
            "Under GSPMD custom_partitioning asks Python for its shardings, which a compile in "
            "another process can't do.",
            hint="Use --partitioner shardy, and give custom_partitioning a sharding_rule.",
        )
    dump = xla_dump(tag(lowered.module, graph), graph, partitioner, count)
    after, module = read_dump(dump, partitioner, lowered.context)
    source = PropagationSource("dump", devices=count, dump=dump.name)
    return XlaModule(module, after, source, dump.refusal)


def _partitions(lowered: LoweredModule, graph: OpGraph) -> int:
    return max(lowered.num_devices, num_partitions(graph))


def _one_partition(lowered: LoweredModule, graph: OpGraph, partitioner: Partitioner) -> Propagated:
    """XLA has nothing to propagate for one device, and every value is whole on it."""
    pairs: dict[ValueId, list[ValueId | None]] = {
        (op.id, result): [(op.id, result)]
        for op in graph.without_results()
        for result in range(len(op.types))
    }
    values, counts, notes = aligned_values(Alignment(pairs), graph, graph, 1)
    return Propagated(
        partitioner=partitioner,
        source=PropagationSource("lowered module"),
        graph=graph,
        values=values,
        counts=counts,
        notes=notes,
        read_text=partial(lowered.text, debug_info=False),
    )


def xla_dump(
    module: Any,
    graph: OpGraph,
    partitioner: Partitioner,
    count: int,
    *,
    explained: bool = False,
    partitioned: bool = False,
) -> Dump:
    """Compiles a module for ``count`` CPU devices until it is propagated, or partitioned.

    Args:
        module: an ``ir.Module``, tagged.
        graph: the op graph of the same module without tags.
        partitioner: whose propagation.
        count: number of partitions.
        explained: whether Shardy writes down its origins and steps, too.
        partitioned: whether to go on until it is partitioned, and dump the HLO then.

    Raises:
        CompilerError: XLA refuses or aborts before, does not run this partitioner, or takes fewer
            partitions.
    """
    if count > LARGEST_CPU:
        raise CompilerError(
            f"XLA compiles for at most {LARGEST_CPU:,} CPU devices, and the program has "
            f"{count:,} partitions.",
            hint="Use a smaller mesh, or propagate without compiling (Shardy only).",
        )
    bytecode = io.BytesIO()
    module.operation.write_bytecode(bytecode)
    options = {
        "num_partitions": count,
        "shardy": partitioner == "shardy",
        "explained": explained,
        "partitioned": partitioned,
        "registers_calls": any(
            op.kind == "stablehlo.custom_call" and op.call_target not in _KNOWN_CALLS
            for op in graph.operations()
        ),
        **free_boundaries(graph),
    }
    with scratch_folder() as name:
        folder = Path(name)
        (folder / xla_child.MODULE).write_bytes(bytecode.getvalue())
        (folder / xla_child.OPTIONS).write_text(json.dumps(options))
        try:
            status = int(_worker.ask(os.fsencode(name)))
        except WorkerDiedError as died:
            raise CompilerError(f"XLA's compiler could not be run ({died.how}).") from died
        said, log = (
            (folder / written).read_text(errors="replace")
            for written in (xla_child.SAID, xla_child.LOG)
        )
        refused = said if status == xla_child.REFUSED else ""
        path = xla_child.finished(folder, partitioned)
        if path is not None:
            logged = rematerializing_lines(log)
            return Dump(path.name, path.read_text(), refusal(refused), logged)
    check_fallback(partitioner, log)
    if refused:
        raise _refusal(refused, graph)
    raise CompilerError(_how_it_ended(status, log))


def check_fallback(partitioner: Partitioner, log: str) -> None:
    """Checks by what XLA logged that it ran the partitioner that it was asked for.

    Raises:
        FallbackError: it left Shardy for GSPMD, about which it is silent otherwise.
    """
    if partitioner == "shardy" and _FELL_BACK in log:
        raise FallbackError(
            "XLA did not run Shardy on this module, which has GSPMD's shardings too, but fell "
            "back to GSPMD silently.",
            hint="Lower all of the program under one partitioner.",
        )


def free_boundaries(graph: OpGraph) -> dict[str, list[bool]]:
    """Of which arguments and results the partitioner may choose the sharding, as JAX tells XLA."""
    main = graph.main
    return {
        "parameters": [_is_free(argument) for argument in main.arguments] if main else [],
        "results": [_is_free(result) for result in main.results] if main else [],
    }


def _is_free(boundary: Argument | Result) -> bool:
    sharding = boundary.sharding
    if sharding is None:
        return True
    if isinstance(sharding, str | TupleSharding):
        return False  # Something is written, readable or not: JAX would not leave it to XLA.
    is_result = isinstance(boundary, Result)
    return is_result and bool(unspecified_dims(sharding, len(boundary.type.shape or ())))


def _refusal(said: str, graph: OpGraph) -> CompilerError:
    """What XLA says, at the source line of the first op that it names by its tag."""
    named = [
        graph.ops[node]
        for name in _OP_NAME.findall(said)
        for node in sids(name)[-1:]
        if node < len(graph.ops)
    ]
    scopes = ", ".join(dict.fromkeys(op.scope or op.name for op in named))
    lines = (op.source for op in named)
    # A line of the module's own text is of the one that XLA was handed.
    line = next((line for line in lines if line is not None and line.file != IN_TEXT), None)
    return CompilerError(
        f"XLA refuses the module: {refusal(said)}{f' ({scopes})' if scopes else ''}.",
        file=line.file if line else None,
        line=line.line if line else None,
    )


def _how_it_ended(status: int, log: str) -> str:
    why = last_words(log)
    if status < 0:
        name = signal_name(-status)
        return f"XLA's compiler aborted ({name}): {why or 'it said nothing'}."
    if status == 0:
        return "XLA compiled the module and wrote no dump of its propagation."
    why = why or last_line(log) or "no message"
    return f"XLA's compiler could not be run (status {status}): {why}."


def read_dump(dump: Dump, partitioner: Partitioner, context: Any) -> tuple[OpGraph, Any]:
    """The op graph of a dumped module, and its ``ir.Module``; HLO is turned into StableHLO by XLA.

    Raises:
        CompilerError: XLA can't read or turn what it wrote.
    """
    with captured_stderr():
        try:
            if partitioner == "shardy":
                module = compat.ir.Module.parse(dump.text, context)
                return build(module), module
            hlo = compat.hlo.hlo_module_from_text(dump.text)
            bytecode = hlo_to_stablehlo(hlo.as_serialized_hlo_module_proto())
            module = compat.ir.Module.parse(bytecode, context)
            restore_shardings(module, dump.text)
            mark_branches(module, dump.text)
            return build(module), module
        except Exception as error:  # MLIRError or XlaRuntimeError, by several names
            raise CompilerError(f"XLA's own dump can't be read: {refusal(str(error))}") from error
