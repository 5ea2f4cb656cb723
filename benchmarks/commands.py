"""What does each command cost beside the JAX that it needs?

The program is a train step of `fsdp-transformer`. All is measured in one run, whole processes
from a cold start that take turns, in CPU seconds of the process and all that it started, which
other processes disturb less than the clock, and the least of the runs counts: plain JAX's trace and
lower under Shardy, the same with GSPMD besides, its compiles under both partitioners, then each
command. The last rows are `show` and `propagate` on 32,768 devices beside 8.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from sdyscope.terminal.table import Column, Table, number, print_table

#: Plain JAX: traces and lowers the program, and compiles it where that is asked for.
PLAIN = """
import sys
import jax
from sdyscope.targets import resolve_program
layers, partitioners, stage = int(sys.argv[1]), sys.argv[2].split(), sys.argv[3]
settings, mesh = {"layers": layers, "batch": 256}, {"fsdp": 4, "model": 2}
devices = jax.devices() if stage == "compile" else None
program = resolve_program("fsdp-transformer", mesh=mesh, settings=settings, devices=devices)
traced = program.fun.trace(*program.args, **program.kwargs)
for partitioner in partitioners:
    jax.config.update("jax_use_shardy_partitioner", partitioner == "shardy")
    lowered = traced.lower(lowering_platforms=("cpu",))
    if stage == "compile":
        lowered.compile()
"""

#: The same, and what the compiler does until it has propagated, of which nothing is read: Shardy's
#: passes twice, the second time with origins and steps, and XLA under GSPMD.
PROPAGATED = """
import sys
from sdyscope.targets import resolve_program
from sdyscope.staged import Staged
from sdyscope.stages.align.tags import tag
from sdyscope.stages.propagated.debug_info import propagation_of
from sdyscope.stages.propagated.passes import propagation_passes, run
from sdyscope.stages.propagated.propagate import import_from
from sdyscope.stages.propagated.xla_dump import xla_dump
from sdyscope.stages import compat
settings, mesh = {"layers": sys.argv[1], "batch": "256"}, {"fsdp": 4, "model": 2}
program = resolve_program("fsdp-transformer", mesh=mesh, settings=settings)
program = Staged(program, sys.argv[2].split())
lowered = program.lowered["shardy"]
module = import_from(lowered, lowered.module)
asked = propagation_of(module)
again = compat.ir.Module.parse(asked.bytecode, module.context)
run(module, *propagation_passes(module.context))
run(again, *asked.explained)
if "gspmd" in program.lowered:
    graph = program.graph("gspmd")
    xla_dump(tag(program.lowered["gspmd"].module, graph), graph, "gspmd", 8)
"""

#: A command, and how many times the JAX that it needs it may take. What is not here runs a program
#: or compiles it many times (`run`, `fix`, `search`, `verify`, `bisect`, `upgrade`, `record`)
#: or looks at no program.
LOWERING = {
    "show": 1.5,
    "check": 1.5,
    "lower": 1.5,
    "graph": 1.5,
    "diff": 1.5,
    "snapshot --stages requested,lowered": 1.5,
    "propagate": 2.0,
    "explain params['embedding']": 2.0,
    "diff --at propagated": 2.0,
}
COMPILING = {
    "lint": 1.5,
    "memory": 1.5,
    "cost": 1.5,
    "comms": 1.5,
    "source": 1.5,
    "diff --at compiled": 1.5,
    "snapshot --stages compiled": 1.5,
    "report": 1.3,
}

#: Of these, what compiles under one partitioner alone.
UNDER_ONE = {"lint", "memory", "cost", "snapshot --stages compiled"}

MESH = "fsdp=4,model=2"
FEW, MANY = "data=2,fsdp=2,track=2", "data=16,fsdp=256,track=8"


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """CPU seconds of a process and all that it starts; a command that has findings ends with 1."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, check=False, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in ((0, 1) if "sdyscope" in command else (0,)):
        raise SystemExit(f"exit status {done.returncode} of {' '.join(command)}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-compile", action="store_true", help="leave out what compiles")
    parser.add_argument("--only", nargs="*", help="commands to measure; plain JAX always is")
    asked = parser.parse_args()
    flags = "--xla_force_host_platform_device_count=8"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    plain = [sys.executable, "-c", PLAIN, str(asked.layers)]
    words: dict[str, list[str]] = {
        "trace and lower": [*plain, "shardy", "lower"],
        "trace, lower for both": [*plain, "shardy gspmd", "lower"],
    }
    for name, partitioners in (("", "shardy"), (" both", "shardy gspmd")):
        propagated = [sys.executable, "-c", PROPAGATED, str(asked.layers), partitioners]
        words[f"trace, lower, propagate{name}"] = propagated
    with tempfile.TemporaryDirectory() as folder:
        for name in LOWERING:
            words[name] = command(name, MESH, asked.layers, folder)
        for mesh in (FEW, MANY):
            for name in ("show", "propagate"):
                words[f"{name} on {mesh}"] = command(name, mesh, asked.layers, folder, batch=4096)
        if not asked.no_compile:
            for partitioner in ("shardy", "gspmd"):
                words[f"compile, {partitioner}"] = [*plain, partitioner, "compile"]
            for name in COMPILING:
                words[name] = command(name, MESH, asked.layers, folder)
        if asked.only is not None:
            chosen = [*asked.only, "trace", "compile"]
            words = {name: line for name, line in words.items() if name.startswith(tuple(chosen))}
        times: dict[str, list[float]] = {name: [] for name in words}
        for _ in range(asked.runs):
            for name, line in words.items():
                times[name].append(cpu_seconds(line, environment))
                print(f"{name}: {times[name][-1]:.1f} s", file=sys.stderr, flush=True)
    print_table(table({name: min(seconds) for name, seconds in times.items()}))


def command(name: str, mesh: str, layers: int, folder: str, batch: int = 256) -> list[str]:
    """The words of a command line."""
    verb, *rest = name.split()
    options = [*rest, "--mesh", mesh, "--set", f"layers={layers}", "--set", f"batch={batch}"]
    if verb == "report":
        options += ["--output", str(Path(folder, "report.html"))]
    return [sys.executable, "-m", "sdyscope", verb, "fsdp-transformer", *options]


def table(times: dict[str, float]) -> Table:
    """Each command, its time, how many times what it stands beside, and how many it may be."""
    lower = times["trace and lower"]
    both = times["trace, lower for both"]
    rows = [
        ("plain JAX: trace and lower", f"{lower:.1f}", "", ""),
        ("plain JAX: trace, lower for both", f"{both:.1f}", f"{both / lower:.2f}", ""),
    ]
    rows += [
        (f"nothing read: {name}", f"{times[name]:.1f}", f"{times[name] / lower:.2f}", "")
        for name in ("trace, lower, propagate", "trace, lower, propagate both")
    ]
    rows += [
        (name, f"{times[name]:.1f}", f"{times[name] / lower:.2f}", f"{most:.2f}")
        for name, most in LOWERING.items()
        if name in times
    ]
    if "compile, shardy" in times:
        compiled = times["compile, shardy"] + times["compile, gspmd"]
        rows.append(("plain JAX: compile, shardy", f"{times['compile, shardy']:.1f}", "", ""))
        rows.append(("plain JAX: both compiles", f"{compiled:.1f}", "", ""))
        for name, most in COMPILING.items():
            if name in times:
                beside = times["compile, shardy"] if name in UNDER_ONE else compiled
                ratio = f"{times[name] / beside:.2f}"
                rows.append((name, f"{times[name]:.1f}", ratio, f"{most:.2f}"))
    for name in ("show", "propagate"):
        if f"{name} on {FEW}" not in times:
            continue
        few, many = times[f"{name} on {FEW}"], times[f"{name} on {MANY}"]
        rows.append(
            (f"{name}: 32,768 devices beside 8", f"{many:.1f}", f"{many / few:.2f}", "1.05")
        )
    return Table(
        (Column("command"), number("CPU s"), number("times"), number("at most")), tuple(rows)
    )


if __name__ == "__main__":
    main()
