"""Runs a command so that JAX's programs in it are recorded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import machinery
from pathlib import Path
from types import FrameType

from sdyscope.errors import TargetError
from sdyscope.facts.recorded import (
    COMPILED,
    INDEX,
    MODULES,
    PROCESSES,
    PROPAGATED,
    SCHEMA,
    Record,
    RecordedRun,
    is_recorded,
)
from sdyscope.facts.recorded import read_record as read
from sdyscope.facts.remarks import Remark
from sdyscope.process.output import locked, write_atomically
from sdyscope.process.scripts import script_of
from sdyscope.stages import recorder
from sdyscope.stages.recorder.secrets import redacted
from sdyscope.terminal.plain import Plain, json_text
from sdyscope.words.remarks import remark_text

#: Signals that are passed on to the command. SIGINT reaches it by itself, from the terminal.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

#: As `terminal.document` does, whose imports take longer than all else that is done for a run.
_plain = Plain({Remark: remark_text}, {})

#: CPU seconds that the process takes which propagates, until it does.
STARTING = 1.0

#: The folders of a recorded run.
_FOLDERS = (PROCESSES, MODULES, COMPILED, PROPAGATED)


def command_line(
    words: Sequence[str], python: str = "", path: str | None = None, folder: Path | None = None
) -> list[str]:
    """The command to run.

    Args:
        words: a command; or a Python file, or `-m` and a module, for Python to run.
        python: which Python; by default this one.
        path: where commands are found; by default on `PATH`.
        folder: where it is started; by default the working directory.

    Raises:
        TargetError: there is no such command, script or module.
    """
    if not words:
        raise TargetError(
            "There is no command to record.", hint="Write it last: -o DIR -- python train.py."
        )
    first = words[0]
    if first == "-m" or (first.endswith(".py") and shutil.which(first, path=path) is None):
        words = (python or sys.executable, *words)
    executable = shutil.which(words[0], path=path)
    if executable is None:
        raise TargetError(
            f"There is no program {words[0]!r} to run.",
            hint="Give a command, a file.py, or -m and a module.",
        )
    if Path(executable).name.startswith(("python", "pypy")):
        _check_script(words, folder or Path(), here=path is None)
    return [executable, *words[1:]] if path is not None else list(words)


def _check_script(words: Sequence[str], folder: Path, *, here: bool) -> None:
    """Finds a script that is not there before a directory is made for it.

    Args:
        words: a command line of Python.
        folder: where it is started.
        here: whether it may be this Python, whose path is known.
    """
    script = script_of(words, folder)
    if script.kind == "file":
        if not Path(script.file).exists():
            raise TargetError("There is no such script.", file=script.name)
    elif script.kind != "module":
        return
    elif not script.name:
        raise TargetError("-m needs the name of a module.", hint="Write -m package.module.")
    elif here and os.path.realpath(words[0]) == os.path.realpath(sys.executable):
        # A package is found without importing it.
        top = script.name.partition(".")[0]
        if machinery.PathFinder.find_spec(top, [os.getcwd(), *sys.path]) is None and (
            top not in sys.builtin_module_names
        ):
            raise TargetError(f"There is no module {script.name!r} to run.")


def prepare(folder: Path, *, overwrite: bool, add: bool) -> None:
    """Makes the directory ready.

    Raises:
        TargetError: it can't be made, or holds something already.
    """
    if overwrite and add:
        raise TargetError(
            "--overwrite and --add exclude each other.", hint="Leave one of them out."
        )
    try:
        if folder.exists() and not folder.is_dir():
            raise TargetError("This is not a directory.", file=folder, hint="Name another one.")
        there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        # Another host may just be about to write its first file.
        recorded = bool(there) and (is_recorded(folder) or there <= {INDEX, *_FOLDERS})
        if there and not (recorded and (overwrite or add)):
            raise TargetError(
                "This directory already holds a recorded run."
                if recorded
                else "This directory is not empty.",
                file=folder,
                hint="--overwrite replaces the run, --add adds to it."
                if recorded
                else "Name a new one.",
            )
        links = [name for name in (*_FOLDERS, INDEX) if (folder / name).is_symlink()]
        if links:
            raise TargetError(
                f"{links[0]} in it is a link, and links are not written through.",
                file=folder,
                hint="Name another directory, or remove the link.",
            )
        if recorded and overwrite:
            for name in _FOLDERS:
                shutil.rmtree(folder / name, ignore_errors=True)
            (folder / INDEX).unlink(missing_ok=True)
        (folder / PROCESSES).mkdir(parents=True, exist_ok=True)
        (folder / MODULES).mkdir(exist_ok=True)
    except OSError as error:
        raise TargetError(f"The directory can't be made: {error.strerror}.", file=folder) from error


def run(
    command: Sequence[str],
    folder: Path,
    partitioner: str,
    launch: Callable[[Sequence[str], dict[str, str]], int],
    variables: Mapping[str, str] | None = None,
) -> int:
    """Runs a command to its end.

    Args:
        command: its words.
        folder: where its programs go.
        partitioner: under which it runs; `both` for its own and every program under the other as
            well, empty for its own alone.
        launch: runs it with these variables, and gives its exit status.
        variables: its environment, without the recorder's; by default this process's.

    Returns:
        Its exit status; negative when a signal ended it.

    Raises:
        TargetError: it can't be started, or its directory can't be written.
    """
    started = time.time()
    lines = lines_file(folder)
    write_line(
        lines,
        {
            "line": "run",
            "at": started,
            "schema": SCHEMA,
            "command": redacted(command),
            "directory": os.getcwd(),
            "partitioner": partitioner,
        },
    )
    with locked(folder):
        write_index(folder, read(folder))
    status = launch(command, _environment(folder, partitioner, variables))
    write_line(lines, {"line": "ended", "at": time.time(), "status": status})
    return status


def finish(folder: Path) -> tuple[Record, RecordedRun]:
    """Writes the index, and gives what it holds and the run that ended last.

    Raises:
        TargetError: the directory can't be written or read any more, or was removed meanwhile.
    """
    # The index is a copy: whatever the script has made of it, it is rewritten.
    with locked(folder):
        record = read(folder, trust_index=False)
        if record.runs:
            write_index(folder, record)
    if not record.runs:
        raise TargetError(
            "The recording is gone: the directory was removed while the script ran.",
            file=folder,
            hint="Record into a directory that the script does not clear.",
        )
    return record, max(record.runs, key=lambda run: run.ended or 0)


def write_index(folder: Path, record: Record) -> None:
    """Writes `record.json`.

    Raises:
        TargetError: it can't be written.
    """
    write_atomically(folder / INDEX, json_text(_plain(record)))


def lines_file(folder: Path) -> Path:
    """A new file of lines, in the folder of a run."""
    name = f"run-{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}.jsonl"
    return folder / PROCESSES / name


def write_line(path: Path, what: Mapping[str, object]) -> None:
    """Adds a line to a file of lines.

    Raises:
        TargetError: it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)  # a script may have removed it
        with path.open("a") as file:
            file.write(json.dumps(what) + "\n")
    except OSError as error:
        raise TargetError(f"It can't be written: {error.strerror}.", file=path) from error


def cpu_seconds() -> float:
    """CPU seconds that the processes have taken that were started here and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _environment(
    folder: Path, partitioner: str, variables: Mapping[str, str] | None
) -> dict[str, str]:
    """The variables that start the recorder in every Python that is started with them."""
    here = os.path.dirname(os.path.abspath(recorder.__file__))
    environment = dict(os.environ if variables is None else variables)
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = here + (os.pathsep + before if before else "")
    environment["SDYSCOPE_RECORD_TO"] = str(folder.resolve())
    environment["SDYSCOPE_RECORD_BOTH"] = str(int(partitioner == "both"))
    if partitioner in ("shardy", "gspmd"):
        environment["JAX_USE_SHARDY_PARTITIONER"] = str(int(partitioner == "shardy"))
    return environment


def to_its_end(command: Sequence[str], environment: dict[str, str], *, quiet: bool) -> int:
    """Runs a command that the terminal shows, to which signals are passed on.

    Args:
        command: its words.
        environment: its variables.
        quiet: whether its standard output goes to standard error.

    Returns:
        Its exit status; negative when a signal ended it.

    Raises:
        TargetError: it can't be started.
    """
    running: list[subprocess.Popen[bytes]] = []

    def pass_on(signum: int, frame: FrameType | None) -> None:
        for process in running:
            process.send_signal(signum)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    # The terminal sends it to the command as well, which knows best what to do about it.
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        # By its number: what Python still holds back must not come after what the command prints.
        sys.stdout.flush()
        sys.stderr.flush()
        running.append(
            subprocess.Popen(
                command,
                executable=shutil.which(command[0]),
                env=environment,
                stdout=2 if quiet else None,
            )
        )
        return running[0].wait()
    except OSError as error:
        raise TargetError(
            f"{command[0]} can't be run: {error.strerror}.",
            hint="Is it an executable? A script needs its interpreter before it.",
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
