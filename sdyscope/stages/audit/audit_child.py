"""The process that audits: it compiles plainly, has XLA write down what it does, and reads that.

Every op of the module is called by its number in the order in which ops begin, which is this
reader's own count. The numbers come back in HLO's metadata.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from jaxlib import _jax, xla_client

from sdyscope.process import worker
from sdyscope.process.scratch import scratch_folder
from sdyscope.stages import compat, inspections
from sdyscope.stages.audit.facts import (
    SUMS,
    Audited,
    AuditedCollective,
    AuditedMove,
    AuditedOp,
    AuditRequest,
)
from sdyscope.stages.audit.hlo_dump import DumpedHlo, collectives, moved
from sdyscope.stages.audit.laid_out import LaidOut, Layouts, laid_out
from sdyscope.stages.audit.names import TAG, named_ops
from sdyscope.stages.audit.takers import Takers
from sdyscope.stages.audit.ways import Laid, Ways
from sdyscope.stages.compile_options import compile_options, compiled_with
from sdyscope.stages.recorder.memory import memory_statistics

#: Flags of XLA: only what is needed, or every fusion's machine code is written too.
_PASSES = ("shardy-xla", "sharding-propagation")
_PARTITIONING = "spmd-partitioning"
_BEFORE_PARTITIONING = {
    True: "*after_shardy-xla.before_*.txt",
    False: "*after_sharding-propagation.before_*.txt",
}
_PARTITIONED = f"*after_{_PARTITIONING}.before_*.txt"
_FINAL = "*after_optimizations.txt"


def serve() -> None:
    """Answers requests until the parent closes the pipe."""
    worker.serve(_answer)


def _answer(request: bytes) -> bytes:
    asked = msgspec.msgpack.decode(request, type=AuditRequest)
    return msgspec.msgpack.encode(audit(asked))


def audit(asked: AuditRequest) -> Audited:
    """Compiles a module and reads XLA's dumps of it."""
    context = compat.new_context()
    module = compat.ir.Module.parse(asked.bytecode, context)
    numbered = list(_operations(module.operation))
    ops, names = _read_ops(numbered), [_name(op) for op in numbered]
    free = _free(_main(module))
    with context:
        for number, operation in enumerate(numbered):
            operation.location = compat.ir.Location.name(
                TAG.format(number), childLoc=operation.location
            )
            if _target(operation) == inspections.TARGET:
                operation.attributes["backend_config"] = compat.ir.StringAttr.get(inspections.MARK)
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    with scratch_folder() as folder:
        try:
            memory = _compile(inspections.answered(file.getvalue()), asked, free, folder)
            refused = ""
        except Exception as error:  # XlaRuntimeError, by several names
            memory, refused = {}, str(error).strip().partition("\n")[0]
        return _read(Path(folder), asked, ops, names, memory, refused)


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                yield view.operation
                yield from _operations(view.operation)


def _read_ops(operations: list[Any]) -> list[AuditedOp]:
    positions: dict[Any, tuple[int, int, int]] = {}
    for number, operation in enumerate(operations):
        for place, result in enumerate(operation.results):
            positions[result] = number, -1, place
        for region, inside in enumerate(operation.regions):
            for block in inside.blocks:
                for place, argument in enumerate(block.arguments):
                    positions[argument] = number, region, place
    return [
        AuditedOp(
            operation.name,
            [str(result.type) for result in operation.results],
            [positions[operand] for operand in operation.operands],
            _target(operation),
            [*_kept(operation)],
        )
        for operation in operations
    ]


def _kept(operation: Any) -> Iterator[int]:
    """Of a loop, the places of what its body returns as it is given."""
    if operation.name == "stablehlo.while":
        body = operation.regions[1].blocks[0]
        returned = body.operations[len(body.operations) - 1].operands
        for place, (given, value) in enumerate(zip(body.arguments, returned, strict=True)):
            if given == value:
                yield place


def _target(operation: Any) -> str:
    if "call_target_name" not in operation.attributes:
        return ""
    return str(compat.text(operation.attributes["call_target_name"]))


def _name(operation: Any) -> str:
    """Its name and innermost line: many ops have one name."""
    location = str(operation.location)
    name = re.match(r'loc\("((?:[^"\\]|\\.)*)"', location)
    line = re.search(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)', location)
    return " at ".join([name[1] if name else "", *([":".join(line.groups())] if line else [])])


def _main(module: Any) -> Any:
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    named = [op for op in functions if compat.text(op.attributes["sym_name"]) == "main"]
    return (named or functions)[0]


def _free(main: Any) -> tuple[list[bool], list[bool]]:
    """Which arguments and results XLA may shard as it likes: where nothing is written, or open."""
    written = [
        [str(each) for each in main.attributes[name]] if name in main.attributes else []
        for name in ("arg_attrs", "res_attrs")
    ]
    type_ = compat.ir.FunctionType(compat.ir.TypeAttr(main.attributes["function_type"]).value)
    texts = [
        each or [""] * len(types)
        for each, types in zip(written, (type_.inputs, type_.results), strict=True)
    ]
    has = re.compile(r"(?:sdy|mhlo)\.sharding = ")
    arguments = [not has.search(text) for text in texts[0]]
    results = [not has.search(text) or "?" in text for text in texts[1]]
    return arguments, results


def _compile(
    bytecode: bytes, asked: AuditRequest, free: tuple[list[bool], list[bool]], folder: str
) -> dict[str, int]:
    count = asked.num_partitions
    client: Any = xla_client.make_cpu_client(num_devices=count)
    options = compile_options(
        range(count), shardy=asked.shardy, parameters=free[0], results=free[1]
    )
    devices = _jax.DeviceList(tuple(client.devices()))
    passes = (*_PASSES, _PARTITIONING) if asked.moves else _PASSES
    dumps = (("xla_dump_hlo_as_text", True), ("xla_dump_hlo_pass_re", "|".join(passes)))
    executable = compiled_with(
        lambda _: client.compile_and_load(bytecode, devices, options),
        options,
        [("xla_dump_to", folder), *dumps],
        asked.compiler_options,
    )
    return memory_statistics(executable)


def _read(
    folder: Path,
    asked: AuditRequest,
    ops: list[AuditedOp],
    names: list[str],
    memory: dict[str, int],
    refused: str,
) -> Audited:
    # Of several propagations the last counts: names begin with the number of the pass.
    before = sorted(folder.glob(_BEFORE_PARTITIONING[asked.shardy]))
    final = sorted(folder.glob(_FINAL))
    layouts = Layouts()
    laid = LaidOut()
    arguments: list[int] = []
    results: list[int] = []
    if before:
        module = DumpedHlo.parse(before[-1].read_text(), compat.hlo)
        laid = laid_out(module, ops, layouts)
        arguments = [
            number for parameter in module.parameters for number in layouts.each(parameter)
        ]
        results = layouts.each(module.root(module.entry))
    communicated: list[AuditedCollective] = []
    argument_bytes = 0
    if final and not refused:
        compiled = DumpedHlo.parse(final[-1].read_text(), compat.hlo)
        partitioned = sorted(folder.glob(_PARTITIONED))
        takers = None
        moved_in = parsed_partitioned(partitioned[-1]) if asked.moves and partitioned else None
        if moved_in is not None:
            alike = laid.alike(layouts)
            known = Laid(ops, alike, [layouts.layouts[at] for at in arguments])
            ways = Ways(moved_in, asked.num_partitions, known)
            takers = Takers(moved_in, asked.num_partitions, ways)
        for collective in collectives(compiled, asked.num_partitions):
            numbers = [number for number in named_ops(collective.scopes[0]) if number < len(ops)]
            scopes = [names[number] for number in numbers]
            along = collective.along
            if collective.kind == "collective-permute" and collective.is_of_result:
                own = {
                    at for number in numbers for each in laid.values.get(number, ()) for at in each
                }
                along = moved(collective.groups, [layouts.layouts[at] for at in own if at >= 0])
            moves: list[AuditedMove] = []
            if takers is not None and collective.kind not in SUMS:
                instruction = compiled.instructions[collective.name]
                moves = takers.moves(instruction)
            communicated.append(
                msgspec.structs.replace(
                    collective, ops=numbers, scopes=scopes, along=along, moves=moves
                )
            )
        argument_bytes = sum(parameter.bytes for parameter in compiled.parameters)
    return Audited(
        refused,
        ops,
        layouts.layouts,
        dict(laid.values),
        laid.resharded,
        dict(laid.carried),
        arguments,
        results,
        before[-1].name if before else "",
        communicated,
        memory,
        argument_bytes,
    )


def parsed_partitioned(dump: Path) -> DumpedHlo | None:
    """What XLA's partitioner made; None where XLA can't read what it wrote.

    The layouts that a custom call asks for keep the whole operand's shape there.
    """
    try:
        return DumpedHlo.parse(dump.read_text(), compat.hlo)
    except Exception as error:  # XLA's own, of any type
        if "layout constraint" not in str(error):
            raise
        return None
