"""What XLA's compiler for CPUs has decided when only machine code is left to be made.

It then dumps a module with its buffer assignment, an ``HloProto`` of ``xla/service/hlo.proto``.
What a device sends, runs and holds is in it; the code, which nobody runs, takes a third of a
compile and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sdyscope.stages import compat
from sdyscope.stages.compile_options import CompilerOption
from sdyscope.syntax.protobuf import encoded, fields

_DUMP, _TEXT = ".cpu_after_optimizations.hlo.pb", ".cpu_after_optimizations.txt"
#: The last computation of a text, and how that ends.
_ENTRY, _TEXT_END = b"\nENTRY ", b"\n}\n\n"

#: Ops that XLA may have no code for on CPUs, which it says when it makes the code.
_REFUSABLE = (
    *("custom-call", "ragged-all-to-all", "collective-broadcast", "async-start", "copy-start"),
    *("send", "recv", "infeed", "outfeed"),
)

#: Fields of an HloProto.
_MODULE, _ASSIGNMENT = 1, 3
#: Of a BufferAssignmentProto.
_ALLOCATIONS = 3
#: Of a BufferAllocationProto; one that is false is not written.
_SIZE, _THREAD_LOCAL, _ARGUMENT, _OUTPUT, _CONSTANT, _ALIASED = 2, 3, 5, 7, 12, 13
#: Of an HloInstructionProto.
_OPCODE = 2


class Dump(NamedTuple):
    """What XLA has written down of a module.

    Attributes:
        text: the module's text, as that of an executable.
        module: the ``HloModuleProto``.
        assignment: the ``BufferAssignmentProto``.
    """

    text: str
    module: bytes
    assignment: bytes


class Assigned(NamedTuple):
    """A module that is compiled but for its machine code.

    Attributes:
        module: jaxlib's ``HloModule``.
        text: its text, as that of an executable.
        memory: ``CompiledMemoryStats`` of an executable of it, in bytes, by their names without
            ``_in_bytes``.
    """

    module: Any
    text: str
    memory: Mapping[str, int]


def dump_options(folder: Path) -> list[tuple[str, CompilerOption]]:
    """Debug options with which XLA dumps the module with its buffer assignment into a folder."""
    options: list[tuple[str, CompilerOption]] = [
        ("xla_dump_to", str(folder)),
        ("xla_dump_hlo_pass_re", "NOTHING"),
        ("xla_dump_hlo_as_proto", True),
        ("xla_dump_hlo_as_text", True),
    ]
    if compat.version_tuple() >= (0, 11):
        # Else operands are written that are no instructions: `%tuple#0`.
        options.append(("xla_dump_compact_gte", False))
    return options


def dumped(folder: Path) -> Dump | None:
    """What is dumped in a folder, once it is whole.

    Which of the two files is whole first is not known: newer XLA writes text in threads.
    """
    paths = list(folder.glob(f"*{_DUMP}"))
    texts = list(folder.glob(f"*{_TEXT}"))
    if len(paths) != 1 or len(texts) != 1:
        return None
    proto, text = paths[0].read_bytes(), texts[0].read_bytes()
    entry = text.find(_ENTRY)
    if entry < 0 or not text[entry:].endswith(_TEXT_END):
        return None
    try:
        parts = dict(fields(proto))
        # It is the last that is written.
        assignment = parts[_ASSIGNMENT]
    except (IndexError, KeyError):
        return None
    return Dump(text.decode(), parts[_MODULE], assignment)


def is_accepted(dump: Dump) -> bool:
    """Whether XLA can make code of a module: some ops it refuses only then."""
    return not any(encoded(_OPCODE, opcode.encode()) in dump.module for opcode in _REFUSABLE)


def assigned(dump: Dump) -> Assigned:
    """What is in a dump."""
    # Its own text is without its configuration, and numbers source lines anew.
    module = compat.hlo.HloModule.from_serialized_hlo_module_proto(dump.module)
    return Assigned(module, dump.text, _memory(dump.assignment))


def _memory(assignment: bytes) -> dict[str, int]:
    """The statistics of a ``BufferAssignmentProto``.

    As ``CompiledMemoryStats::PopulateBufferStatsFromAllocations`` of XLA counts them
    (``xla/pjrt/compiled_memory_stats.cc``), and the peak as it is of CPUs: without temporaries.
    """
    arguments = aliases = outputs = temporaries = peak = 0
    for field, allocation in fields(assignment):
        if field != _ALLOCATIONS:
            continue
        allocated = dict(fields(allocation))
        size = allocated.get(_SIZE, 0)
        is_argument, is_output = _ARGUMENT in allocated, _OUTPUT in allocated
        arguments += size * is_argument
        aliases += size * (is_argument and _ALIASED in allocated)
        outputs += size * is_output
        if _THREAD_LOCAL in allocated:
            continue
        if is_argument or is_output or _CONSTANT in allocated:
            peak += size
        else:
            temporaries += size
    return {
        "argument_size": arguments,
        "output_size": outputs,
        "alias_size": aliases,
        "temp_size": temporaries,
        "generated_code_size": 0,
        "peak_memory": peak,
    }
