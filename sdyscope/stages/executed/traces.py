"""Traces of JAX's profiler: what ran when, and the programs that are kept with it.

``jax.profiler.ProfileData`` reads the events of an XPlane file
(``tsl/profiler/protobuf/xplane.proto``). Programs are in the metadata of events, which it does not
show; they are taken from the file's own bytes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jax.profiler import ProfileData

from sdyscope.errors import TargetError
from sdyscope.facts.measured import COMMAND_BUFFER, Kernel, Occurrence, Trace, TracedProgram
from sdyscope.process.progress import doing
from sdyscope.stages.lowered.read import hlo_text_of
from sdyscope.syntax.protobuf import fields

_ENDING: Final = ".xplane.pb"
_METADATA: Final = b"/host:metadata"
#: Its stats are ranges of a GPU's events, by number, each with the range that it is in.
_SCOPES: Final = b"/host:__ScopeRangeCallStack__"
_PROGRAM: Final = b"Hlo Proto"

_WRITTEN: Final = "A trace is written when jax.profiler.trace ends: did the program end before?"

#: Lines of a device's plane whose events are instructions.
_OP_LINES: Final = ("XLA Ops", "Async XLA Ops")
_DEVICE: Final = re.compile(r"/device:(?:TPU|GPU):(\d+)")
#: What an instruction is called where the event is named after its text: ``%fusion.3 = f32[]...``.
_NAMED: Final = re.compile(r"%?([\w.\-]+)(?: = |$)")
#: ``jit_step(34)``
_NUMBERED: Final = re.compile(r"(.*)\((\d+)\)$")
#: Where an instruction is from, which is nothing that runs.
_METADATA_OF_OPS: Final = re.compile(r", metadata=\{[^}]*\}")
#: Events of which there are many, and that are no instructions.
_NO_OPS: Final = ("ThreadpoolListener", "$", "Rendezvous", "Wait")
#: Where an instruction of a CPU ends, on whichever thread (``cpu/runtime/thunk_executor.cc``).
_END: Final = "end: "
#: Seconds between the end of an event and the one that says so, on the same thread.
_LATER: Final = 5e-6


def is_trace(path: Path) -> bool:
    """Whether a path is a trace, or a folder with one."""
    return bool(_candidates(path))


def trace_files(path: Path) -> tuple[Path, ...]:
    """The files of a trace, one a host; of a folder with several traces those of the last.

    Raises:
        TargetError: there are none.
    """
    files = _candidates(path)
    if not files:
        raise TargetError(
            "There is no trace of JAX's profiler here.",
            file=path,
            hint="Give the folder that jax.profiler.trace was given, or a .xplane.pb file.",
        )
    # plugins/profile/2026_11_25_03_45_21/host.xplane.pb: one folder a trace.
    last = max(file.parent for file in files)
    return tuple(file for file in files if file.parent == last)


def _candidates(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.name.endswith(_ENDING) else []
    return sorted(path.glob(f"**/*{_ENDING}")) if path.is_dir() else []


def read_trace(path: Path) -> Trace:
    """What a trace has of programs that ran.

    Args:
        path: a file, or the folder that ``jax.profiler.trace`` was given.

    Raises:
        TargetError: there is no trace, or it is cut off.
    """
    files = trace_files(path)
    hosts = [_host(file, number, len(files)) for number, file in enumerate(files)]
    names = dict.fromkeys(name for host in hosts for name in host.events)
    programs = [
        _program(name, text, together) for name in names for text, together in _alike(name, hosts)
    ]
    return Trace(files, tuple(sorted(programs, key=lambda program: -program.seconds)))


@dataclass
class _Host:
    """What one file has.

    Attributes:
        events: by program its events: (run, device, instruction, start, seconds).
        kernels: by program what GPUs ran: (run, device, instruction, kernel, start, seconds).
        texts: by program its HloProto.
        devices: numbers of the devices that ran anything.
        begun: the events that another one ends, by what connects the two: program, and which.
        handed_on: by program the instructions that end on another thread.
        on_cpus: whether its devices are virtual ones, of its CPU.
    """

    events: dict[str, list[tuple[Any, int, str, float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    kernels: dict[str, list[tuple[Any, int, str, str, float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    texts: dict[str, bytes] = field(default_factory=dict)
    devices: set[int] = field(default_factory=set)
    begun: dict[object, tuple[str, int]] = field(default_factory=dict)
    handed_on: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    on_cpus: bool = False


def _host(file: Path, number: int, files: int) -> _Host:
    which = f" ({number + 1} of {files})" if files > 1 else ""
    doing(f"reading {file.name}{which}")
    try:
        space = file.read_bytes()
    except OSError as error:
        raise TargetError(
            f"The trace can't be read: {error.strerror or error}.", file=file
        ) from error
    if not space:
        raise TargetError("The trace can't be read: the file is empty.", file=file, hint=_WRITTEN)
    try:
        scopes = _outermost(dict(_scopes(space)))
        programs = dict(_programs(space))  # First: older ProfileData aborts at a file cut off.
        planes = list(ProfileData.from_serialized_xspace(space).planes)
    except (RuntimeError, ValueError) as error:
        raise TargetError(
            "The trace can't be read: it is cut off, or no trace.", file=file, hint=_WRITTEN
        ) from error
    host = _Host()
    host.texts.update(programs)
    for plane in planes:
        device = _DEVICE.match(plane.name)
        if device is not None:
            doing(f"reading {file.name}{which}: {plane.name}")
            _on_accelerator(host, plane, int(device[1]), scopes)
        elif plane.name.startswith("/host:CPU"):
            lines = list(plane.lines)
            ends: dict[object, float] = {}
            for at, line in enumerate(lines, 1):
                doing(f"reading {file.name}{which}: thread {at:,} of {len(lines):,}")
                _on_cpus(host, line, ends)
            _ended(host, ends)
    return host


def _on_cpus(host: _Host, line: Any, ends: dict[object, float]) -> None:
    """Instructions of virtual CPU devices say themselves what they are of."""
    for event in line.events:
        if event.name.startswith(_NO_OPS):
            continue
        said = dict(event.stats)
        if event.name.startswith(_END):
            ends[said.get("_c")] = event.start_ns * 1e-9
            continue
        op = said.get("hlo_op")
        if op is None:
            continue
        name = _key(str(said.get("hlo_module", "")), said.get("program_id"))
        device = int(said.get("device_ordinal", 0))
        host.devices.add(device)
        host.on_cpus = True
        start, seconds = event.start_ns * 1e-9, event.duration_ns * 1e-9
        if "_p" in said:
            host.begun[said["_p"]] = name, len(host.events[name])
        host.events[name].append((said.get("run_id"), device, str(op), start, seconds))


def _ended(host: _Host, ends: Mapping[object, float]) -> None:
    """What was handed to other threads, such as a dot, ends there; its own event ends before."""
    for flow, end in ends.items():
        if flow in host.begun:
            name, at = host.begun[flow]
            run, device, op, start, seconds = host.events[name][at]
            if end - start > seconds + _LATER:
                host.handed_on[name].add(op)
                host.events[name][at] = (run, device, op, start, end - start)
    host.begun.clear()


def _on_accelerator(host: _Host, plane: Any, device: int, outermost: Callable[[Any], Any]) -> None:
    """Instructions of a TPU or GPU are on lines of its plane, beside its programs' runs.

    A GPU has a line a stream, whose events are kernels. Those of one instruction are in one range,
    and the outermost range around it is the run.
    """
    lines = {line.name: line for line in plane.lines}
    modules = [
        (event.start_ns, event.start_ns + event.duration_ns, *_module(event))
        for event in (lines["XLA Modules"].events if "XLA Modules" in lines else ())
    ]
    for name, line in lines.items():
        if name not in _OP_LINES and not name.startswith("Stream"):
            continue
        last: dict[str, tuple[Any, str]] = {}
        for event in line.events:
            said = dict(event.stats)
            op = said.get("hlo_op") or (event.name if name in _OP_LINES else None)
            match = None if op is None else _NAMED.match(str(op))
            if match is None:
                continue
            program, run = _within(modules, event.start_ns)
            if "hlo_module" in said:
                program = _key(str(said["hlo_module"]), said.get("program_id"))
            scope = said.get("scope_range_id")
            run = said.get("run_id", run if scope is None else outermost(scope))
            host.devices.add(device)
            start, seconds = event.start_ns * 1e-9, event.duration_ns * 1e-9
            events = host.events[program]
            if scope is not None:
                host.kernels[program].append((run, device, match[1], event.name, start, seconds))
            if scope is not None and last.get(program) == (scope, match[1]):
                # Another kernel of the same instruction, such as one that clears memory before it.
                *_, begun, before = events[-1]
                events[-1] = (run, device, match[1], begun, before + seconds)
            else:
                events.append((run, device, match[1], start, seconds))
            last[program] = scope, match[1]


def _outermost(parents: Mapping[Any, Any]) -> Callable[[Any], Any]:
    """What finds the range around all others that a range is in."""

    def outermost(scope: Any) -> Any:
        while parents.get(scope):
            scope = parents[scope]
        return scope

    return outermost


def _module(event: Any) -> tuple[str, Any]:
    """The program of an event that is a whole run, and the run."""
    said = dict(event.stats)
    match = _NUMBERED.match(event.name)
    name = _key(match[1], match[2]) if match is not None else event.name
    return name, said.get("run_id", event.start_ns)


def _within(modules: Sequence[tuple[float, float, str, Any]], start: float) -> tuple[str, Any]:
    for begins, ends, name, run in modules:
        if begins <= start <= ends:
            return name, run
    return "", None


def _key(module: str, program: Any) -> str:
    return module if program is None else f"{module}({program})"


def _alike(name: str, hosts: Sequence[_Host]) -> Iterator[tuple[str, Sequence[_Host]]]:
    """The hosts that ran one program of a name, with its text: other runs have other texts."""
    protos = dict.fromkeys(host.texts[name] for host in hosts if name in host.texts)
    texts = {proto: hlo_text_of(proto) or "" for proto in protos}
    #: By what a text runs, the first text that runs it, and its hosts.
    programs: dict[str, tuple[str, list[_Host]]] = {}
    for host in hosts:
        if name in host.texts and (len(protos) == 1 or name in host.events):
            text = texts[host.texts[name]]
            runs = _METADATA_OF_OPS.sub("", text.partition("\n")[2]) if len(protos) > 1 else ""
            programs.setdefault(runs, (text, []))[1].append(host)
    if len(programs) < 2:
        # Hosts that have no text ran the only one that there is.
        yield next(iter(programs.values()), ("", []))[0], hosts
        return
    yield from programs.values()
    if nameless := [host for host in hosts if name in host.events and name not in host.texts]:
        yield "", nameless


def _program(name: str, text: str, hosts: Sequence[_Host]) -> TracedProgram:
    """One program on its hosts, whose steps are those of each host in order."""
    occurrences: dict[str, list[Occurrence]] = defaultdict(list)
    kernels: list[Kernel] = []
    host_of: list[int] = []
    steps = 0
    for number, host in enumerate(hosts):
        events = host.events.get(name, [])
        if not events:
            continue
        devices = {device: at for at, device in enumerate(sorted(host.devices))}
        first: dict[Any, float] = {}
        for run, _, _, start, _ in events:
            first[run] = min(start, first.get(run, start))
        step_of = {run: step for step, run in enumerate(sorted(first, key=first.__getitem__))}
        steps = max(steps, len(step_of))
        for run, device, op, start, seconds in events:
            place = len(host_of) + devices[device]
            occurrences[op].append((step_of[run], place, start, seconds))
        kernels += [
            Kernel(op, kernel, step_of[run], len(host_of) + devices[device], start, seconds)
            for run, device, op, kernel, start, seconds in host.kernels.get(name, ())
        ]
        host_of += [number] * len(devices)
    for times in occurrences.values():
        times.sort(key=lambda time: time[2])
    match = _NUMBERED.match(name)
    return TracedProgram(
        match[1] if match is not None else name,
        text,
        len(host_of),
        len(set(host_of)),
        steps,
        occurrences,
        host_of,
        frozenset(op for host in hosts for op in host.handed_on.get(name, ())),
        all(host.on_cpus for host in hosts),
        sorted(kernels, key=lambda kernel: kernel.start) if _hides(kernels) else (),
    )


def _hides(kernels: Iterable[Kernel]) -> bool:
    """Whether command buffers hide which instructions kernels are of."""
    return any(kernel.op.startswith(COMMAND_BUFFER) for kernel in kernels)


# Programs, which are in the metadata of the plane of that name.


def _programs(space: bytes) -> Iterator[tuple[str, bytes]]:
    """The programs in an XSpace, by name and number, as HloProtos."""
    for plane in _planes(space, _METADATA):
        names = {key: dict(fields(value)).get(2, b"") for key, value in _entries(plane, 5)}
        for _, event in _entries(plane, 4):
            parts = list(fields(event))
            name = next((value for at, value in parts if at == 2), b"")
            for at, stat in parts:
                said = dict(fields(stat)) if at == 5 else {}
                if names.get(said.get(1)) == _PROGRAM and isinstance(said.get(6), bytes):
                    yield name.decode("utf-8", "replace"), said[6]


def _scopes(space: bytes) -> Iterator[tuple[int, int]]:
    """Ranges of a GPU's events, each with the range that it is in."""
    for plane in _planes(space, _SCOPES):
        for at, stat in plane:
            if at == 6:
                said = dict(fields(stat))
                yield said.get(1, 0), said.get(3, said.get(4, 0))


def _planes(space: bytes, name: bytes) -> Iterator[list[tuple[int, Any]]]:
    """The fields of the planes of a name."""
    for number, plane in fields(space):
        # A plane's name is before its events, of which there can be many.
        if number == 1 and next((value for at, value in fields(plane) if at == 2), b"") == name:
            yield list(fields(plane))


def _entries(parts: Iterable[tuple[int, Any]], number: int) -> Iterator[tuple[Any, bytes]]:
    """The entries of a map."""
    for at, value in parts:
        if at == number:
            entry: Mapping[int, Any] = dict(fields(value))
            yield entry.get(1, 0), entry.get(2, b"")
