"""How long reading a large trace takes, in CPU seconds.

    python benchmarks/trace.py [--megabytes 25 100 200]

A step of the reference MLP runs on eight virtual CPU devices inside `jax.profiler.trace`. What the
trace has of the host is repeated until the file is as large as asked for, the programs in it are
there once. Reading and what `sdyscope profile` makes of it are timed apart, each size in a process
of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

from sdyscope.terminal.table import Table, number, print_table

MEGABYTE = 1_000_000
_HOST = b"/host:CPU"


def traced(folder: str) -> bytes:
    """A trace of three steps."""
    import jax
    import jax.numpy as jnp

    from sdyscope.targets import resolve_program

    program = resolve_program("mlp", devices=jax.devices())
    arguments = jax.tree.map(
        lambda each: jax.device_put(jnp.zeros(each.shape, each.dtype), each.sharding), program.args
    )
    jax.block_until_ready(program.fun(*arguments))
    with jax.profiler.trace(folder):
        for _ in range(3):
            jax.block_until_ready(program.fun(*arguments))
    (file,) = Path(folder).rglob("*.xplane.pb")
    return file.read_bytes()


def planes(space: bytes) -> Iterator[bytes]:
    """The fields of an XSpace as they are written, tags included."""
    at = 0
    while at < len(space):
        begin = at
        kind, at = _varint(space, at)
        length, at = _varint(space, at)
        assert kind & 7 == 2, "a field of an XSpace that has no length"
        at += length
        yield space[begin:at]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def grown(space: bytes, size: int) -> bytes:
    """A trace of about ``size`` bytes: the host's plane, again and again."""
    each = list(planes(space))
    hosts = [plane for plane in each if _HOST in plane[:64]]
    copies = max((size - len(space)) // sum(map(len, hosts)), 0)
    return b"".join((*each, *hosts * copies))


def child(path: str) -> None:
    """What one trace takes, as a process of its own."""
    gc.set_threshold(2_000_000, 50, 1_000)  # as sdyscope.process.child does
    from sdyscope.analysis.profile.profile import profile_document
    from sdyscope.stages.executed.traces import read_trace

    began = time.process_time()
    trace = read_trace(Path(path))
    read = time.process_time()
    profile_document(trace)
    report = {
        "read": read - began,
        "profile": time.process_time() - read,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(report))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, nargs="*", default=[25, 100, 200])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child)
        return
    headers = ("MB", "read", "profile", "memory, GB")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        space = traced(folder)
        for megabytes in asked.megabytes:
            file = Path(folder) / "large.xplane.pb"
            file.write_bytes(grown(space, megabytes * MEGABYTE))
            words = [sys.executable, __file__, "--child", str(file)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            report = json.loads(done.stdout)
            row = (
                f"{file.stat().st_size / MEGABYTE:.0f}",
                f"{report['read']:.1f}",
                f"{report['profile']:.1f}",
                f"{report['memory'] / 1e9:.1f}",
            )
            rows.append(row)
    print_table(Table(tuple(map(number, headers)), tuple(rows), title="CPU seconds"))


if __name__ == "__main__":
    main()
