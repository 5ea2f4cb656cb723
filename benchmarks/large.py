"""Do commands answer on programs of full size, without devices, within 20 s and 1 GB?

Four programs: AXLearn's mesh of 32,768 devices; a 70B model sharded over 256; GPT-2 XL; a token of
decoding with multi-head latent attention, 131,072 tokens in the caches, on 256. A row is a command
from a cold start: seconds of the clock, CPU seconds of all its processes, which a busy machine does
not change, and the largest of its processes. Nothing is compiled.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from sdyscope.terminal.table import Column, Table, number, print_table

#: What each answer may take.
SECONDS, BYTES = 20.0, 2**30

#: Programs, with their meshes and settings.
PROGRAMS = {
    "AXLearn's mesh, 32,768 devices": (
        "axlearn-transformer --mesh pipeline=1,data=16,expert=1,fsdp=256,seq=1,track=8,model=1 "
        "--set tracks=8 --set d_model=4096 --set heads=32 --set head_dim=128 --set d_ff=16384 "
        "--set vocab=131072 --set batch=32768 --set experts=8 --set repeat=true --set blocks=16"
    ),
    "70B, FSDP and tensors, 256 devices": (
        "fsdp-transformer --mesh fsdp=32,model=8 --set layers=80 --set d_model=8192 "
        "--set heads=64 --set head_dim=128 --set d_ff=28672 --set vocab=128256 --set batch=256 "
        "--set sequence=8192 --set scan=true --set remat=true"
    ),
    "GPT-2 XL, 64 devices": (
        "levanter-gpt2 --mesh replica_dcn=1,replica=1,data=64,model=1 --set layers=48 "
        "--set embed=1600 --set heads=25 --set vocab=50304 --set batch=512 --set positions=1024"
    ),
    "MLA decode, 131,072 tokens, 256 devices": (
        "parallel-3d:decode --mesh dp=8,pp=4,tp=8 --set layers=60 --set features=7168 "
        "--set heads=128 --set latent=512 --set rotary=64 --set hidden=18432 "
        "--set positions=131072 --set batch=64"
    ),
}
COMMANDS = (
    "show",
    "check",
    "propagate",
    "comms --predicted",
    "memory --predicted",
    "cost --predicted",
)


def cpu_seconds() -> float:
    """CPU seconds of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(words: list[str]) -> tuple[int, float, float, int, str]:
    """Exit status, seconds, CPU seconds, the largest process in bytes, and standard error."""
    start, before = time.perf_counter(), cpu_seconds()
    process = subprocess.Popen(
        [sys.executable, "-m", "sdyscope", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "SDYSCOPE_PROGRESS": "0"},
    )
    assert process.stderr is not None
    largest = 0
    said = b""
    os.set_blocking(process.stderr.fileno(), False)
    while process.poll() is None:
        largest = max(largest, *map(resident, tree(process.pid)))
        said += process.stderr.read() or b""
        time.sleep(0.02)
    said += process.stderr.read() or b""
    seconds, cpu = time.perf_counter() - start, cpu_seconds() - before
    return process.returncode, seconds, cpu, largest, said.decode(errors="replace")


def tree(pid: int) -> list[int]:
    """A process and all below it (Linux)."""
    pids = [pid]
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return pids
    for child in below:
        pids += tree(int(child))
    return pids


def resident(pid: int) -> int:
    """The most that a process has held in memory so far, in bytes (Linux)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) * 1024 if lines else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    asked = parser.parse_args()
    rows = []
    for name, program in PROGRAMS.items():
        if asked.only not in name:
            continue
        for command in COMMANDS:
            first, *rest = command.split()
            status, seconds, cpu, largest, said = measure([first, *program.split(), *rest])
            # Of two that run at the same time the clock is the shorter.
            within = min(seconds, cpu) <= SECONDS and largest <= BYTES and status in (0, 1)
            note = "" if within else said.strip().partition("\n")[0] or "over"
            times = f"{seconds:.1f}", f"{cpu:.1f}"
            rows.append((name, command, *times, f"{largest / 2**30:.2f}", note))
            print(*rows[-1], file=sys.stderr, sep="; ")
    columns = (
        Column("program"),
        Column("command"),
        number("seconds"),
        number("CPU s"),
        number("GiB"),
        Column(""),
    )
    print_table(Table(columns, tuple(rows)))


if __name__ == "__main__":
    main()
