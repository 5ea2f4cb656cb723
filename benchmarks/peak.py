"""How far is the peak from live ranges from the compiler's own?

    python benchmarks/peak.py [--on cpu|cuda:h100:1x1x8|tpu:v3:2x2|tpu:v5e:2x4] [--only PART]

Each program is compiled for eight devices, there or not, under Shardy. What is compared is what the
compiler says there:

- GPUs and TPUs: ``memory_analysis().peak_memory_in_bytes``. That of a TPU counts arguments,
  results, constants and the heap of the one memory whose heap is largest, which is the vector
  memory (`S(1)`) where temporaries fit into that: the column `heap` says which.
- CPUs: arguments, results, constants and what is reserved for temporaries, since the peak there
  leaves temporaries out. What is reserved has gaps, which no value is in. With the buffer
  assignment, each two values that are held at one time are looked at: they must not be in the same
  bytes. One may be written over another at the instruction that reads that last.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

from sdyscope.errors import SdyscopeError
from sdyscope.hlo import read_hlo
from sdyscope.hlo.allocation import Allocation, allocate
from sdyscope.hlo.live import LiveRanges, live_ranges
from sdyscope.inspection import Inspection
from sdyscope.stages.compiled.buffer_assignment import dump_options, dumped
from sdyscope.syntax.protobuf import fields
from sdyscope.targets import resolve_program
from sdyscope.terminal.table import Column, Table, number, print_table
from sdyscope.values.entry_layout import read_entry_layout

F, L, P, A = "fsdp-transformer", "levanter-gpt2", "parallel-3d", "axlearn-transformer"

#: A name, the program and its settings.
PROGRAMS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("mlp", "mlp", {"batch": 512}),
    ("mlp, donated", "mlp", {"batch": 512, "layers": 3, "donate": True}),
    ("mlp, bf16", "mlp", {"batch": 512, "layers": 2, "dtype": "bfloat16"}),
    ("mlp, sgd", "mlp", {"batch": 256, "layers": 6, "optimizer": "sgd"}),
    ("transformer", F, {}),
    ("transformer, donated", F, {"donate": True}),
    ("transformer, long", F, {"donate": True, "sequence": 256, "batch": 8}),
    ("transformer, f32", F, {"dtype": "float32"}),
    ("transformer, sgd", F, {"optimizer": "sgd"}),
    ("transformer, tied", F, {"tied": True}),
    ("transformer, remat", F, {"remat": True, "layers": 3}),
    ("transformer, no constraints", F, {"constrained": False}),
    ("transformer, 6 layers", F, {"layers": 6}),
    ("transformer, scan", F, {"scan": True, "layers": 4, "donate": True}),
    ("transformer, scan, 8", F, {"scan": True, "layers": 8}),
    ("transformer, scan, remat", F, {"scan": True, "layers": 4, "remat": True, "donate": True}),
    ("transformer, scan, wide", F, {"scan": True, "d_model": 512, "d_ff": 2048, "donate": True}),
    ("gpt2", L, {}),
    ("gpt2, fsdp", L, {"parallelism": "fsdp", "gradient_checkpointing": False}),
    ("gpt2, data", L, {"parallelism": "data", "donate": False}),
    ("gpt2, context", L, {"parallelism": "context"}),
    ("gpt2, dropout", L, {"dropout": 0.1, "layers": 4}),
    ("axlearn", A, {}),
    ("axlearn, repeat", A, {"repeat": True, "blocks": 3}),
    ("axlearn, adafactor", A, {"learner": "adafactor", "donate": False}),
    ("axlearn, bf16", A, {"dtype": "bfloat16", "batch": 16, "sequence": 64}),
    ("pipeline", P, {}),
    ("pipeline, no remat", P, {"remat": False, "donate": False}),
    ("pipeline, sgd", P, {"optimizer": "sgd", "dropout": 0.1}),
    ("pipeline, channels", P, {"cut": "channels"}),
    ("random, rbg", "rng-gotcha", {"generator": "rbg"}),
    ("random, threefry", "rng-gotcha", {"generator": "threefry"}),
    ("random, split", "rng-gotcha", {"split": True}),
    ("guide, in and out", "shardy-guide", {"scale": 64}),
    ("guide, shard_map", "shardy-guide", {"example": "shard-map-auto", "scale": 16}),
    ("guide, priorities", "shardy-guide", {"example": "priorities", "scale": 16}),
)


@dataclass
class Compared:
    """One program."""

    instructions: int
    ours: int
    compiler: int
    heap: int
    seconds: float
    overlaps: int | None = None


def compared(program: str, settings: dict[str, Any], on: str) -> Compared:
    inspection = Inspection(resolve_program(program, settings=settings), ["shardy"])
    compiled = inspection.compiled("shardy", None if on == "cpu" else on)
    assert compiled.memory is not None
    assert compiled.hardware is not None
    platform = compiled.hardware.platform
    assert platform != "any"
    begun = time.process_time()
    module = read_hlo(compiled.hlo)
    live = live_ranges(module, read_entry_layout(compiled.hlo))
    allocation = allocate(live, platform)
    heaps = {space: max(allocation.counted(space), default=0) for space in allocation.spaces}
    seconds = time.process_time() - begun
    fixed = compiled.memory.arguments + compiled.memory.results + allocation.constants
    largest = max(heaps, key=lambda space: heaps[space], default=0)
    theirs = compiled.memory.peak or 0
    if platform == "cpu":
        theirs = fixed + compiled.memory.temporaries
    comparison = Compared(
        len(live.schedule), fixed + heaps.get(largest, 0), theirs, largest, seconds
    )
    if platform == "cpu":
        comparison.overlaps = overlaps(inspection, live, allocation)
    return comparison


# The buffer assignment of a CPU: numbers of fields of XLA's `hlo.proto`.
_COMPUTATIONS, _INSTRUCTIONS, _NAME, _ID = 3, 2, 1, 35

Place = tuple[int, int, int, int]
"""Where a value is: the id of its instruction, which element of it, its offset and its size."""


def overlaps(inspection: Inspection, live: LiveRanges, allocation: Allocation) -> int:
    """How many pairs of values are in the same bytes while both are held, by the live ranges."""
    names, proto = assignment(inspection)
    values: dict[tuple[str, int], list[int]] = {}
    for value, maker in enumerate(live.makers):
        values.setdefault((maker.name, live.elements[value]), []).append(value)
    # Else it is another program whose assignment this is, and nothing would be compared.
    assert {maker.name for maker in live.makers} <= set(names.values())
    shared = 0
    for places in proto:
        held: list[tuple[int, int, int, int, int]] = []
        for instruction, element, offset, size in places:
            for value in values.get((names.get(instruction, ""), element), ()):
                spans = allocation.held(live.buffers[value])
                held += [(start, end, offset, size, live.buffers[value]) for start, end in spans]
        held.sort()
        for at, (_, end, offset, size, buffer) in enumerate(held):
            for other in held[at + 1 :]:
                if other[0] >= end:
                    break
                apart = other[2] >= offset + size or offset >= other[2] + other[3]
                shared += not apart and other[4] != buffer
    return shared


def assignment(inspection: Inspection) -> tuple[dict[int, str], list[list[Place]]]:
    """Names of instructions by their ids, and where in each allocation there is a value."""
    import jax

    from sdyscope.stages import compat

    lowered = inspection.lowered["shardy"]
    assert lowered.lowered is not None
    assert lowered.num_devices is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with compat.partitioner("shardy"):
            lowered.lowered.compile(
                device_assignment=tuple(jax.devices("cpu")[: lowered.num_devices]),
                compiler_options=dict(dump_options(folder)),
            )
        dump = dumped(folder)
    assert dump is not None
    names: dict[int, str] = {}
    for field, computation in fields(dump.module):
        for inner, proto in fields(computation) if field == _COMPUTATIONS else ():
            if inner == _INSTRUCTIONS:
                instruction = dict(fields(proto))
                names[instruction.get(_ID, 0)] = str(instruction[_NAME], "utf-8")
    return names, list(allocations(dump.assignment))


def allocations(proto: bytes) -> Iterator[list[Place]]:
    """The values in each allocation of a ``BufferAssignmentProto``, but for those of one thread."""
    where: dict[int, tuple[int, int]] = {}
    rest = []
    for field, value in fields(proto):
        if field == 1:
            buffer = dict(fields(value))
            place = dict(fields(buffer.get(3, b"")))
            index = place.get(3, b"")
            where[buffer.get(1, 0)] = (place.get(4, 0), index[0] if index else 0)
        elif field == 3:
            rest.append(list(fields(value)))
    for allocation in rest:
        if any(field == 3 and value for field, value in allocation):
            continue  # of one thread
        places = []
        for field, value in allocation:
            if field == 9:
                assigned = dict(fields(value))
                instruction, element = where[assigned.get(1, 0)]
                places.append((instruction, element, assigned.get(2, 0), assigned.get(3, 0)))
        yield places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--on", default="cpu")
    parser.add_argument("--only", default="", help="programs with this in their names")
    asked = parser.parse_args()
    heaps = "tpu" in asked.on
    headers = ("instructions", "from live ranges", "compiler", "difference", "s")
    rows = []
    comparisons = []
    for name, program, settings in PROGRAMS:
        if asked.only not in name:
            continue
        try:
            comparison = compared(program, settings, asked.on)
        except SdyscopeError as error:  # a program that this compiler refuses
            print(f"{name}: {str(error).splitlines()[0][:90]}")
            continue
        comparisons.append(comparison)
        difference = 100 * (comparison.ours - comparison.compiler) / comparison.compiler
        heap = f"S({comparison.heap})" if comparison.heap else "main"
        row = (
            name,
            *((heap,) if heaps else ()),
            f"{comparison.instructions:,}",
            f"{comparison.ours:,}",
            f"{comparison.compiler:,}",
            "0" if comparison.ours == comparison.compiler else f"{difference:+.2f} %",
            f"{comparison.seconds:.2f}",
        )
        rows.append(row)
        print(f"{name}: {difference:+.3f} %", file=sys.stderr, flush=True)
    columns = (Column("program"), *((Column("heap"),) if heaps else ()), *map(number, headers))
    print_table(Table(columns, tuple(rows), title=asked.on))
    if not comparisons:
        raise SystemExit(1)
    errors = sorted(
        abs(comparison.ours - comparison.compiler) / comparison.compiler
        for comparison in comparisons
    )
    exact = sum(comparison.ours == comparison.compiler for comparison in comparisons)
    print(
        f"{len(comparisons)} programs: {exact} to the byte, "
        f"{sum(e <= 0.02 for e in errors)} within 2 %, "
        f"{sum(e <= 0.01 for e in errors)} within 1 %, at most {100 * errors[-1]:.2f} %"
    )
    pairs = [comparison.overlaps for comparison in comparisons if comparison.overlaps is not None]
    if pairs:
        print(f"values held at one time in the same bytes: {sum(pairs)}")


if __name__ == "__main__":
    main()
