"""A recorded run: what every program that JAX compiled in it was, read from its folder.

The truth is the lines of JSON in `processes/*.jsonl`, a file for each process, which are only ever
added to; `stages/recorder` writes them. Merged, they are a `Record`, of which `record.json` in the
folder is a copy for other programs. So a folder reads the same after a crash, and while processes
still write.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from sdyscope.errors import TargetError
from sdyscope.facts.program import Partitioner, Versions
from sdyscope.facts.remarks import Remark
from sdyscope.syntax.strings import label
from sdyscope.values.source import FilePath, PathWords, is_library

SCHEMA: Literal["sdyscope.record/1"] = "sdyscope.record/1"

#: What a recorded folder consists of; anything else in it is somebody else's.
INDEX, PROCESSES, MODULES, COMPILED = "record.json", "processes", "modules", "compiled"
PROPAGATED = "propagated"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a source file.

    Attributes:
        file: its path, as Python knows it.
        line: from 1.
    """

    file: FilePath
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A command that was recorded.

    Attributes:
        command: its words.
        directory: where it was started.
        partitioner: what `--partitioner` asked for; empty for the program's own setting alone.
        started: seconds since 1970.
        ended: likewise; null while it runs, or when the recording itself was killed.
        status: its exit status, negative when a signal ended it; null likewise.
    """

    command: tuple[PathWords, ...]
    directory: FilePath
    partitioner: Partitioner | Literal["both", ""]
    started: float
    ended: float | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedProcess:
    """A process in which JAX lowered or compiled something.

    Attributes:
        name: host, process number and start, as its file is called.
        host: the host's name.
        pid: number of the process.
        parent: number of its parent.
        index: which of the processes of a JAX program it is; null when it compiled nothing.
        arguments: its command line.
        jax: version of JAX.
        jaxlib: version of jaxlib; empty where it was not recorded.
        python: version of Python.
    """

    name: str
    host: str
    pid: int
    parent: int
    index: int | None
    arguments: tuple[PathWords, ...]
    jax: str
    jaxlib: str
    python: str

    @property
    def versions(self) -> Versions:
        """The JAX that made its programs."""
        return Versions(self.jax, self.jaxlib)


DeviceRuns: TypeAlias = tuple[tuple[int, int, int], ...]
#: How many devices a recorded program may have, so that a file can't make this one too large.
_MOST_DEVICES = 2**20


@dataclass(frozen=True, slots=True)
class RecordedCompile:
    """What the run's own compiler made of a program, the last time.

    Attributes:
        file: its HLO text, in the folder.
        versions: the JAX that had it compiled.
        platform: what it is for: `cpu`, `gpu`, `tpu`.
        results: HLO sharding of each result; none where that is not known.
        memory: XLA's memory statistics, in bytes, by their names; null where it has none.
        options: the `compiler_options` that it was compiled with.
        flags: what `XLA_FLAGS` said of compiling; null where that was not recorded.
        device_kind: what the compiler calls such a device: `NVIDIA H200`; empty likewise.
        device_runs: ids of the devices by the position that the module counts them by, in runs of
            equal steps: the first id, how many, and the step; none where that was not recorded, and
            of a program that was compiled for several orders of them.
    """

    file: str
    versions: Versions
    platform: str
    results: tuple[str, ...]
    memory: dict[str, int] | None
    options: tuple[tuple[str, bool | int | float | str], ...] = ()
    flags: tuple[tuple[str, bool | str], ...] | None = None
    device_kind: str = ""
    device_runs: DeviceRuns = ()

    @property
    def device_order(self) -> tuple[int, ...]:
        """The ids of ``device_runs``, one by one; none where a file claims more than can be."""
        return _ids(self.device_runs)


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """One program: a module, however often and in however many processes it was made.

    Attributes:
        label: what to call it in this folder, such as `train_step`, or `train_step.2` where several
            programs have one name.
        name: name of the function, in letters that MLIR allows: that of the module without `jit_`,
            unless JAX gave that the name of a function of its own, as pmap does.
        module: name of the module.
        arguments: element type and shape of each flat argument, unused ones included; null when
            only its compilation was seen.
        weak: the numbers of those that have a weak type, as a Python number has, of each lowering.
        meshes: the mesh that the type of each names, such as `data=8`, of each lowering; none where
            no argument's does.
        mesh: axis sizes of the one mesh that its shardings are on, in order; empty where there is
            none, several, or it is not known.
        paths: JAX's names for them, such as `params['w']`; null likewise, or where it has none.
        results: element type and shape of each flat result; null likewise.
        defined: where the function stands; null when not known.
        by_jax: whether that is in JAX, as of `jnp.where` or of a single primitive.
        called: the lines of the program that led to it, without those of JAX.
        partitioner: what JAX was set to partition it with.
        modules: file of its module, in the folder, for its own partitioner first, and under the
            other one where that was asked for.
        failures: why there is no module under a partitioner.
        devices: for how many devices it was compiled; null when it was not.
        orders: for how many orders of the same devices, the most of one process; 0 when not known.
        lowerings: how often JAX lowered it.
        compiles: how often JAX had it compiled, or found it in its cache on disk.
        refused: what the compiler said, where it refused.
        lowering_seconds: how long all lowerings took.
        compile_seconds: how long all of that took.
        processes: names of the processes it was seen in.
        versions: the JAX that lowered it.
        compiled: what its own compiler made of it; null where that was not recorded.
        propagated: file with what the JAX that lowered it propagates under its partitioner, in the
            folder; null where that was not kept.
        cached: how many of its compiles JAX read from its cache on disk.
    """

    label: str
    name: str
    module: str
    arguments: tuple[str, ...] | None
    weak: tuple[tuple[int, ...], ...]
    meshes: tuple[tuple[str, ...], ...]
    paths: tuple[str, ...] | None
    results: tuple[str, ...] | None
    defined: Line | None
    by_jax: bool
    called: tuple[Line, ...]
    partitioner: Partitioner
    modules: dict[Partitioner, str]
    failures: dict[Partitioner, str]
    devices: int | None
    orders: int
    lowerings: int
    compiles: int
    refused: tuple[str, ...]
    lowering_seconds: float
    compile_seconds: float
    processes: tuple[str, ...]
    versions: Versions
    compiled: RecordedCompile | None
    propagated: str | None = None
    mesh: dict[str, int] = field(default_factory=dict)
    cached: int = 0

    @property
    def is_cached(self) -> bool:
        """Whether JAX read all that it was compiled to from its cache on disk."""
        return 0 < self.compiles == self.cached

    @property
    def is_eager(self) -> bool:
        """Whether it is one op of a `shard_map` outside of jit: each is a function without name."""
        return self.defined is None and self.name.strip("_<>") in _UNNAMED

    @property
    def function(self) -> tuple[str, Line | None]:
        """Its function: programs of one were compiled again for other arguments."""
        return self.name, self.defined

    @property
    def line(self) -> Line | None:
        """Where it stands; of a library's function, such as `jax.jit(optimizer.init)`, its call."""
        by_library = self.defined is not None and is_library(self.defined.file)
        return self.called[0] if by_library and self.called else self.defined

    @property
    def words(self) -> str:
        """Its label with the types of its arguments, of a few: `train_step.1 (f32[8,64], ...)`."""
        known = self.arguments or ()
        shown = ", ".join(known[:_SHOWN_ARGUMENTS])
        more = f", {len(known) - _SHOWN_ARGUMENTS} more" if len(known) > _SHOWN_ARGUMENTS else ""
        return self.label if self.arguments is None else f"{self.label} ({shown}{more})"


_SHOWN_ARGUMENTS = 4
#: What JAX calls a function without a name: the second before JAX 0.9.
_UNNAMED = frozenset({"unnamed_function", "unnamed_wrapped_function"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The document of `sdyscope record --json`, and of `record.json` in the folder that it fills.

    Attributes:
        schema: name and version of this form.
        runs: the commands that were recorded, one unless `--add` added others.
        processes: the processes in which JAX compiled something, in the order in which they did.
        programs: every program, in the order in which they were first seen.
        problems: what could not be recorded or read.
    """

    schema: Literal["sdyscope.record/1"] = SCHEMA
    runs: tuple[RecordedRun, ...] = ()
    processes: tuple[RecordedProcess, ...] = ()
    programs: tuple[RecordedProgram, ...] = ()
    problems: tuple[Remark | str, ...] = ()

    def run_of(self, process: RecordedProcess) -> RecordedRun | None:
        """The run that a process is of: of several, the last with the end of its command line.

        None where none is on record.
        """
        words = process.arguments
        ends = [run for run in self.runs if words[-len(run.command) :][1:] == run.command[1:]]
        return next(reversed(ends or self.runs), None)

    def number_of(self, program: RecordedProgram) -> int:
        """Which it is, from 0, of those with its name and types, as they were first seen."""
        alike = [
            other.label
            for other in self.programs
            if (other.module, other.arguments) == (program.module, program.arguments)
        ]
        return alike.index(program.label)

    @property
    def own(self) -> tuple[RecordedProgram, ...]:
        """The programs that are not JAX's own functions."""
        return tuple(program for program in self.programs if not program.by_jax)


# --- the lines that processes write ---------------------------------------------------------------


class _Written(msgspec.Struct, tag_field="line", kw_only=True):
    """What every line has."""

    at: float


class _Run(_Written, tag="run"):
    command: tuple[str, ...]
    directory: str
    partitioner: Partitioner | Literal["both", ""]
    schema: str


class _Ended(_Written, tag="ended"):
    status: int


class _Process(_Written, tag="process"):
    schema: str
    pid: int
    parent: int
    host: str
    arguments: tuple[str, ...]
    jax: str
    python: str
    jaxlib: str = ""


class _Lowered(_Written, tag="lowered"):
    module: str
    name: str
    defined: tuple[str, int] | None
    by_jax: bool
    called: tuple[str, int] | None
    partitioner: Partitioner
    arguments: tuple[str, ...]
    paths: tuple[str, ...]
    results: tuple[str, ...]
    seconds: float
    others: dict[Partitioner, str]
    failures: dict[Partitioner, str]
    weak: tuple[int, ...] = ()
    meshes: tuple[str, ...] = ()
    mesh: dict[str, int] = {}
    author: str = ""


class _Compiled(_Written, tag="compiled"):
    module: str
    name: str
    partitioner: Partitioner
    devices: int
    index: int
    seconds: float
    called: tuple[str, int] | None
    failed: str
    platform: str = ""
    hlo: str = ""
    results: tuple[str, ...] = ()
    memory: dict[str, int] | None = None
    options: tuple[tuple[str, bool | int | float | str], ...] = ()
    flags: tuple[tuple[str, bool | str], ...] | None = None
    device_kind: str = ""
    device_runs: DeviceRuns = ()
    cached: bool = False


class _Propagated(_Written, tag="propagated"):
    module: str
    jax: str
    jaxlib: str
    file: str = ""
    failed: str = ""

    @property
    def key(self) -> tuple[str, Versions]:
        return self.module, Versions(self.jax, self.jaxlib)


class _Problem(_Written, tag="problem"):
    what: str


_AnyLine: TypeAlias = _Run | _Ended | _Process | _Lowered | _Compiled | _Propagated | _Problem

#: What a line that is none raises: no JSON, another form, no UTF-8, nested too deep.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_DECODER = msgspec.json.Decoder(_AnyLine)


class _Schema(msgspec.Struct):
    """What is looked at before the rest of a line or document."""

    schema: str = ""


def is_recorded(folder: Path) -> bool:
    """Whether a folder holds a recorded run."""
    if (folder / INDEX).is_file():
        return True
    return any((folder / PROCESSES).glob("*.jsonl"))


def read_record(folder: Path, *, trust_index: bool = True) -> Record:
    """Merges what the processes wrote.

    Args:
        folder: the folder.
        trust_index: whether an index that is not one, or is newer, is an error.

    Raises:
        TargetError: the folder can't be read, or a newer sdyscope wrote it.
    """
    if trust_index:
        _check_index(folder / INDEX)
    problems: list[Remark | str] = []
    files = sorted((folder / PROCESSES).glob("*.jsonl"))
    written = [(file.stem, _lines(file, problems)) for file in files]
    runs = [run for _, lines in written for run in _runs(lines)]
    processes = [process for name, lines in written if (process := _process(name, lines))]
    events = [(line, name) for name, lines in written for line in lines]
    events.sort(key=lambda pair: pair[0].at)
    problems += [line.what for line, _ in events if isinstance(line, _Problem)]
    order = {name: place for place, (_, name) in reversed(list(enumerate(events)))}
    versions = {process.name: process.versions for process in processes}
    programs = _programs(folder, events, versions, problems)
    return Record(
        runs=tuple(sorted(runs, key=lambda run: run.started)),
        processes=tuple(sorted(processes, key=lambda process: order[process.name])),
        programs=tuple(_labelled(programs)),
        problems=tuple(dict.fromkeys(problems)),
    )


def _check_index(path: Path) -> None:
    """Finds an index that is not one, or a newer one: the lines alone would hide that."""
    if not path.exists():
        return
    try:
        schema = msgspec.json.decode(path.read_bytes(), type=_Schema).schema
    except OSError as error:
        raise TargetError(f"It can't be read: {error.strerror}.", file=path) from error
    except _UNREADABLE as error:
        raise TargetError(
            f"This is not the index of a recorded run: {error}.",
            file=path,
            hint="Remove the file: the run is read from the files beside it.",
        ) from error
    _check_schema(schema, path)


def _check_schema(schema: str, path: Path) -> None:
    if schema == SCHEMA:
        return
    newer = schema.startswith("sdyscope.record/")
    raise TargetError(
        f"Its schema is {schema!r}; this sdyscope reads {SCHEMA!r}.",
        file=path,
        hint="Read it with a newer sdyscope." if newer else "Record the run again.",
    )


def _lines(path: Path, problems: list[Remark | str]) -> list[_AnyLine]:
    """The lines of a process; what can't be read is counted in `problems`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TargetError(f"It can't be read: {error.strerror}.", file=path) from error
    events: list[_AnyLine] = []
    bad: list[int] = []
    # What is after the last newline was cut off when the process was killed.
    for number, text in enumerate(data.split(b"\n")[:-1], 1):
        try:
            events.append(
                msgspec.convert(_labelled_texts(msgspec.json.decode(text)), _AnyLine)
                if b"\\" in text
                else _DECODER.decode(text)
            )
        except _UNREADABLE:
            bad.append(number)
    for line in events:
        if isinstance(line, _Run | _Process):
            _check_schema(line.schema, path)
    if bad:
        problems.append(Remark("unreadable lines", path.name, len(bad), bad[0]))
    return events


def _labelled_texts(value: Any) -> Any:
    """A line with the line breaks in its texts as names have them: none is more than one line."""
    match value:
        case str():
            return label(value)
        case list():
            return [_labelled_texts(each) for each in value]
        case dict():
            return {key: _labelled_texts(each) for key, each in value.items()}
    return value


def _runs(lines: Sequence[_AnyLine]) -> list[RecordedRun]:
    runs: list[RecordedRun] = []
    for line in lines:
        if isinstance(line, _Run):
            runs.append(RecordedRun(line.command, line.directory, line.partitioner, line.at))
        elif isinstance(line, _Ended) and runs:
            runs[-1] = replace(runs[-1], ended=line.at, status=line.status)
    return runs


def _process(name: str, lines: Sequence[_AnyLine]) -> RecordedProcess | None:
    for line in lines:
        if isinstance(line, _Process):
            index = next((line.index for line in lines if isinstance(line, _Compiled)), None)
            return RecordedProcess(
                name,
                line.host,
                line.pid,
                line.parent,
                index,
                line.arguments,
                line.jax,
                line.jaxlib,
                line.python,
            )
    return None


# --- the programs ---------------------------------------------------------------------------------


def _programs(
    folder: Path,
    events: Iterable[tuple[_AnyLine, str]],
    versions: Mapping[str, Versions],
    problems: list[Remark | str],
) -> list[RecordedProgram]:
    """One for each module, in the order in which they were first seen."""
    seen: dict[tuple[str, str], list[tuple[_Lowered | _Compiled, str]]] = defaultdict(list)
    propagated: dict[tuple[str, Versions], _Propagated] = {}
    for line, process in events:
        if isinstance(line, _Lowered | _Compiled):
            seen[line.module, line.name].append((line, process))
        elif isinstance(line, _Propagated):
            propagated[line.key] = line
    programs = []
    for (_, name), lines in seen.items():
        program = _program(name, lines, versions)
        kept = propagated.get((_module(program, program.partitioner), program.versions))
        if kept is not None and kept.file:
            program = replace(program, propagated=f"{PROPAGATED}/{kept.file}.json")
        elif kept is not None:
            problems.append(Remark("propagation not kept", program.name, other=kept.failed))
        outside = [file for file in _files(program) if not _is_inside(folder, file)]
        if outside:
            problems.append(Remark("file outside", program.name, other=outside[0][:_NAMED]))
            continue
        there = {
            partitioner: file
            for partitioner, file in program.modules.items()
            if (folder / file).is_file()
        }
        for partitioner, file in program.modules.items():
            if partitioner not in there:
                problems.append(
                    Remark("module gone", program.name, names=((partitioner, 0),), other=file)
                )
        compiled = program.compiled
        if compiled is not None and not (folder / compiled.file).is_file():
            problems.append(Remark("compiled program gone", program.name, other=compiled.file))
            compiled = None
        if program.propagated is not None and not (folder / program.propagated).is_file():
            problems.append(Remark("propagation gone", program.name, other=program.propagated))
            program = replace(program, propagated=None)
        if program.partitioner in there:
            programs.append(replace(program, modules=there, compiled=compiled))
    return programs


def _module(program: RecordedProgram, partitioner: Partitioner) -> str:
    """What its module for a partitioner is called in lines; empty where it has none."""
    return Path(program.modules.get(partitioner, "")).stem


#: What the recorder calls a file: a folder, and the digest of what is in it.
_FILE = re.compile(r"\w+/[\w.-]{1,80}")
#: How much of a file's name is told.
_NAMED = 80


def _files(program: RecordedProgram) -> Iterator[str]:
    yield from program.modules.values()
    if program.compiled is not None:
        yield program.compiled.file
    if program.propagated is not None:
        yield program.propagated


def _is_inside(folder: Path, file: str) -> bool:
    """Whether a name that a recording says is one of its own files, not one that it leads to."""
    there = folder.resolve()
    return _FILE.fullmatch(file) is not None and (there / file).resolve() == there / file


def _program(
    name: str,
    lines: Sequence[tuple[_Lowered | _Compiled, str]],
    versions: Mapping[str, Versions],
) -> RecordedProgram:
    lowered = [line for line, _ in lines if isinstance(line, _Lowered)]
    compiled = [line for line, _ in lines if isinstance(line, _Compiled)]
    first = lines[0][0]
    files = {first.partitioner: first.module}
    failures: dict[Partitioner, str] = {}
    for line in lowered:
        files |= line.others
        failures |= line.failures
    known = lowered[0] if lowered else None
    called = dict.fromkeys(line.called for line, _ in lines if line.called)
    return RecordedProgram(
        label="",
        name=known.author if known and known.author else name.removeprefix("jit_"),
        module=name,
        arguments=known.arguments if known else None,
        weak=tuple(line.weak for line in lowered),
        meshes=tuple(line.meshes for line in lowered),
        mesh=known.mesh if known else {},
        paths=known.paths or None if known else None,
        results=known.results if known else None,
        defined=Line(*known.defined) if known and known.defined else None,
        by_jax=bool(known and known.by_jax),
        called=tuple(Line(*place) for place in called),
        partitioner=first.partitioner,
        modules={partitioner: f"{MODULES}/{file}.mlir" for partitioner, file in files.items()},
        failures={
            partitioner: why for partitioner, why in failures.items() if partitioner not in files
        },
        devices=compiled[0].devices if compiled else None,
        orders=_orders(lines),
        lowerings=len(lowered),
        compiles=len(compiled),
        cached=sum(line.cached for line in compiled),
        refused=tuple(dict.fromkeys(line.failed for line in compiled if line.failed)),
        lowering_seconds=round(sum(line.seconds for line in lowered), 6),
        compile_seconds=round(sum(line.seconds for line in compiled), 6),
        processes=tuple(dict.fromkeys(process for _, process in lines)),
        versions=versions.get(lines[0][1], Versions("")),
        compiled=_last_compile(lines, versions),
    )


def _ids(runs: DeviceRuns) -> tuple[int, ...]:
    """The numbers of runs of equal steps; none where there are more than devices can be."""
    if any(count < 0 for _, count, _ in runs) or sum(run[1] for run in runs) > _MOST_DEVICES:
        return ()
    return tuple(first + number * step for first, count, step in runs for number in range(count))


def _orders(lines: Sequence[tuple[_Lowered | _Compiled, str]]) -> int:
    """For how many orders of the same devices a module was compiled, at most in one process."""
    orders: dict[tuple[str, tuple[int, ...]], set[DeviceRuns]] = defaultdict(set)
    for line, process in lines:
        if isinstance(line, _Compiled) and line.device_runs:
            orders[process, tuple(sorted(_ids(line.device_runs)))].add(line.device_runs)
    return max(map(len, orders.values()), default=0)


def _last_compile(
    lines: Sequence[tuple[_Lowered | _Compiled, str]], versions: Mapping[str, Versions]
) -> RecordedCompile | None:
    for line, process in reversed(lines):
        if isinstance(line, _Compiled) and line.hlo:
            made_by = versions.get(process, Versions(""))
            file = f"{COMPILED}/{line.hlo}.hlo"
            return RecordedCompile(
                file,
                made_by,
                line.platform,
                line.results,
                line.memory,
                line.options,
                line.flags,
                line.device_kind,
                line.device_runs if _orders(lines) == 1 else (),
            )
    return None


def _labelled(programs: Sequence[RecordedProgram]) -> Iterable[RecordedProgram]:
    count = Counter(program.name for program in programs)
    numbers: Counter[str] = Counter()
    for program in programs:
        numbers[program.name] += 1
        number = f".{numbers[program.name]}" if count[program.name] > 1 else ""
        yield replace(program, label=program.name + number)
