"""Opens what a TARGET names: a program, the module in a file, the modules of a directory."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sdyscope.commands import options
from sdyscope.commands.command_help import Shared
from sdyscope.errors import CompilerError, SdyscopeError, TargetError, did_you_mean
from sdyscope.facts.program import Partitioner, Program
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import Hardware
from sdyscope.process import child
from sdyscope.terminal.messages import tell
from sdyscope.words.counts import few

if TYPE_CHECKING:
    from sdyscope.analysis.fix.effort import Effort
    from sdyscope.analysis.fix.values import Fix
    from sdyscope.analysis.search.space import Setting
    from sdyscope.facts.compiled import Compiled
    from sdyscope.facts.recorded import Record, RecordedCompile, RecordedProgram
    from sdyscope.inspection import Inspection
    from sdyscope.process.scripts import PythonScript
    from sdyscope.stages.edited.rerun import Rerun
    from sdyscope.stages.lowered.lower import LoweredModule

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: How many modules of a directory an error lists.
_LISTED = 8


@dataclass(frozen=True)
class Unread:
    """A file of a directory that can't be read.

    Attributes:
        path: the file.
        error: why not.
    """

    path: Path
    error: SdyscopeError


@dataclass(frozen=True)
class Opened:
    """What a TARGET holds.

    Attributes:
        word: the TARGET, as it was typed.
        programs: one program or module; of a directory all of its modules, in the order in which
            they were dumped.
        is_directory: whether it is a directory of dumps.
        unread: files of the directory that can't be read.
        record: what is known of a directory that `sdyscope record` made, and of these programs.
        several: whether all of a directory's modules were asked for.
    """

    word: str
    programs: tuple[Inspection, ...]
    is_directory: bool = False
    unread: tuple[Unread, ...] = ()
    record: Record | None = None
    several: bool = False

    @property
    def own(self) -> tuple[Inspection, ...]:
        """The programs; of a recorded run those that are not JAX's own functions, if there are."""
        labels = {recorded.label for recorded in self.record.own} if self.record else set()
        return (
            tuple(program for program in self.programs if program.name in labels) or self.programs
        )

    @property
    def whole(self) -> tuple[Inspection, ...]:
        """Of these the programs that are not a single op each, if there are.

        So are the ops of a `shard_map` that is called outside of jit: what one is given is the
        result of another, which nobody shards but the map.
        """
        known = self.record.own if self.record else ()
        eager = {recorded.label for recorded in known if recorded.is_eager}
        return tuple(program for program in self.own if program.name not in eager) or self.own

    @property
    def lowered(self) -> Opened:
        """Of a directory the modules alone; what was compiled already can't be read as one."""
        from sdyscope.facts.compiled import Compiled
        from sdyscope.staged import compiled_already

        if not self.is_directory:
            return self
        compiled = [
            program.source for program in self.programs if isinstance(program.source, Compiled)
        ]
        return replace(
            self,
            programs=tuple(program for program in self.programs if not program.is_compiled),
            unread=(
                *self.unread,
                *(
                    Unread(program.path or Path(program.name), compiled_already(program))
                    for program in compiled
                ),
            ),
        )

    def with_mesh(self, mesh: Mapping[str, int] | None) -> Opened:
        """The same with a mesh whose axes to name in programs that were compiled already.

        Raises:
            TargetError: one is for another number of devices.
        """
        from sdyscope.facts.compiled import Compiled
        from sdyscope.inspection import Inspection
        from sdyscope.stages.compiled.text import on_mesh
        from sdyscope.values.mesh import Mesh

        if mesh is None:
            return self
        named = Mesh.of(mesh)
        return replace(
            self,
            programs=tuple(
                Inspection(on_mesh(program.source, named))
                if isinstance(program.source, Compiled)
                else program
                for program in self.programs
            ),
        )

    def program_of(self, inspection: Inspection) -> RecordedProgram | None:
        """What was recorded of one of the programs."""
        known = self.record.programs if self.record else ()
        return next((recorded for recorded in known if recorded.label == inspection.name), None)


@dataclass(frozen=True)
class Bench:
    """A program whose source is edited.

    Attributes:
        opening: what builds it.
        inspection: the program as it is.
        alone: builds it on a mesh of one device; None where it can't be.
        root: the folder that paths of a patch are relative to.
    """

    opening: Opening
    inspection: Inspection
    alone: Callable[[], Program] | None
    root: str

    def fix(
        self,
        finding: str = "",
        *,
        on: Hardware | str | None = None,
        effort: Effort | None = None,
        plan: Sequence[Setting] = (),
        root: str | None = None,
        notify: Callable[[str, float], None] | None = None,
    ) -> Fix:
        """See ``Inspection.fix``; with how often the script of a recorded run was run for it."""
        answer = self.inspection.fix(
            self.opening.build,
            finding,
            on=on,
            effort=effort,
            plan=plan,
            root=self.root if root is None else root,
            alone=self.alone,
            notify=notify,
        )
        if not self.opening.rerun:
            return answer
        script = self.opening.recorded_script
        words, label = script.script.shown, script.wanted.label
        again = Remark("script run again", words, script.count, other=label)
        return replace(answer, notes=(*answer.notes, again))


@dataclass(frozen=True)
class Opening:
    """A TARGET with the options that say how it is opened.

    Attributes:
        word: the TARGET, as it was typed.
        mesh: axis sizes that replace the target's own.
        settings: what `--set` changes.
        module: name of one module of a directory.
        rerun: whether the script of a recorded run is run again up to where it compiles the
            program, which is then looked at in place of what was recorded.
    """

    word: str
    mesh: Mapping[str, int] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    module: str | None = None
    rerun: bool = False

    def under(self, partitioner: str | None) -> tuple[Partitioner, ...]:
        """Under which to look at it, as `options.one_partitioner` says."""
        if partitioner is None and self.rerun:
            return options.PARTITIONERS["shardy"]
        return options.PARTITIONERS[partitioner] if partitioner else partitioners_of(self.word)

    def opened(
        self, partitioners: Sequence[Partitioner] = ("shardy", "gspmd"), *, as_module: bool = False
    ) -> Opened:
        """What it holds; of a directory all modules, or the one that is named.

        Args:
            partitioners: which to lower under; of a file, which it may be written for.
            as_module: whether a compiled program is looked at as a module, whose shapes are one
                device's.

        Raises:
            SdyscopeError: there is no such thing, or it can't be read, or a directory holds nothing
                that can be; or its script can't be run again.
        """
        from sdyscope.facts.compiled import Compiled
        from sdyscope.inspection import Inspection
        from sdyscope.stages.lowered.read import read
        from sdyscope.targets import in_directory, resolve

        word = self.word
        if self.rerun:
            return Opened(word, (Inspection(self.recorded_script(), partitioners),))
        place = in_directory(word)
        if place is not None and self.module is not None:
            raise TargetError(
                f"{word} names a module, and so does --module.", hint="Leave --module out."
            )
        folder, module = place or (word, self.module)
        resolved = resolve(str(folder), mesh=self.mesh, settings=self.settings)
        if isinstance(resolved, Path) and resolved.is_dir():
            return _directory(word, resolved, partitioners, module)
        if module is not None:
            raise TargetError(
                f"--module picks one of a directory's modules, and {word} is not a directory.",
                hint="Leave --module out.",
            )
        if isinstance(resolved, Compiled):
            _check_chosen(resolved, partitioners)
            if not as_module:
                return Opened(word, (Inspection(resolved),))
            module_of = replace(read(resolved.path or Path(word)), is_compiled=True)
            return Opened(word, (Inspection(module_of),))
        if not isinstance(resolved, Program):
            return Opened(word, (_lowered(resolved, partitioners),))
        inspection = Inspection(resolved, partitioners)
        if inspection.program is None:
            _check_partitioner(inspection.lowered[inspection.partitioners[0]], word, partitioners)
        return Opened(word, (inspection,))

    def inspection(
        self, partitioners: Sequence[Partitioner] = ("shardy", "gspmd"), *, as_module: bool = False
    ) -> Inspection:
        """The only program or module that it holds; see `opened`.

        Raises:
            SdyscopeError: as `opened`, or the directory has several modules and none is named.
        """
        return single(self.opened(partitioners, as_module=as_module))

    def inspection_under(self, partitioner: str | None) -> Inspection:
        """As `inspection`, under what `--partitioner` asks for; tells where both are not there."""
        from sdyscope.targets import recorded_folder
        from sdyscope.words.partitioners import partitioner_names

        inspection = self.inspection(self.under(partitioner))
        there = inspection.partitioners
        if partitioner == "both" and len(there) == 1 and not inspection.failures:
            has = "its program has both"
            if recorded_folder(self.word) is not None:
                has = "its script has both (--rerun)"
            tell(
                f"note: {self.word} is there for {partitioner_names(there)} alone, and is shown "
                f"under that; {has}."
            )
        return inspection

    @functools.cached_property
    def recorded_script(self) -> Rerun:
        """The script of a recorded run, to be run again up to where it compiles the program."""
        from sdyscope.facts.recorded import read_record
        from sdyscope.stages.edited.rerun import Rerun, ScriptProgram
        from sdyscope.targets import recorded_folder

        folder = recorded_folder(self.word)
        if folder is None:
            raise TargetError(
                f"--rerun runs the script of a recorded run again, and {self.word} is none.",
                hint="Leave --rerun out.",
            )
        for option, given in (("--mesh", self.mesh), ("--set", self.settings)):
            if given:
                raise TargetError(
                    f"{option} can't change what a script makes.",
                    file=self.word,
                    hint=f"Leave {option} out; record the script with other words instead.",
                )
        opened = replace(self, rerun=False).opened()
        program = opened.program_of(single(opened))
        assert program is not None
        record = read_record(folder)  # the whole run: that which was opened has this one alone
        return Rerun(
            _script_of(self.word, record, program),
            ScriptProgram(
                program.label,
                program.words,
                program.module,
                program.arguments or (),
                record.number_of(program),
            ),
            _limit_of(record, program),
        )

    def build(self) -> Program:
        """The program, built anew from the files that Python imports."""
        program = self.inspection(("shardy",)).program
        assert program is not None
        return program

    def bench(self, inspection: Inspection) -> Bench:
        """What the program is edited on, with as many CPU devices as it needs to be run.

        Raises:
            TargetError: it is a module; of a recorded run, whose script was not asked to be run.
        """
        from sdyscope.process.work_tree import root_of
        from sdyscope.stages.executed.devices import devices_needed, more_cpu_devices

        if inspection.program is None:
            raise self.no_program(
                inspection,
                "edits are of a program's source",
                ", and once more for each edit that is traced",
            )
        more_cpu_devices(max(child.VIRTUAL, devices_needed(inspection.program)))
        axes = [axis for each in inspection.meshes.values() for axis in each.shape]
        alone = replace(self, mesh=dict.fromkeys(axes, 1))
        defined = inspection.defined_at
        root = root_of(defined.file) if defined is not None else ""
        return Bench(self, inspection, None if self.rerun else alone.build, root)

    def no_program(self, inspection: Inspection, needs: str, again: str = "") -> TargetError:
        """Why a module is not enough.

        Args:
            inspection: what was opened.
            needs: what a program is needed for, as a clause.
            again: what more ``--rerun`` runs the script for, behind a comma.
        """
        from sdyscope.facts.recorded import read_record
        from sdyscope.targets import recorded_folder

        inspection.chosen(None)  # of what was compiled already, that is said
        folder = recorded_folder(self.word)
        if folder is None:
            return TargetError(
                f"{inspection.name} is a module, and {needs}.",
                hint="Name the program that it was lowered from.",
            )
        record = read_record(folder)
        (program,) = [each for each in record.programs if each.label == inspection.name]
        script = _script_of(self.word, record, program)
        return TargetError(
            f"{inspection.name} was recorded, and {needs}.",
            hint=f"--rerun runs `{script.shown}` again, up to where JAX lowers it{again}.",
        )


def _script_of(word: str, record: Record, program: RecordedProgram) -> PythonScript:
    """The script that a program was recorded of.

    Raises:
        TargetError: it can't be run again.
    """
    from sdyscope.process.scripts import script_of
    from sdyscope.stages.recorder.secrets import HIDDEN

    processes = [process for process in record.processes if process.name in program.processes]
    why = ""
    if program.arguments is None or not processes:
        why = "only its compilation was seen, not its lowering"
    elif len({process.index for process in processes}) > 1:
        why = f"{len(processes)} processes ran it together"
    elif HIDDEN in " ".join(processes[0].arguments):
        why = f"what looked like a secret in its command line is recorded as {HIDDEN}"
    else:
        run = record.run_of(processes[0])
        script = script_of(processes[0].arguments, os.getcwd() if run is None else run.directory)
        is_notebook = script.kind == "module" and script.name.startswith("ipykernel")
        if script.kind in ("file", "module") and not is_notebook:
            return script
        why = "it is no script's, but of code that was typed"
    raise TargetError(f"{program.label} can't be made again: {why}.", file=word)


def _limit_of(record: Record, program: RecordedProgram) -> float | None:
    """How many seconds a script may take to come to a program again: ten times the recorded run.

    None where that did not end, so that nobody knows how long it took.
    """
    from sdyscope.stages.edited.rerun import SHORTEST_LIMIT

    runs = [record.run_of(each) for each in record.processes if each.name in program.processes]
    took = [run.ended - run.started for run in runs if run is not None and run.ended is not None]
    if len(took) < len(runs):
        return None
    return max([SHORTEST_LIMIT, *(10 * seconds for seconds in took)])


def module(function: _Function) -> _Function:
    """`--module NAME`, which module of a directory of dumps; the parameter is `module`."""
    return click.option(
        "--module",
        cls=Shared,
        metavar="NAME",
        help="Which module, where TARGET is a directory of dumps: its name, or its file's.",
    )(function)


def target(function: Callable[..., int]) -> Callable[..., int]:
    """The TARGET argument, the options of its mesh, `--set`, `--module` and `--rerun`.

    The parameter `target` is an `Opening`.
    """

    @functools.wraps(function)
    def command(
        *,
        target: str,
        mesh: Mapping[str, int] | None,
        settings: Mapping[str, object],
        module: str | None,
        rerun: bool,
        **parameters: Any,
    ) -> int:
        return function(target=Opening(target, mesh, settings, module, rerun), **parameters)

    return options.target(options.mesh(options.settings(module(options.rerun(command)))))


def is_read(word: str) -> bool:
    """Whether a TARGET is read, not built: a file, a directory, or a module in one, `DIR:name`."""
    from sdyscope.targets import in_directory

    path = Path(word)
    return (path.exists() and path.suffix != ".py") or in_directory(word) is not None


def partitioners_of(word: str) -> tuple[Partitioner, ...]:
    """Under which a TARGET is looked at where nobody says: Shardy, or what a file is for."""
    return options.PARTITIONERS["both" if is_read(word) else "shardy"]


def single(opened: Opened) -> Inspection:
    """The only program or module of a TARGET; of a recorded run the only one that is not JAX's.

    Raises:
        TargetError: there are several.
    """
    if len(opened.programs) == 1:
        return opened.programs[0]
    if opened.record is not None:
        return _only_own(opened)
    raise TargetError(
        f"There are {len(opened.programs)} modules in this directory.",
        file=opened.word,
        hint=f"Name one with --module: {_listed(opened.programs)}.",
    )


def _only_own(opened: Opened) -> Inspection:
    assert opened.record is not None
    own = {program.label: program for program in opened.record.own}
    if len(own) == 1:
        return next(program for program in opened.programs if program.name in own)
    raise TargetError(
        f"There are {len(opened.programs)} programs in this recorded run, {len(own)} of them not "
        "functions of JAX.",
        file=opened.word,
        hint=_lines(f"Name one, as {opened.word}:NAME:", [*own.values()]),
    )


def _read(path: Path, partitioners: Sequence[Partitioner]) -> Inspection:
    """What a file holds: a compiled program, or a module."""
    from sdyscope.inspection import Inspection
    from sdyscope.stages.compiled.text import read_compiled

    if (compiled := read_compiled(path)) is not None:
        _check_chosen(compiled, partitioners)
        return Inspection(compiled)
    return _lowered(path, partitioners)


def _check_chosen(compiled: Compiled, partitioners: Sequence[Partitioner]) -> None:
    """Finds a --partitioner that was asked for; by default there are both."""
    from sdyscope.staged import compiled_already

    if len(partitioners) == 1:
        raise compiled_already(compiled, "--partitioner")


def _lowered(path: Path, partitioners: Sequence[Partitioner]) -> Inspection:
    from sdyscope.inspection import Inspection
    from sdyscope.stages.lowered.read import read

    lowered = read(path)
    _check_partitioner(lowered, str(path), partitioners)
    return Inspection(lowered)


def _check_partitioner(
    lowered: LoweredModule, word: str, partitioners: Sequence[Partitioner]
) -> None:
    """Checks that a module that was lowered already is for a partitioner that was asked for."""
    from sdyscope.words.partitioners import partitioner_name

    if lowered.written_for in ("shardy", "gspmd") and lowered.written_for not in partitioners:
        raise TargetError(
            f"The module is written for {partitioner_name(lowered.written_for)}, not for "
            f"{partitioner_name(partitioners[0])}.",
            file=word,
            hint="Leave --partitioner out, or name the program that it was made from.",
        )


def _directory(
    word: str, folder: Path, partitioners: Sequence[Partitioner], module: str | None
) -> Opened:
    from sdyscope.facts.recorded import is_recorded
    from sdyscope.stages.lowered.dumps import dumped_files

    if is_recorded(folder):
        return _recorded(word, folder, partitioners, module)
    files = dumped_files(folder)
    # A file's name is known without reading it, or what else is there.
    named = [path for path in files if module in (path.name, path.stem)]
    programs: list[Inspection] = []
    unread: list[Unread] = []
    for path in named or files:
        try:
            programs.append(_read_dump(path, partitioners))
        except SdyscopeError as error:
            if named:
                raise
            unread.append(Unread(path, error))
    if not programs:
        raise unread[0].error
    if module is not None and not named:
        chosen = [program for program in programs if program.name == module]
        if not chosen:
            names, has = [program.name for program in programs], f"It has {_listed(programs)}."
            raise TargetError(
                f"There is no module {module!r} in this directory.",
                file=word,
                hint=did_you_mean(module, names, has, quoted=False),
            )
        if len(chosen) > 1:
            files_of = ", ".join(getattr(p.source, "path", Path()).name for p in chosen[:_LISTED])
            raise TargetError(
                f"{len(chosen)} modules are called {module!r}.",
                file=word,
                hint=f"Name the file instead: {files_of}.",
            )
        programs = chosen
    return Opened(word, tuple(programs), True, tuple(unread), several=module is None)


def _recorded(
    word: str, folder: Path, partitioners: Sequence[Partitioner], module: str | None
) -> Opened:
    """The programs of a recorded run that have a module for one of the partitioners."""
    from sdyscope.facts.recorded import read_record
    from sdyscope.words.partitioners import partitioner_name
    from sdyscope.words.remarks import remark_text

    record = read_record(folder)
    chosen = record.programs if module is None else _named(word, record, module)
    kept = [
        recorded for recorded in chosen if any(name in recorded.modules for name in partitioners)
    ]
    if not record.programs:
        raise TargetError(
            "No program was recorded in this directory.",
            file=word,
            hint=remark_text(record.problems[0]) if record.problems else "Did the script use JAX?",
        )
    if not kept:
        raise TargetError(
            f"Nothing in it was recorded for {partitioner_name(partitioners[0])}.",
            file=word,
            hint="Leave --partitioner out, or record the run with --partitioner both.",
        )
    programs: list[Inspection] = []
    unread: list[Unread] = []
    for recorded in kept:
        try:
            programs.append(_read_recorded(folder, recorded, partitioners))
        except SdyscopeError as error:
            if len(kept) == 1:
                raise
            unread.append(Unread(Path(error.file or folder), error))
    if not programs:
        raise unread[0].error
    record = replace(record, programs=tuple(kept))
    return Opened(word, tuple(programs), True, tuple(unread), record, module is None)


def _named(word: str, record: Record, name: str) -> tuple[RecordedProgram, ...]:
    """The one program that a name, a number and a name, or a module's file stands for."""
    known = record.programs
    for says in (
        lambda recorded: recorded.label == name,
        lambda recorded: name in (recorded.name, recorded.module),
        lambda recorded: any(
            name in (Path(f).name, Path(f).stem) for f in recorded.modules.values()
        ),
    ):
        matching = [recorded for recorded in known if says(recorded)]
        if len(matching) == 1:
            return (matching[0],)
        if matching and len({recorded.function for recorded in matching}) == 1:
            # One function, compiled anew: what ran last is what is there now.
            earlier = [recorded.label for recorded in matching[:-1][-_LISTED:]]
            tell(
                f"note: {word} is {matching[-1].label}, the last of {len(matching)} programs "
                f"compiled from that function (earlier: {', '.join(earlier)})."
            )
            return (matching[-1],)
        if matching:
            raise TargetError(
                f"{len(matching)} programs are called {name!r}.",
                file=word,
                hint=_lines("Name one with its number:", matching),
            )
    labels = [recorded.label for recorded in known]
    some = [recorded.label for recorded in record.own or known][:_LISTED]
    has = f"It has {', '.join(some)}." if some else "Nothing was recorded in it."
    raise TargetError(
        f"There is no program {name!r} in this recorded run.",
        file=word,
        hint=did_you_mean(name, labels, has, quoted=False),
    )


def _lines(title: str, programs: Sequence[RecordedProgram]) -> str:
    """A line for each of a few programs below a title, and how many more there are."""
    words = [program.words for program in programs[:_LISTED]]
    more = len(programs) - _LISTED
    return "\n  ".join([title, *words, *([f"and {more:,} more"] if more > 0 else [])])


def _read_recorded(
    folder: Path, program: RecordedProgram, partitioners: Sequence[Partitioner]
) -> Inspection:
    from sdyscope.inspection import of_modules
    from sdyscope.stages.lowered.read import read
    from sdyscope.values.mesh import Mesh
    from sdyscope.words.partitioners import partitioner_name

    # Called by the word that names it: the file's own name is that of its content.
    path = Path(f"{folder}:{program.label}")
    there = program.compiled
    modules = {
        name: replace(
            read(folder / file),
            name=program.label,
            path=path,
            recorded_by=program.versions,
            device_order=() if there is None else there.device_order,
            device_platform="" if there is None else there.platform,
            compiler_options=() if there is None else (*(there.flags or ()), *there.options),
            compile_notes=_other_flags(there),
            notes=_elided(folder / file),
        )
        for name, file in program.modules.items()
        if name in partitioners or name == "shardy"
    }
    failures = {
        name: CompilerError(
            f"{program.label} was not lowered under {partitioner_name(name)}: {why}"
        )
        for name, why in program.failures.items()
    }
    # Shardy's module names the mesh, which GSPMD's does not: of that alone the recorder has it.
    mesh = Mesh.of(program.mesh) if program.mesh and "shardy" not in modules else None
    inspection = of_modules(modules, failures, mesh).under(partitioners)
    compiled = _recorded_compile(folder, program, path)
    if compiled is not None:
        inspection.recorded[program.partitioner] = compiled
    if program.propagated is not None:
        inspection.recorded_propagations[program.partitioner] = folder / program.propagated
    return inspection


def _recorded_compile(folder: Path, program: RecordedProgram, path: Path) -> Compiled | None:
    """What the run's own compiler made of a program; None where that was not recorded."""
    from sdyscope.facts.compiled import MemoryAnalysis
    from sdyscope.hlo.frames import with_known_frames
    from sdyscope.stages.compiled.text import read_compiled

    there = program.compiled
    compiled = None if there is None else read_compiled(folder / there.file)
    if compiled is None or there is None:
        return None
    return replace(
        compiled,
        name=program.label,
        hlo=with_known_frames(compiled.hlo, there.versions.jax),
        partitioner=program.partitioner,
        device_kind=there.device_kind or there.platform,
        result_shardings=there.results,
        memory=None if there.memory is None else MemoryAnalysis.of(there.memory),
        notes=(Remark("compiled in a recorded run", str(there.versions), other=there.platform),),
        path=path,
        recorded_by=there.versions,
        recorded_platform=there.platform,
    )


def _other_flags(there: RecordedCompile | None) -> tuple[Remark, ...]:
    """What `XLA_FLAGS` says here, and did not in the run: what is compiled here follows it."""
    from sdyscope.stages.recorder.flags import flags_in

    if there is None or there.flags is None:
        return ()
    names = tuple(
        (f"{name}={value}", 0)
        for name, value in flags_in(os.environ.get("XLA_FLAGS", ""))
        if (name, value) not in there.flags
    )
    return (Remark("other flags", names=names),) if names else ()


def _elided(file: Path) -> tuple[Remark, ...]:
    if b"dense_resource<__elided__>" not in file.read_bytes():
        return ()
    return (Remark("constants elided"),)


def _read_dump(path: Path, partitioners: Sequence[Partitioner]) -> Inspection:
    from sdyscope.inspection import Inspection
    from sdyscope.stages.lowered.lower import LoweredModule

    inspection = _read(path, partitioners)
    if path.name == "00.input_module.mlir" and isinstance(inspection.source, LoweredModule):
        # XLA's dumps: two programs can have one name, and their folders do not.
        return Inspection(replace(inspection.source, name=path.parent.name))
    return inspection


def _listed(programs: Sequence[Inspection]) -> str:
    names = [program.name for program in programs]
    if len(set(names)) < len(names):
        names = [getattr(program.source, "path", Path(program.name)).name for program in programs]
    return few(names, _LISTED)


def check_predictable(inspection: Inspection) -> None:
    """Raises TargetError unless Shardy's passes can predict what a program sends."""
    if "shardy" not in inspection.lowered:
        raise TargetError(
            f"{inspection.name} has GSPMD's shardings, and only Shardy's reshards predict "
            "collectives.",
            hint="Leave --predicted out, or name the program that it was lowered from.",
        )
