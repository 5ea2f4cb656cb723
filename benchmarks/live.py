"""How long live ranges of a large compiled program take, in CPU seconds.

    python benchmarks/live.py [FILE] [--layers 8] [--on cpu:8] [--megabytes 10 25 50 100]

The train step of the reference transformer is compiled, or FILE is a compiled program's text. Its
entry computation is repeated, each time with names of its own, until the text is as large as asked
for; all of it is scheduled, and follows on the arguments. Reading, live ranges and placing the
buffers are timed apart, each size in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

from sdyscope.terminal.table import Table, number, print_table

MEGABYTE = 1_000_000
_NAME = re.compile(r"%([\w.-]+)")


def compiled(layers: int, on: str) -> str:
    """The train step of the transformer, unrolled, as one of eight devices runs it."""
    from sdyscope.inspection import Inspection
    from sdyscope.targets import resolve_program

    program = resolve_program("fsdp-transformer", settings={"layers": str(layers)})
    return Inspection(program, ("shardy",)).compiled("shardy", on).hlo


def grown(text: str, size: int) -> str:
    """A text of about ``size`` characters: the entry's instructions, again and again."""
    head, _, entry = text.partition("\nENTRY ")
    signature, _, rest = entry.partition("{\n")
    body, _, tail = rest.partition("\n}")
    lines = body.splitlines()
    parameters = [line for line in lines if " parameter(" in line]
    work = [line for line in lines if " parameter(" not in line]
    own = {match[1] for line in work if (match := _NAME.search(line))}
    repeated = "\n".join(line.replace("ROOT ", "", 1) for line in work)
    copies = max((size - len(head)) // max(len(repeated), 1), 1)
    parts = ["\n".join(parameters)]
    for copy in range(1, copies):
        parts.append(
            _NAME.sub(
                lambda match: f"%{match[1]}.copy{copy}" if match[1] in own else match[0],  # noqa: B023
                repeated,
            )
        )
    parts.append("\n".join(work))
    return "".join((head, "\nENTRY ", signature, "{\n", "\n".join(parts), "\n}", tail))


def child(path: str) -> None:
    """What one text takes, as a process of its own."""
    gc.set_threshold(2_000_000, 50, 1_000)  # as sdyscope.process.child does
    from sdyscope.hlo import read_hlo
    from sdyscope.hlo.allocation import allocate
    from sdyscope.hlo.live import live_ranges
    from sdyscope.syntax import hlo_sharding  # noqa: F401 - imported before the clock runs
    from sdyscope.values.entry_layout import read_entry_layout

    text = Path(path).read_text()
    times = [time.process_time()]
    module = read_hlo(text)
    times.append(time.process_time())
    live = live_ranges(module, read_entry_layout(text))
    times.append(time.process_time())
    allocate(live, "cpu")
    times.append(time.process_time())
    report = {
        "instructions": len(live.schedule),
        "seconds": [after - before for before, after in itertools.pairwise(times)],
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(report))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--on", default="cpu:8")
    parser.add_argument("--megabytes", type=int, nargs="*", default=[10, 25, 50, 100])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child)
        return
    text = Path(asked.file).read_text() if asked.file else compiled(asked.layers, asked.on)
    headers = ("MB", "scheduled", "read", "live ranges", "buffers", "in all", "memory, GB")
    rows = []
    for megabytes in asked.megabytes:
        with tempfile.NamedTemporaryFile("w", suffix=".hlo") as file:
            file.write(grown(text, megabytes * MEGABYTE))
            file.flush()
            words = [sys.executable, __file__, "--child", file.name]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            size = Path(file.name).stat().st_size / MEGABYTE
        report = json.loads(done.stdout)
        seconds = report["seconds"]
        row = (
            f"{size:.0f}",
            f"{report['instructions']:,}",
            *(f"{each:.1f}" for each in (*seconds, sum(seconds))),
            f"{report['memory'] / 1e9:.1f}",
        )
        rows.append(row)
    print_table(Table(tuple(map(number, headers)), tuple(rows), title="CPU seconds"))


if __name__ == "__main__":
    main()
