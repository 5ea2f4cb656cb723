"""Runs a command in a child process, so that whatever happens there cannot take the tool down.

XLA checks its invariants with C++ `CHECK`, which aborts the process, and reads its environment
once, when jax is imported. So a command that touches jax or foreign input runs in a child Python
that the light parent starts with the right environment. The parent:

- keeps the child's standard output in a temporary file and shows it only when the child has come
  to its own end, so that nothing is ever half-written;
- lets Python's standard error through (a progress bar still sees the terminal), and keeps what C++
  logs on file descriptor 2 in another temporary file;
- turns an abort into one sentence with the last thing that the compiler said;
- stops the child when it is itself stopped.

Exit status: the command's own (0 or 1), or 2 after an error, which is then all that was said.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

import click

from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import LARGEST_CPU
from sdyscope.process import compiler_log, lifeline, output, progress, worker
from sdyscope.process.python import Interpreter, python
from sdyscope.process.scratch import scratch_file, scratch_folder, sweep

#: How many virtual CPU devices a program finds unless more are asked for.
VIRTUAL = 8

#: Seconds that a child has to end by itself once it was told to stop.
GRACE = 3.0

#: Seconds until a child that could not stop where it was tries again.
_AGAIN = 0.02

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Errand:
    """What the parent tells the child.

    Attributes:
        arguments: the command line, without the name of the program.
        log: file that takes what C++ writes to standard error.
        status: file in which the child writes its exit status when it has come to its own end.
        terminal: whether the parent's standard output is a terminal.
        columns: the width that tables keep to, None for any.
        encoding: encoding of the parent's standard output.
        wire: file descriptor of a socket to the parent, of one process among several; see `launch`.
        place: address of their coordinator, how many they are, and which one this is; None where
            the cluster says so.
        crashed: partitioners under which an earlier try has crashed, and how.
        guarded: whether an earlier try has crashed in a part of the compiler that a process of its
            own can be had for.
    """

    arguments: tuple[str, ...]
    log: str
    status: str
    terminal: bool
    columns: int | None
    encoding: str
    wire: int | None = None
    place: tuple[str, int, int] | None = None
    crashed: tuple[tuple[Partitioner, str], ...] = ()
    guarded: bool = False

    @property
    def trail(self) -> str:
        """File in which the child writes down what it is doing; see `progress.Trail`."""
        return f"{self.log}.doing"

    @property
    def alone(self) -> bool:
        """Whether there are no other processes that it runs a program with."""
        return self.wire is None or (self.place is not None and self.place[1] == 1)

    def wants_a_guard(self, code: int) -> bool:
        """Whether the child has to be run again, guarded.

        Args:
            code: its exit status, negative when a signal ended it.
        """
        crashed = -code in compiler_log.CRASHES and not read_text(self.status)
        return crashed and not self.guarded and bool(progress.Trail.read(self.trail).inside)

    def command(self, interpreter: Interpreter | None = None) -> list[str]:
        """What starts the child.

        Modules are found where the parent finds them, and never in the working directory by
        chance, which may hold somebody else's files.

        Args:
            interpreter: a Python of another environment; by default this one.
        """
        return python(
            "from sdyscope import __main__; from sdyscope.process import child; "
            f"child.serve(__main__.run_here, **{asdict(self)!r})",
            interpreter,
        )


_serving: list[Errand] = []


#: Variables of what may start accelerators: their memory is left to what else runs on them.
SHARING: Mapping[str, str] = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def virtual_devices(count: int = VIRTUAL) -> dict[str, str]:
    """Variables that let JAX start so many CPU devices; none where XLA_FLAGS says how many."""
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return {}  # XLA takes only one of the two.
    return {"JAX_NUM_CPU_DEVICES": str(min(count, LARGEST_CPU))}


def lowering(count: int = VIRTUAL) -> dict[str, str]:
    """Variables of what only lowers: no accelerator is started, whatever is installed."""
    return {"JAX_PLATFORMS": "cpu", **virtual_devices(count)}


def errand() -> Errand | None:
    """What this process was started for; None where it is no child."""
    return _serving[0] if _serving else None


def in_child(
    environment: Callable[..., Mapping[str, str]],
    launcher: Callable[..., Callable[..., int]] | None = None,
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Makes the function of a click command run in a child process.

    Args:
        environment: makes of the command's parameters the variables that the child gets unless the
            user has set them.
        launcher: gives, of the command's parameters, what is called in place of `run`.

    The command line is parsed in the parent, which finds wrong usage at once, and again in the
    child, which runs the function. The parameter `verbose` is the frame's: it is taken off here.
    """

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def command(*, verbose: bool, **parameters: Any) -> int:
            context = click.get_current_context()
            if _serving:
                with progress.shown(context.command_path):
                    return function(**parameters)
            wanted = environment(**parameters)
            # The object of the root context is the command line itself: see __main__.run_here.
            launch = run if launcher is None else launcher(**parameters)
            return launch(context.command_path, context.obj, wanted, verbose=verbose)

        return command

    return decorate


def run(
    name: str, arguments: Sequence[str], environment: Mapping[str, str], *, verbose: bool
) -> int:
    """Runs a command line in a child process and passes its answer on.

    Where the compiler's propagation crashes, it is run once more, and does that in a process apart:
    what else the command tells is not lost.

    Args:
        name: what to call the command in an error, such as `sdyscope diff`.
        arguments: the command line, without the name of the program.
        environment: variables that the child gets unless they are set already.
        verbose: whether to pass on, at the end, what the compiler logged.

    Returns:
        The exit status.

    Raises:
        CompilerError: when the child ended before it had an answer.
    """
    sweep()
    status = _run(name, arguments, environment, verbose=verbose, guarded=False)
    if status is None:
        status = _run(name, arguments, environment, verbose=verbose, guarded=True)
    assert status is not None
    return status


def _run(
    name: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    verbose: bool,
    guarded: bool,
) -> int | None:
    """The exit status; None where it has to be run again, guarded."""
    with (
        scratch_folder() as folder,
        scratch_file() as answer,
    ):
        here = output.answers()
        errand = Errand(
            arguments=tuple(arguments),
            log=os.path.join(folder, "log"),
            status=os.path.join(folder, "status"),
            terminal=here.terminal,
            columns=here.columns,
            encoding=here.stream.encoding,
            guarded=guarded,
        )
        code = _supervise(errand.command(), answer, {**environment, **os.environ})
        if errand.wants_a_guard(code):
            return None
        status = read_text(errand.status)
        log = read_text(errand.log)
        if verbose:
            for line in compiler_log.noteworthy(log):
                output.say(f"compiler: {line}")
        if not status:
            raise ended_early(name, code, log, progress.Trail.read(errand.trail))
        if status in ("0", "1"):
            pass_on(answer, here)
        return int(status)


def _supervise(command: list[str], answer: BinaryIO, environment: Mapping[str, str]) -> int:
    """Runs the child to its end; a signal that stops this process stops the child first.

    Returns:
        The child's exit status, negative when a signal ended it.
    """
    with supervised() as start:
        return start(command, stdout=answer, env=environment).wait()


def run_to_end(command: Sequence[str], **options: Any) -> tuple[int, str]:
    """Runs a command without input; its status, and all that it writes.

    Args:
        command: the command.
        options: as of `subprocess.Popen`.

    Raises:
        Stopped: a signal stopped this process, and the command before it.
        TargetError: there can be no child.
    """
    with scratch_file() as log, supervised() as start:
        process = start(
            list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **options
        )
        status = process.wait()
        log.seek(0)
        return status, log.read().decode(errors="replace")


@contextlib.contextmanager
def supervised() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Children that a signal stops which stops this process; for the main thread.

    Yields a function that starts a child, as `subprocess.Popen` does, from any thread.

    Raises:
        Stopped: at the end, when a signal came; whatever was started has ended or will.
        TargetError: from the function, when there can be no child.
    """
    stopped: list[int] = []
    children: list[subprocess.Popen[bytes]] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        stopped.append(signum)
        for process in children:
            end(process)

    def end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        # C++ code does not look at signals: it is killed when the time of grace is over.
        timer = threading.Timer(GRACE, process.kill)
        timer.daemon = True
        timer.start()

    def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(command, **options)
        except OSError as error:
            raise TargetError(f"cannot start a child process: {error.strerror}") from error
        children.append(process)
        if stopped:
            end(process)
        return process

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    try:
        yield start
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if any((process.returncode or 0) < 0 for process in children):
            output.tidy()
    if stopped:
        raise Stopped(stopped[0])


class Stopped(Exception):  # noqa: N818 - it is not an error
    """A signal told this process to stop; its child has ended."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.strsignal(signum))
        self.signum = signum


#: What C++ says where it gets no memory or no thread.
_NO_MEMORY = re.compile(r"pthread_create|bad_alloc|[Cc]annot allocate|[Oo]ut of memory")


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Ends this process where what is inside needs more CPU time: C++ can't be interrupted.

    Only a child is ended, whose parent says why (`ended_early`); in a notebook there is no limit.
    """
    if not _serving or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def ended_early(
    name: str, code: int, log: str, trail: progress.Trail = progress.UNKNOWN
) -> CompilerError:
    """The error that a child ended before it had an answer.

    Args:
        name: what to call it.
        code: its exit status.
        log: what C++ logged.
        trail: what it had written down that it was doing.
    """
    words = compiler_log.last_words(log)
    reason = f": {words}" if words else "."
    if code >= 0:
        # Only the compiler says why.
        who = "compiler" if words else "program"
        asked = "" if words else " Does the program call sys.exit()?"
        return CompilerError(
            f"The {who} exited (status {code}) before {name} had an answer{reason}",
            hint=f"Nothing was written.{asked} --verbose prints the compiler's log.",
        )
    signum = -code
    if signum == signal.SIGKILL and not words:
        return CompilerError(
            f"{name} was killed (SIGKILL), most often because memory ran out.",
            hint="Nothing was written. Try it with fewer layers, or on a machine with more memory.",
        )
    if signum == signal.SIGVTALRM:
        return CompilerError(
            f"{name} was stopped: the compiler's parser did not terminate on the input.",
            hint="Nothing was written. A truncated or altered file can make MLIR's parser loop.",
        )
    deed = "aborted" if signum == signal.SIGABRT else "was ended"
    at = f" while {trail.doing}" if trail.doing else ""
    at += f", in {trail.inside}" if trail.inside else ""
    if _NO_MEMORY.search(words):
        hint = "Memory, or the threads that a process may have, ran out."
    elif trail.lowered:
        # JAX takes the program: what it makes of it is not the author's doing.
        hint = "JAX lowers the program, so the error is in the compiler. --verbose prints its log."
    else:
        hint = (
            "Is the input a whole module of this JAX's version? --verbose prints the compiler's "
            "log."
        )
    return CompilerError(
        f"{name} {deed} inside the compiler ({compiler_log.signal_name(signum)}){at}{reason}",
        hint=f"Nothing was written. {hint}",
    )


def read_text(path: str) -> str:
    """The text of a file; empty where there is none."""
    file = Path(path)
    return file.read_text(errors="replace") if file.exists() else ""


def pass_on(answer: BinaryIO, here: output.Output) -> None:
    """Writes an answer; a reader that has seen enough of it is no error."""
    answer.seek(0)
    try:
        here.stream.flush()
        shutil.copyfileobj(answer, here.stream.buffer)
        here.stream.flush()
    except BrokenPipeError:
        # The reader (`head`, say) has seen enough; Python must not complain at its end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), here.stream.fileno())
    except OSError as error:
        raise TargetError(f"cannot write to standard output: {error.strerror}") from error


def serve(run_here: Callable[[Sequence[str]], int], **errand: Any) -> NoReturn:
    """Runs one command in this process, which the parent started for it, and ends the process.

    Args:
        run_here: runs a command line in this process and returns its exit status.
        errand: the attributes of an `Errand`.
    """
    task = Errand(**errand)
    _serving.append(task)
    # Told to stop, it unwinds, so that temporary files go away.
    signal.signal(signal.SIGTERM, _told_to_stop)
    answer_stream = _keep_streams_apart(task)
    progress.leave_trail(task.trail)
    if task.guarded:
        worker.guard()
    # One command makes large graphs that live to its end: Python's collector need not look often.
    gc.set_threshold(2_000_000, 50, 1_000)
    try:
        status = run_here(task.arguments)
    except SystemExit as end:  # the user's own, or SIGTERM's
        if task.alone:
            raise
        _end_now(end.code if isinstance(end.code, int) else int(end.code is not None))
    answer_stream.flush()
    # Nothing is left to unwind, and what Python does at its end is not to be interrupted by an
    # exception, which it would tell.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Path(task.status).write_text(str(status))
    if not task.alone:
        _end_now(status)
    lifeline.end_now(status)


def _told_to_stop(signum: int, _: FrameType | None) -> NoReturn:
    output.silence()  # A user's module that is being imported is not to blame.
    sys.unraisablehook = _stop_again
    sys.exit(128 + signum)


def _stop_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Where the end of this process was dropped, inside a finalizer or a callback of JAX's.

    Python can only print it there. It is raised again shortly after, outside.
    """
    if not isinstance(unraisable.exc_value, SystemExit):
        sys.__unraisablehook__(unraisable)
        return
    again = threading.Timer(_AGAIN, os.kill, (os.getpid(), signal.SIGTERM))
    again.daemon = True
    again.start()


def _end_now(status: int) -> NoReturn:
    """Ends this process and nothing else: at Python's end JAX may wait for the others."""
    sys.stderr.flush()
    os._exit(status)


def _keep_streams_apart(task: Errand) -> io.TextIOWrapper:
    """Gives answers, Python's messages and C++'s log a stream each.

    Afterwards standard output, the file descriptor too, is standard error: what a user's program
    prints while it is traced is not part of the answer.
    """
    answer_stream = open(  # noqa: SIM115 - stays open until the process ends
        os.dup(1), "w", encoding=task.encoding, errors="backslashreplace"
    )
    output.keep_apart(output.Output(answer_stream, task.terminal, task.columns))
    messages = os.dup(2) if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY)
    # Readable as well, so that sdyscope.stages.stderr reads it in place.
    log = os.open(task.log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    # Of several processes, what connects them reports on standard output: into the log with it.
    os.dup2(messages if task.alone else log, 1)
    os.close(log)
    sys.stderr = open(messages, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    sys.stdout = sys.stderr
    return answer_stream
