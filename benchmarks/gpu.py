"""How far are estimates of times and peaks from runs on one GPU?

    python benchmarks/gpu.py FOLDER           # on a machine with a GPU: runs what FOLDER lacks
    python benchmarks/gpu.py FOLDER --compare # anywhere: compares what is there
    python benchmarks/gpu.py FOLDER --compare --compile # and compiles each, which needs no GPU

Each program runs in a process of its own: some steps that are timed, then some under JAX's
profiler. Each is then estimated by the figures of sdyscope/hardware/specs.toml, and by rates that
were fitted to all the other programs, as `sdyscope cost --calibrate` does it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdyscope.analysis.cost.calibrate import calibrated
from sdyscope.analysis.cost.cost import Given, cost_of
from sdyscope.analysis.cost.schedule import schedule_of, with_step
from sdyscope.analysis.profile.measured import measured
from sdyscope.analysis.profile.profile import traced_program
from sdyscope.analysis.profile.traced import traced_cost, traced_module
from sdyscope.facts.calibration import Calibration
from sdyscope.facts.measured import Measured, TracedProgram
from sdyscope.hardware.specs import chip_of
from sdyscope.hlo import read_hlo
from sdyscope.hlo.allocation import allocate
from sdyscope.hlo.live import live_ranges
from sdyscope.inspection import Inspection
from sdyscope.stages.executed.traces import read_trace
from sdyscope.targets import resolve_program
from sdyscope.values.entry_layout import read_entry_layout
from sdyscope.words.counts import size
from sdyscope.words.rates import time_text
from sdyscope.words.remarks import ESTIMATED

HERE = Path(__file__).parent
KERNELS = f"{HERE / 'gpu_programs.py'}:"
F, M, A = "fsdp-transformer", "mlp", "axlearn-transformer"

LARGE = {
    "layers": 12,
    "d_model": 1024,
    "heads": 16,
    "head_dim": 64,
    "d_ff": 2816,
    "vocab": 32000,
    "sequence": 1024,
    "batch": 8,
}

ONE_DEVICE = {"fsdp": 1, "model": 1}
AXLEARN = {"data": 1, "expert": 1, "fsdp": 1, "track": 1, "model": 1}
EXPERTS = {
    "d_model": 1024,
    "heads": 16,
    "head_dim": 64,
    "d_ff": 4096,
    "vocab": 32000,
    "dtype": "bfloat16",
}
WIDE = {"d_model": 2048, "d_ff": 5632, "heads": 32}
REGRESSION = {"batch": 8192, "features": 4096, "hidden": 16384, "layers": 2}
DEEP = {"batch": 8192, "features": 2048, "hidden": 8192, "layers": 4}
SCAN = {"scan": True, "remat": True, "donate": True}

#: A name, the program, its mesh and its settings.
PROGRAMS: tuple[tuple[str, str, dict[str, int], dict[str, Any]], ...] = (
    ("matmul", KERNELS + "matmul", {}, {}),
    ("matmul-4096", KERNELS + "matmul", {}, {"size": 4096}),
    ("matmul-batched", KERNELS + "matmul", {}, {"size": 1024, "batch": 64}),
    ("matmul-f32", KERNELS + "matmul", {}, {"size": 4096, "dtype": "float32"}),
    ("attention", KERNELS + "attention", {}, {}),
    ("attention-long", KERNELS + "attention", {}, {"sequence": 4096, "batch": 2, "head_dim": 64}),
    ("norms", KERNELS + "norms", {}, {}),
    ("convolutions", KERNELS + "convolutions", {}, {}),
    ("decode", KERNELS + "decode", {}, {}),
    ("experts", KERNELS + "experts", {}, {}),
    ("mlp", M, {"data": 1, "model": 1}, {**REGRESSION, "dtype": "bfloat16"}),
    ("mlp-f32", M, {"data": 1, "model": 1}, {**DEEP, "optimizer": "sgd"}),
    ("transformer", F, ONE_DEVICE, LARGE),
    ("transformer-scan", F, ONE_DEVICE, {**LARGE, **SCAN}),
    ("transformer-remat", F, ONE_DEVICE, {**LARGE, "remat": True, "layers": 6, "tied": True}),
    ("transformer-f32", F, ONE_DEVICE, {**LARGE, "layers": 4, "dtype": "float32"}),
    ("transformer-wide", F, ONE_DEVICE, {**LARGE, **WIDE, "layers": 4, "optimizer": "sgd"}),
    ("transformer-small", F, ONE_DEVICE, {"layers": 4}),
    (
        "axlearn",
        A,
        AXLEARN,
        {**EXPERTS, "batch": 8, "sequence": 512, "layers": 4},
    ),
)


def run(name: str, folder: Path) -> None:
    """Runs a program; the folder has its trace, its compiled text, its times and its memory."""
    import jax

    from sdyscope.stages.executed.device_arrays import device_memory, peak_bytes
    from sdyscope.stages.executed.execute import Runner

    _, target, mesh, settings = next(entry for entry in PROGRAMS if entry[0] == name)
    devices = jax.devices()[:1]
    program = resolve_program(target, mesh=mesh or None, settings=settings, devices=devices)
    runner = Runner(program, devices=devices)
    start = time.perf_counter()
    call = runner.call("shardy")
    compiled = time.perf_counter() - start
    before = peak_bytes(runner.local)
    for _ in range(3):
        call.seconds()
    memory = device_memory(call.compiled, runner.local, before)
    seconds = [call.seconds() for _ in range(20)]
    folder.mkdir(parents=True, exist_ok=True)
    with jax.profiler.trace(str(folder)):
        traced = [call.seconds() for _ in range(5)]
    analysis = call.compiled.memory_analysis()
    measured = {
        "device": runner.devices[0].device_kind,
        "jax": jax.__version__,
        "compile_seconds": compiled,
        "seconds": seconds,
        "traced_seconds": traced,
        "arguments": memory.arguments,
        "results": memory.results,
        "aliased": memory.aliased,
        "temporaries": memory.temporaries,
        "peak": getattr(analysis, "peak_memory_in_bytes", None),
        "in_use": memory.peak,
        "in_use_before": before,
        "cost": call.compiled.cost_analysis(),
        "stats": runner.devices[0].memory_stats(),
    }
    (folder / "compiled.txt").write_text(call.compiled.as_text())
    (folder / "measured.json").write_text(json.dumps(measured, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--for", type=float, dest="seconds", help="start none after these seconds")
    parser.add_argument("--only", help="a program's name")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        run(asked.run, asked.folder / asked.run)
        return
    if asked.compare:
        compare(asked.folder, compiles=asked.compile)
        return
    start = time.monotonic()
    for name, *_ in PROGRAMS:
        if (asked.folder / name / "measured.json").exists() or asked.only not in (None, name):
            continue
        if asked.seconds is not None and time.monotonic() - start > asked.seconds:
            print(f"{name}: no time left")
            continue
        words = [sys.executable, __file__, str(asked.folder), "--run", name]
        began = time.monotonic()
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=90)
            said = "" if not done.returncode else done.stderr[-1500:]
        except subprocess.TimeoutExpired:
            said = "took longer than 90 s"
        print(f"{name}: {time.monotonic() - began:.1f} s {said}", flush=True)


@dataclass(frozen=True)
class Ran:
    """One program that ran.

    Attributes:
        said: what was measured, but for the trace.
        program: the program of the trace.
        measured: its times.
    """

    said: dict[str, Any]
    program: TracedProgram
    measured: Measured

    @property
    def clock(self) -> float:
        """Seconds of a step by the clock, which has the call in it."""
        return float(statistics.median(self.said["seconds"]))

    @property
    def on_gpu(self) -> float:
        """Seconds of a step from its first kernel to its last."""
        return statistics.median(self.measured.step_seconds)


def compare(folder: Path, *, compiles: bool) -> None:
    """Prints the tables of docs/cost.md and docs/memory.md.

    Args:
        folder: what ran.
        compiles: whether to compile each for an H200 that need not be there, too.
    """
    ran = {}
    for name, *_ in PROGRAMS:
        if (folder / name / "measured.json").exists():
            said = json.loads((folder / name / "measured.json").read_text())
            program = traced_program(read_trace(folder / name))
            ran[name] = Ran(said, program, measured(program))
    if len(ran) < 2:
        raise SystemExit(f"{folder}: each is estimated by the others that ran, and {len(ran)} did")
    compare_times(ran, compiles=compiles)
    print("\n| program | peak by live ranges | by the compiler | off | in use on the GPU |")
    print("| --- | --- | --- | --- | --- |")
    for name, each in ran.items():
        compare_peaks(name, each, (folder / name / "compiled.txt").read_text())


def compare_times(ran: Mapping[str, Ran], *, compiles: bool) -> None:
    """Each program by rates that were fitted to all the others."""
    headers = ["program", "by the clock", "on the GPU", "estimate", "off"]
    headers += ["compiled without it", "off"] if compiles else []
    print(f"| {' | '.join(headers)} |")
    print(f"| {' | '.join('---' for _ in headers)} |")
    offs: list[float] = []
    for name, each in ran.items():
        rates = fitted({other: ran[other] for other in ran if other != name})
        given = Given(compute=rates.compute, stretch=rates.stretch)
        module = traced_module(each.program)
        assert module is not None
        assert rates.stretch is not None
        schedule = schedule_of(traced_cost(each.program, module, None, given))
        step = schedule.seconds * rates.stretch
        row = [name, *map(time_text, (each.clock, each.on_gpu, step))]
        row.append(f"{step / each.on_gpu - 1:+.0%}")
        if compiles:
            _, target, mesh, settings = next(entry for entry in PROGRAMS if entry[0] == name)
            program = resolve_program(target, mesh=mesh or None, settings=settings)
            inspection = Inspection(program, ["shardy"])
            chip = chip_of(each.said["device"])
            assert chip is not None
            absent = cost_of(inspection, "shardy", f"cuda:{chip.key}:1x1x1", calibration=rates)
            ahead = with_step(absent).step
            assert ahead is not None
            offs.append(ahead / each.clock - 1)
            row += [time_text(ahead), f"{offs[-1]:+.0%}"]
        print("| " + " | ".join(row) + " |", flush=True)
    if offs:
        print(f"\ncompiled without it, beside the clock: {statistics.median(map(abs, offs)):.0%}")
    calibration = fitted(ran, held_out=True)
    print("\n| estimates of | compared | off by, of the fit | off by, of what was held out |")
    print("| --- | --- | --- | --- |")
    for error in calibration.errors:
        assert error.held_out is not None
        of = ESTIMATED[error.of]
        print(f"| {of} | {error.count:,} | {error.median:.0%} | {error.held_out:.0%} |")
    print(calibration.compute, calibration.stretch)


def fitted(ran: Mapping[str, Ran], *, held_out: bool = False) -> Calibration:
    """Rates that are fitted to programs."""
    measurements = {name: each.measured for name, each in ran.items()}
    programs = {name: each.program for name, each in ran.items()}
    return calibrated(measurements, programs, held_out=held_out)


def compare_peaks(name: str, each: Ran, text: str) -> None:
    """The peak of one program: by live ranges, by the compiler, and what the GPU had in use."""
    said = each.said
    allocation = allocate(live_ranges(read_hlo(text), read_entry_layout(text)), "cuda")
    heap = max((max(allocation.counted(s), default=0) for s in allocation.spaces), default=0)
    peak = said["arguments"] + said["results"] - said["aliased"] + allocation.constants + heap
    off = f"{peak / said['peak'] - 1:+.2%}"
    # What a process had in use before hides less, and what it donates it has twice.
    hidden = said["in_use"] == said["in_use_before"] or said["aliased"]
    in_use = "-" if hidden else f"{said['in_use'] / said['peak'] - 1:+.2%}"
    print(f"| {name} | {size(peak)} | {size(said['peak'])} | {off} | {in_use} |")


if __name__ == "__main__":
    main()
