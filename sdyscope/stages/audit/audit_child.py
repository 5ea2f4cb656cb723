"""The process that audits: it compiles plainly, has XLA write down what it does, and reads that.

Every op of the module is called by its number in the order in which ops begin, which is this
reader's own count. The numbers come back in HLO's metadata.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
    Layout,
)
from sdyscope.stages.audit.hlo_dump import (
    DumpedHlo,
    DumpedInstruction,
    collectives,
    layout,
    moved,
    shapes,
)
from sdyscope.stages.audit.names import TAG, named_ops, opcodes_of, types_of
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
        )
        for operation in operations
    ]


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


class _Layouts:
    """Numbers layouts, each text and rank once."""

    def __init__(self) -> None:
        self.layouts: list[Layout] = []
        self._known: dict[tuple[str, int], int] = {}

    def of(self, text: str, rank: int) -> int:
        key = text, rank
        if key not in self._known:
            self._known[key] = len(self.layouts)
            self.layouts.append(layout(text, rank, compat.hlo))
        return self._known[key]

    def each(self, instruction: DumpedInstruction) -> list[int]:
        """Of each array of an instruction's type."""
        arrays = shapes(instruction.type)
        texts = [instruction.sharding] * len(arrays)
        if instruction.sharding.startswith("{{"):
            parts = compat.hlo.HloSharding.from_string(instruction.sharding).tuple_elements()
            texts = [str(part) for part in parts]
        return [self.of(text, len(dims)) for text, (_, dims) in zip(texts, arrays, strict=True)]


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
    layouts = _Layouts()
    values: dict[int, list[list[int]]] = defaultdict(list)
    resharded: dict[int, list[list[int]]] = {}
    carried: dict[int, list[list[int]]] = defaultdict(list)
    arguments: list[int] = []
    results: list[int] = []
    if before:
        module = DumpedHlo.parse(before[-1].read_text(), compat.hlo)
        copies: dict[int, list[DumpedInstruction]] = defaultdict(list)
        makers: dict[int, list[str]] = defaultdict(list)
        for instruction in module.instructions.values():
            for number in named_ops(instruction.op_name):
                places = _places(instruction, ops[number]) if number < len(ops) else []
                if not places:
                    if instruction.opcode == "copy":
                        copies[number].append(instruction)
                    continue
                makers[number].append(instruction.name)
                values[number].append(_at(places, layouts.each(instruction)))
                if instruction.opcode == "while":
                    inside = module.computations[module.body(instruction)]
                    (given,) = (each for each in inside if each.opcode == "parameter")
                    carried[number].append(_at(places, layouts.each(given)))
        for number, instructions in copies.items():
            resharded[number] = _copied(makers[number], instructions, layouts)
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
            laid = Laid(ops, _alike(values, layouts), [layouts.layouts[at] for at in arguments])
            ways = Ways(moved_in, asked.num_partitions, laid)
            takers = Takers(moved_in, asked.num_partitions, ways)
        for collective in collectives(compiled, asked.num_partitions):
            numbers = [number for number in named_ops(collective.scopes[0]) if number < len(ops)]
            scopes = [names[number] for number in numbers]
            along = collective.along
            if collective.kind == "collective-permute" and collective.is_of_result:
                own = {at for number in numbers for each in values.get(number, ()) for at in each}
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
        dict(values),
        resharded,
        dict(carried),
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


def _alike(values: dict[int, list[list[int]]], layouts: _Layouts) -> dict[int, Layout]:
    """The layouts of ops with one result that have the same wherever XLA has them."""
    return {
        number: layouts.layouts[own[0]]
        for number, instances in values.items()
        if all(each == instances[0] for each in instances)
        and len(own := instances[0]) == 1
        and own[0] >= 0
    }


def _copied(
    makers: Sequence[str], copies: Iterable[DumpedInstruction], layouts: _Layouts
) -> list[list[int]]:
    """The layouts that what each instruction makes is copied to.

    A copy of a copy is one of what that is of; of another op, which XLA put in between, it is taken
    to be of each.
    """
    copied: list[list[int]] = [[] for _ in makers]
    of: dict[str, tuple[int, ...]] = {name: (place,) for place, name in enumerate(makers)}
    for copy in copies:
        places = of.get(copy.operands[0], tuple(range(len(makers))))
        of[copy.name] = places
        for place in places:
            copied[place] += layouts.each(copy)
    return copied


def _places(instruction: DumpedInstruction, op: AuditedOp) -> list[int]:
    """Where an instruction that is an op has its results; -1 for what is not known.

    Nothing where it is another op, one that was made on the way.
    """
    mine, theirs = list(types_of(op)), shapes(instruction.type)
    if instruction.opcode not in opcodes_of(op):
        return []
    if instruction.opcode == "while":
        # What never changes is put behind the rest: only a type that there is once is told apart.
        alone = [type_ for type_ in mine if mine.count(type_) == theirs.count(type_) == 1]
        return [theirs.index(type_) if type_ in alone else -1 for type_ in mine]
    return list(range(len(mine))) if mine == theirs else []


def _at(places: list[int], layouts: list[int]) -> list[int]:
    return [place if place < 0 else layouts[place] for place in places]
