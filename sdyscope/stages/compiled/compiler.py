"""From a lowered module to what one device runs, compiled ahead of time for hardware of any kind.

The compile runs in a process of its own, with its standard error in a file: it can abort in C++.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from sdyscope.annotations import num_partitions
from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.compiled import Compiled, MemoryAnalysis
from sdyscope.facts.program import Partitioner
from sdyscope.facts.remarks import Remark
from sdyscope.graph import OpGraph, build
from sdyscope.graph.custom_calls import CUSTOM_PARTITIONING
from sdyscope.hardware.names import LARGEST_CPU, Hardware
from sdyscope.hardware.topology import DeviceDigit, Topology
from sdyscope.hlo.frames import with_known_frames
from sdyscope.process import output
from sdyscope.process.compiler_log import (
    failed_pass,
    last_line,
    last_words,
    refusal,
    rematerializing_lines,
    signal_name,
)
from sdyscope.process.python import python
from sdyscope.process.scratch import scratch_folder
from sdyscope.stages import compat
from sdyscope.stages.align.hlo_tags import read_tags, untagged
from sdyscope.stages.align.tags import tag_names
from sdyscope.stages.compiled import compiler_child
from sdyscope.stages.compiled.topology import (
    Mismatch,
    environment,
    mismatched_plugin,
    missing_plugin,
)
from sdyscope.stages.lowered.axis_names import fatal_axes
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.stages.propagated.xla_dump import check_fallback, free_boundaries
from sdyscope.words.counts import counted
from sdyscope.words.places import source_text

#: Seconds that a compile may take before it is given up.
LONGEST = 3600.0

#: What else there is where CPUs can't run a program.
_OTHERWISE = (
    "If it is for other hardware, name that: --on tpu:v5e:2x4 or cuda:h100:1x1x8, say. "
    "`sdyscope comms --predicted` needs no compiler."
)

#: What to do where XLA itself makes something wrong of a program.
_OF_XLA = (
    "That is a fault of XLA, not of the program: another sharding of what the op takes may avoid "
    "it, or another JAX (sdyscope upgrade --bisect finds which). "
    "`sdyscope comms --predicted` needs no compiler."
)

#: The file that takes what the child writes to standard error.
_LOG = "stderr"

_OLD = compat.version_tuple() < (0, 12)


def partitions(lowered: LoweredModule, graph: OpGraph) -> int:
    """How many devices a module is for."""
    return max(lowered.num_devices, num_partitions(graph))


def default_hardware(lowered: LoweredModule, graph: OpGraph) -> Hardware:
    """As many virtual CPU devices as a module has partitions."""
    return Hardware("cpu", partitions(lowered, graph))


def compile_module(
    lowered: LoweredModule,
    on: Hardware | None = None,
    *,
    graph: OpGraph | None = None,
    partitioner: Partitioner | None = None,
) -> Compiled:
    """Compiles a module ahead of time, under the partitioner whose shardings it has.

    Args:
        lowered: the module, lowered for the hardware's platform.
        on: what to compile for; by default a virtual CPU device for each partition.
        graph: the module's op graph, where it is known already.
        partitioner: which one; the one that the module was lowered for, or whose shardings it has.

    Raises:
        CompilerError: the compiler refuses the module or aborts, or does not run this partitioner;
            or MLIR could not read the module.
        TargetError: the hardware has another number of devices than the program, does not exist,
            or its compiler is not installed; or the module was lowered for another platform.
    """
    with compiling(lowered, on, graph=graph, partitioner=partitioner) as finish:
        return finish()


@contextlib.contextmanager
def compiling(
    lowered: LoweredModule,
    on: Hardware | None = None,
    *,
    graph: OpGraph | None = None,
    partitioner: Partitioner | None = None,
) -> Iterator[Callable[[], Compiled]]:
    """Compiles a module while this process does something else; see ``compile_module``.

    Its ops have tags meanwhile, in names that only metadata repeats. Yields a function that waits
    for what is made, and raises what ``compile_module`` does. At the end the compiler is stopped.
    """
    if lowered.module is None:
        raise CompilerError(
            f"{lowered.name} can't be compiled: MLIR's bindings could not read it.",
            hint="Read it with the version of JAX that wrote it.",
        )
    graph = build(lowered.module) if graph is None else graph
    chosen = partitioner or lowered.compiled_under
    count = partitions(lowered, graph)
    on = check_hardware(lowered, graph, on)
    if (mismatch := mismatched_plugin(on.platform)) is not None:
        _warn_of(mismatch)
    tagged, names = tag_names(lowered.module, graph)
    with scratch_folder() as name:
        folder = Path(name)
        (folder / compiler_child.MODULE).write_bytes(replace(lowered, module=tagged).bytecode())
        (folder / compiler_child.OPTIONS).write_text(
            json.dumps(
                {
                    "hardware": asdict(on),
                    "num_partitions": count,
                    "shardy": chosen == "shardy",
                    "compiler_options": lowered.compiler_options,
                    **free_boundaries(graph),
                }
            )
        )
        child = _start(folder, on)
        try:
            yield lambda: _left_by(child, folder, lowered, chosen, on, count, names)
        finally:
            child.kill()
            child.wait()


def _left_by(
    child: subprocess.Popen[bytes],
    folder: Path,
    lowered: LoweredModule,
    chosen: Partitioner,
    on: Hardware,
    count: int,
    names: Sequence[str],
) -> Compiled:
    """What the child leaves in its folder when it has ended."""
    status = _wait(child, on)
    log = untagged((folder / _LOG).read_text(errors="replace"), names)
    result = folder / compiler_child.RESULT
    if not result.exists():
        raise _ended(on, status, log)
    answer = json.loads(result.read_text())
    if "refused" in answer:
        answer["refused"] = untagged(answer["refused"], names)
    _raise_if_wrong(answer, on)
    hlo, tags = read_tags((folder / compiler_child.HLO).read_text(), names)
    check_fallback(chosen, log)
    memory = answer["memory"]
    return Compiled(
        name=lowered.name,
        partitioner=chosen,
        hardware=on,
        devices=count,
        device_kind=answer["device_kind"],
        hlo=with_known_frames(hlo, compat.version()),
        topology=_topology(answer["topology"]),
        memory=None if memory is None else MemoryAnalysis.of(memory),
        cost=answer["cost"],
        parameter_shardings=tuple(answer["parameters"]),
        result_shardings=tuple(answer["results"]),
        rematerializations=rematerializing_lines(log),
        compile_seconds=answer["seconds"],
        log=log,
        notes=(
            *msgspec.convert(answer["notes"], tuple[Remark, ...]),
            *_mismatches(on),
            *lowered.compile_notes,
        ),
        tags=tags,
    )


def _wait(child: subprocess.Popen[bytes], on: Hardware) -> int:
    """The exit status of a child once it has ended; `Popen.wait` with a timeout looks at times."""
    given_up = threading.Event()

    def give_up() -> None:
        given_up.set()
        child.kill()

    timer = threading.Timer(LONGEST, give_up)
    timer.daemon = True
    timer.start()
    try:
        status = child.wait()
    finally:
        timer.cancel()
    if given_up.is_set():
        raise CompilerError(f"The compile for {on} was given up after {LONGEST / 60:.0f} minutes.")
    return status


def _mismatches(on: Hardware) -> Iterator[Remark]:
    mismatch = mismatched_plugin(on.platform)
    if mismatch is not None:
        yield Remark("other plugin", str(mismatch), other=mismatch.advice)


def _topology(digits: list[list[Any]] | None) -> Topology | None:
    return None if digits is None else Topology(tuple(DeviceDigit(*digit) for digit in digits))


def check_hardware(lowered: LoweredModule, graph: OpGraph, on: Hardware | None = None) -> Hardware:
    """The hardware, once nothing is known to stand in the way of compiling for it.

    Args:
        lowered: the module, lowered for the hardware's platform.
        graph: its op graph.
        on: as ``compile_module`` takes it.

    Raises:
        CompilerError: Python would have to partition an op.
        TargetError: as of ``compile_module``.
    """
    count = partitions(lowered, graph)
    on = on or Hardware("cpu")
    if on.platform == "cpu" and on.count is None:
        on = Hardware("cpu", count)
    if on.count is not None and on.count != count:
        raise TargetError(
            f"{on} has {counted(on.count, 'device')}, and the program is for "
            f"{counted(count, 'device')}.",
            hint="Give a --mesh of as many devices, or other hardware.",
        )
    if on.platform == "cpu" and count > LARGEST_CPU:
        raise TargetError(
            f"XLA compiles for at most {LARGEST_CPU:,} CPU devices, and the program has "
            f"{count:,} partitions.",
            hint="Use a smaller --mesh, or compile for TPUs or GPUs with --on.",
        )
    missing = missing_plugin(on)
    if missing is not None:
        raise missing
    if lowered.platforms and on.platform not in lowered.platforms:
        raise TargetError(
            f"{lowered.name} was lowered for {' and '.join(lowered.platforms)}, not for {on}.",
            hint="Name the program itself, so that it can be lowered again.",
        )
    if fatal := fatal_axes(lowered):
        raise CompilerError(
            "Under Shardy XLA aborts on names of mesh axes with a backslash or what is not ASCII: "
            f"{', '.join(map(repr, fatal))}.",
            hint="Rename the axis.",
        )
    if asks_python(graph):
        raise python_partitions()
    return on


def asks_python(graph: OpGraph) -> bool:
    """Whether Python would have to partition an op, which only the program's own process can."""
    return any(op.call_target == CUSTOM_PARTITIONING for op in graph.operations())


def python_partitions() -> CompilerError:
    """What is said where Python would have to partition an op."""
    return CompilerError(
        "custom_partitioning asks Python how to partition an op, which a compile in another "
        "process can't do.",
        hint="`sdyscope propagate` shows the program as far as propagation; `sdyscope record` "
        "keeps what the script's own compile makes.",
    )


@lru_cache
def _warn_of(mismatch: Mismatch) -> None:
    """Says once that two binaries don't fit, before a compile that may take minutes."""
    output.say(f"warning: {mismatch}. Correct programs can fail to compile: {mismatch.advice}")


def _start(folder: Path, on: Hardware) -> subprocess.Popen[bytes]:
    """Starts the child that compiles what is in a folder."""
    serve = f"compiler_child.serve({str(folder)!r})"
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(
            python(f"from sdyscope.stages.compiled import compiler_child; {serve}"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment(on), "TF_CPP_MIN_LOG_LEVEL": "1"},
        )


def _raise_if_wrong(answer: dict[str, Any], on: Hardware) -> None:
    if "wrong" in answer:
        raise TargetError(answer["wrong"], hint=answer["hint"], file=answer["file"])
    if "refused" in answer:
        said = refusal(answer["refused"])
        # What libtpu writes for these, the HLO reader of an older jaxlib can't read back.
        hint = "tpu7x needs JAX 0.12." if on.chip == "tpu7x" and _OLD else None
        mismatch = mismatched_plugin(on.platform)
        if mismatch is not None:
            # Which of the two is at fault can't be told: only that the pair is none of JAX's.
            raise CompilerError(
                f"The compile for {on} failed: {said}. {mismatch}.",
                hint=f"Before you look for the cause in the program: {mismatch.advice}",
            )
        by, source = failed_pass(answer["refused"])
        if by:
            at = "" if source is None else f" at {source_text(source)}"
            raise CompilerError(
                f"XLA itself is wrong on the program for {on}: what its pass {by} makes{at} is "
                f"refused by XLA's verifier. {said}.",
                hint=_OF_XLA,
            )
        if on.platform == "cpu":
            hint = _OTHERWISE
        raise CompilerError(f"The compiler refuses the program for {on}: {said}.", hint=hint)


def _ended(on: Hardware, status: int, log: str) -> CompilerError:
    why = last_words(log)
    if status < 0:
        name = signal_name(-status)
        hints = []
        if on.platform == "tpu":
            hints.append("Does such a topology exist? Most often it has other dimensions.")
        if (mismatch := mismatched_plugin(on.platform)) is not None:
            hints.append(f"{mismatch}: {mismatch.advice}")
        return CompilerError(
            f"The compiler aborted on {on} ({name}): {why or 'it said nothing'}.",
            hint="\n".join(hints) or None,
        )
    why = why or last_line(log) or "no message"
    return CompilerError(f"The compiler for {on} could not be run (status {status}): {why}.")
