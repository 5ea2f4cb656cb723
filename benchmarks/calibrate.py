"""How far are estimates of times from runs on eight virtual CPU devices?

    python benchmarks/calibrate.py [--traces FOLDER] [--only mlp]

Each program runs under JAX's profiler in a process of its own, one after the other. Rates are
fitted to the traces as `sdyscope cost --calibrate` does it, and each trace is estimated by rates
that were fitted to all the others. Prints the rows of the table of docs/cost.md, and what belongs
into sdyscope/hardware/specs.toml. With --traces, traces that are there already are used again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

F, L, M = "fsdp-transformer", "levanter-gpt2", "mlp"

Timed: TypeAlias = tuple[str, str, dict[str, Any]]
"""A name, the program and its settings."""

PROGRAMS: tuple[Timed, ...] = (
    ("mlp", M, {"batch": 4096, "layers": 4}),
    ("mlp-deep", M, {"batch": 1024, "layers": 8}),
    ("mlp-sgd", M, {"batch": 8192, "layers": 2, "optimizer": "sgd"}),
    ("transformer", F, {}),
    ("transformer-f32", F, {"dtype": "float32", "batch": 16, "sequence": 128}),
    ("transformer-long", F, {"sequence": 256, "batch": 8}),
    ("transformer-scan", F, {"scan": True, "layers": 4}),
    ("transformer-wide", F, {"d_model": 512, "d_ff": 2048}),
    ("transformer-remat", F, {"remat": True, "layers": 3}),
    ("transformer-sgd", F, {"optimizer": "sgd", "batch": 32}),
    ("gpt2", L, {}),
    ("gpt2-fsdp", L, {"parallelism": "fsdp", "gradient_checkpointing": False}),
)


def trace(name: str, folder: Path) -> None:
    """Runs a program; its trace is in the folder."""
    from sdyscope.stages.executed.execute import Runner
    from sdyscope.targets import resolve_program

    _, program, settings = next(entry for entry in PROGRAMS if entry[0] == name)
    runner = Runner(resolve_program(program, settings=settings), traces=folder)
    failure = runner.run("shardy").failure
    if failure:
        raise SystemExit(failure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--only", default="", help="programs with this in their names")
    parser.add_argument("--trace", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.trace:
        trace(asked.trace, asked.traces)
        return
    chosen = [program for program in PROGRAMS if asked.only in program[0]]
    if len(chosen) < 2:
        parser.error(f"each is estimated by others, and {len(chosen)} have {asked.only!r} in them")
    with tempfile.TemporaryDirectory() as temporary:
        compare(chosen, asked.traces or Path(temporary))


def compare(chosen: Sequence[Timed], folder: Path) -> None:
    from sdyscope.analysis.cost.calibrate import calibrated
    from sdyscope.analysis.profile.measured import measured
    from sdyscope.analysis.profile.profile import traced_program
    from sdyscope.inspection import Inspection
    from sdyscope.stages.executed.traces import is_trace, read_trace
    from sdyscope.targets import resolve_program
    from sdyscope.words.remarks import ESTIMATED

    measurements, programs = {}, {}
    for name, target, settings in chosen:
        own = folder / name
        if not is_trace(own):
            words = [sys.executable, __file__, "--trace", name, "--traces", str(own)]
            subprocess.run(words, check=True, capture_output=True)
        meshes = Inspection(resolve_program(target, settings=settings), ["shardy"]).meshes.values()
        programs[name] = traced_program(read_trace(own))
        measurements[name] = measured(programs[name], meshes)
        middle = statistics.median(measurements[name].step_seconds)
        print(f"{name}: {1e3 * middle:.1f} ms per step, load {os.getloadavg()[0]:.1f}", flush=True)
    calibration = calibrated(measurements, programs)
    print(
        "\n| estimates of | compared | off by, of the fit | off by, of traces that were held out |"
    )
    print("| --- | --- | --- | --- |")
    for error in calibration.errors:
        assert error.held_out is not None
        of = ESTIMATED[error.of]
        print(f"| {of} | {error.count:,} | {error.median:.0%} | {error.held_out:.0%} |")
    print("\n[errors.cpu]")
    for error in calibration.errors:
        print(f"{error.of} = {error.held_out:.2f}")
    print("\n" + json.dumps({rate.axis: rate.bandwidth for rate in calibration.rates}))
    print(calibration.compute, calibration.stretch)


if __name__ == "__main__":
    main()
