"""What XLA's compiler for CPUs or GPUs has decided when only machine code is left to be made.

It then dumps a module with its buffer assignment, an ``HloProto`` of ``xla/service/hlo.proto``.
What a device sends, runs and holds is in it; the code, which nobody runs, takes a third of a
compile for CPUs and more, and four fifths of one for GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sdyscope.hardware.names import HardwarePlatform
from sdyscope.stages import compat
from sdyscope.stages.compile_options import CompilerOption
from sdyscope.syntax.protobuf import encoded, fields

#: How the names of the two files end; before that stands a CPU's or a GPU's kind: `sm_9.0a_gpu`.
_DUMP, _TEXT = "pu_after_optimizations.hlo.pb", "pu_after_optimizations.txt"
#: The last computation of a text, and how that ends.
_ENTRY, _TEXT_END = b"\nENTRY ", b"\n}\n\n"

#: Ops that not every platform has, or not for every program.
_RARE = (
    *("ragged-all-to-all", "collective-broadcast", "copy-start"),
    *("send", "recv", "infeed", "outfeed"),
)
#: Ops that XLA may have no code for, which it says when it makes the code.
_REFUSABLE: Mapping[HardwarePlatform, Sequence[str]] = {
    "cpu": ("async-start", *_RARE),
    "cuda": _RARE,
}
#: What it makes such a dump of.
PLATFORMS = frozenset(_REFUSABLE)
#: Of custom calls only those to libraries that XLA itself has put in are known to have code.
_LIBRARY_CALLS = (
    *("__cublas$gemm", "__cublas$lt$matmul", "__cublas$triangularSolve", "__gpu$TopK"),
    *("__cudnn$convForward", "__cudnn$convBackwardFilter", "__cudnn$convBackwardInput"),
)

#: Fields of an HloProto.
_MODULE, _ASSIGNMENT = 1, 3
#: Of a BufferAssignmentProto; of what is 0 or false nothing is written, here and below.
_BUFFERS, _ALLOCATIONS, _TRACES = 1, 3, 4
#: Of a LogicalBufferProto.
_ID = 1
#: Of that and of a BufferAllocationProto.
_SIZE = 2
#: Of a BufferAllocationProto.
_THREAD_LOCAL, _ARGUMENT, _OUTPUT, _COLOR, _CONSTANT, _ALIASED = 3, 5, 7, 8, 12, 13
#: Of each memory; there is no code.
_STATISTICS = ("argument_size", "output_size", "alias_size", "temp_size", "generated_code_size")
#: The colour of the host's memory (``Layout::kHostMemorySpace``).
_HOST = 5
#: Of a HeapSimulatorTrace, of its events, and their kinds.
_EVENTS, _KIND, _BUFFER, _SHARED = 1, 1, 2, 5
_ALLOC, _FREE, _SHARE_WITH = 0, 1, 2
#: Of an HloInstructionProto.
_OPCODE, _CALL_TARGET = 2, 28


class BufferDump(NamedTuple):
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


def dumped(folder: Path) -> BufferDump | None:
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
    except (ValueError, KeyError):
        return None
    return BufferDump(text.decode(), parts[_MODULE], assignment)


def is_accepted(dump: BufferDump, platform: HardwarePlatform) -> bool:
    """Whether XLA can make code of a module for a platform: some ops it refuses only then."""
    module = dump.module
    if any(encoded(_OPCODE, opcode.encode()) in module for opcode in _REFUSABLE[platform]):
        return False
    calls = module.count(encoded(_OPCODE, b"custom-call"))
    known = (encoded(_CALL_TARGET, target.encode()) for target in _LIBRARY_CALLS)
    return calls == sum(map(module.count, known))


def assigned(dump: BufferDump, platform: HardwarePlatform) -> Assigned:
    """What is in a dump for a platform."""
    module = compat.hlo.HloModule.from_serialized_hlo_module_proto(dump.module)
    text = dump.text
    if platform != "cpu":
        # A plugin hands over an executable's module as this proto, which has no configuration.
        text = text.partition("\n")[0] + "\n" + module.to_string().partition("\n")[2]
    return Assigned(module, text, statistics_of(dump.assignment, platform))


def statistics_of(assignment: bytes, platform: HardwarePlatform) -> dict[str, int]:
    """The statistics of a ``BufferAssignmentProto``.

    As ``CompiledMemoryStats::PopulateBufferStatsFromAllocations`` of XLA counts them
    (``xla/pjrt/compiled_memory_stats.cc``). The peak is what stays, and the most that is held in
    the heap, which XLA does not count for CPUs.
    """
    totals: Counter[str] = Counter()
    sizes: dict[int, int] = {}
    for field, message in fields(assignment):
        if field == _BUFFERS:
            buffer = dict(fields(message))
            sizes[buffer.get(_ID, 0)] = buffer.get(_SIZE, 0)
        if field == _TRACES and platform != "cpu":
            totals["peak_memory"] += _heap_peak(message, sizes)
        if field != _ALLOCATIONS:
            continue
        allocated = dict(fields(message))
        size = allocated.get(_SIZE, 0)
        memory = "host_" if allocated.get(_COLOR) == _HOST else ""
        is_argument, is_output = _ARGUMENT in allocated, _OUTPUT in allocated
        totals[f"{memory}argument_size"] += size * is_argument
        totals[f"{memory}alias_size"] += size * (is_argument and _ALIASED in allocated)
        totals[f"{memory}output_size"] += size * is_output
        if _THREAD_LOCAL in allocated:
            continue
        stays = is_argument or is_output or _CONSTANT in allocated
        totals["peak_memory" if stays else f"{memory}temp_size"] += size
    host = [f"host_{name}" for name in _STATISTICS]
    return {name: totals[name] for name in ("peak_memory", *_STATISTICS, *host)}


def _heap_peak(trace: bytes, sizes: Mapping[int, int]) -> int:
    """The most bytes that are held at a time, by a ``HeapSimulatorTrace``.

    Args:
        trace: the trace. What shares a buffer keeps it until the last one is freed.
        sizes: bytes of each logical buffer, by its id.
    """
    held = peak = 0
    owners: dict[int, int] = {}
    holders: Counter[int] = Counter()
    for field, message in fields(trace):
        if field != _EVENTS:
            continue
        event = dict(fields(message))
        kind, buffer = event.get(_KIND, _ALLOC), event.get(_BUFFER, 0)
        if kind == _FREE:
            owner = owners[buffer]
            holders[owner] -= 1
            held -= sizes[owner] * (not holders[owner])
            continue
        # The one that it is shared with may have been freed just before.
        owner = owners[buffer] = owners[event.get(_SHARED, 0)] if kind == _SHARE_WITH else buffer
        held += sizes[owner] * (not holders[owner])
        holders[owner] += 1
        peak = max(peak, held)
    return peak
