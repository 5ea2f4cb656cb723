"""How long reading partitioned HLO takes, beside XLA's own text parser on the same text.

    python benchmarks/hlo.py [FILE ...] [--layers 24] [--on tpu:v5e:2x4 ...] [--repeat 5]
                             [--megabytes 25 50 100]

Without files, the train step of the reference transformer is compiled for eight CPU devices and,
where libtpu is installed, for eight TPUs. XLA's parser (``hlo_module_from_text``), sdyscope's
reader, the reader with every shape, operand and attribute parsed, and the reader with all
collectives found take turns in one process; medians count. The second table is of texts made of
copies of these texts' computations, each read in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

from sdyscope.analysis.collectives.read import collectives
from sdyscope.hlo import read_hlo
from sdyscope.terminal.table import Column, Table, number, print_table
from sdyscope.values.mesh import Mesh

MEGABYTE = 1_000_000


#: What is compiled for where nothing is named.
HARDWARE = ["cpu:8", *(["tpu:v5e:2x4"] if importlib.util.find_spec("libtpu") else [])]


def compiled(layers: int, on: str) -> str:
    """The train step of the transformer, unrolled, as one of eight devices runs it."""
    from sdyscope.inspection import Inspection
    from sdyscope.targets import resolve_program

    program = resolve_program("fsdp-transformer", settings={"layers": str(layers)})
    return Inspection(program, ("shardy",)).compiled("shardy", on).hlo


def by_xla(text: str) -> None:
    from sdyscope.stages import compat

    compat.hlo.hlo_module_from_text(text)


def everything(text: str) -> None:
    for instruction in read_hlo(text).instructions():
        _ = instruction.shape, instruction.operands, instruction.attributes


def all_collectives(text: str) -> None:
    module = read_hlo(text)
    collectives(module, [Mesh.of({"data": module.num_partitions})])


WAYS: dict[str, Callable[[str], object]] = {
    "XLA's parser": by_xla,
    "read": read_hlo,
    "read, all parsed": everything,
    "read, collectives": all_collectives,
}


def medians(text: str, repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(repeat):
        for name, way in WAYS.items():
            start = time.process_time()
            way(text)
            times[name].append(time.process_time() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def grown(text: str, size: int) -> str:
    """A text of about ``size`` characters: copies of all computations before the entry."""
    header, _, rest = text.partition("\n\n%")
    before, entry, after = ("%" + rest).partition("\nENTRY ")
    copies = max((size - len(entry + after)) // len(before), 1)
    # A copy has names of its own, as every computation in a module does.
    copied = (before.replace("\n%", f"\n%c{i}.") for i in range(copies))
    return "\n".join((header, "", *copied)) + entry + after


def peak() -> int:
    """The most bytes that this process had; on Linux without those of the one that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = (line.split() for line in status.read_text().splitlines())
        return next(int(line[1]) for line in lines if line[0] == "VmHWM:") * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def child(path: str) -> None:
    """Reads a file and prints what it took, as a process of its own."""
    gc.set_threshold(2_000_000, 50, 1_000)  # as sdyscope.process.child does
    start = time.process_time()
    with open(path, encoding="utf-8") as lines:
        module = read_hlo(lines)
    read = time.process_time() - start
    collectives(module)
    report = {
        "instructions": sum(1 for _ in module.instructions()),
        "read": read,
        "collectives": time.process_time() - start - read,
        "peak": peak(),
    }
    print(json.dumps(report))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--on", nargs="*", default=HARDWARE)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--megabytes", type=int, nargs="*", default=[25, 50, 100])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child)
        return
    texts = {path.name: path.read_text() for path in asked.files}
    if not texts:
        texts = {f"{asked.layers} layers on {on}": compiled(asked.layers, on) for on in asked.on}
    headers: tuple[str, ...] = ("MB", *WAYS, "read / XLA", "parsed / XLA")
    rows: list[tuple[str, ...]] = []
    for name, text in texts.items():
        taken = medians(text, asked.repeat)
        ratios = [taken[way] / taken["XLA's parser"] for way in ("read", "read, all parsed")]
        cells = [f"{seconds:.3f}" for seconds in taken.values()]
        cells += [f"{ratio:.2f}" for ratio in ratios]
        rows.append((name, f"{len(text) / MEGABYTE:.1f}", *cells))
    columns = (Column("text"), *map(number, headers))
    print_table(Table(columns, tuple(rows), title="seconds of CPU time, median"))
    print()
    headers = ("MB", "instructions", "read, s", "collectives, s", "MB/s", "peak, GB")
    rows = []
    for (name, base), megabytes in itertools.product(texts.items(), asked.megabytes):
        text = grown(base, megabytes * MEGABYTE)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            done = subprocess.run(
                [sys.executable, __file__, "--child", file.name],
                capture_output=True,
                text=True,
                check=True,
            )
        figures = json.loads(done.stdout)
        row = (
            name,
            f"{len(text) / MEGABYTE:.0f}",
            f"{figures['instructions']:,}",
            f"{figures['read']:.2f}",
            f"{figures['collectives']:.2f}",
            f"{len(text) / MEGABYTE / figures['read']:.0f}",
            f"{figures['peak'] / 1e9:.2f}",
        )
        rows.append(row)
    print_table(Table((Column("text"), *map(number, headers)), tuple(rows)))


if __name__ == "__main__":
    main()
