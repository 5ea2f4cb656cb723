"""Does the number of devices matter? One inspection on 8 and on 32,768 devices.

The program is `fsdp-transformer`; the large mesh is AXLearn's, `(1, 16, 1, 256, 1, 8, 1)` over
pipeline, data, expert, fsdp, seq, track and model. Tracing and lowering, which are JAX's, are timed
apart from what sdyscope does with the modules of both partitioners. The two take turns, each in a
process of its own; seconds are of CPU time, which other work on the machine disturbs least.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

from sdyscope.terminal.table import Table, number, print_table

MESHES = {
    "8": {"data": 2, "fsdp": 2, "track": 2},
    "32,768": {
        "pipeline": 1,
        "data": 16,
        "expert": 1,
        "fsdp": 256,
        "seq": 1,
        "track": 8,
        "model": 1,
    },
}


def measure(devices: str, layers: int) -> None:
    """Inspects once and prints what it took as JSON: seconds, and bytes at the peak."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    from sdyscope.inspection import Inspection
    from sdyscope.targets import resolve_program

    settings = {"layers": layers, "batch": 4096}
    program = resolve_program("fsdp-transformer", mesh=MESHES[devices], settings=settings)
    inspection = Inspection(program)
    start = time.process_time()
    lowered = inspection.lowered
    built = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    check = inspection.check()
    diff = inspection.diff()
    done = time.process_time()
    assert len(lowered) == 2
    assert check.agreed == check.compared
    assert diff.same
    print(
        json.dumps(
            {
                "jax": built - start,
                "sdyscope": done - built,
                "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "peak of jax": before,
                "tensors": check.tensors,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--measure", choices=MESHES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(asked.measure, asked.layers)
        return
    figures: dict[str, list[dict[str, float]]] = {devices: [] for devices in MESHES}
    for _ in range(asked.runs):
        for devices in MESHES:
            command = [sys.executable, __file__, "--layers", str(asked.layers)]
            out = subprocess.check_output([*command, "--measure", devices])
            figures[devices].append(json.loads(out))
    headers = ("devices", "tensors", "trace and lower, CPU", "sdyscope, CPU", "peak memory")
    rows: list[tuple[str, ...]] = []
    medians = {
        devices: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for devices, runs in figures.items()
    }
    for devices, median in medians.items():
        row = (
            devices,
            f"{median['tensors']:.0f}",
            f"{median['jax']:.2f} s",
            f"{median['sdyscope']:.2f} s",
            f"{median['peak'] / 2**20:.0f} MiB",
        )
        rows.append(row)
    few, many = medians.values()
    ratios = (f"{many[key] / few[key]:.2f}" for key in ("jax", "sdyscope", "peak"))
    rows.append(("ratio", "", *ratios))
    title = f"fsdp-transformer, {asked.layers} layers, median of {asked.runs} runs"
    print_table(Table(tuple(map(number, headers)), tuple(rows), title=title))


if __name__ == "__main__":
    main()
