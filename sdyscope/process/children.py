"""Runs several command lines at a time, each in a child process of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from sdyscope.errors import CompilerError
from sdyscope.process import child, compiler_log, progress
from sdyscope.process.python import Interpreter
from sdyscope.process.scratch import scratch_file, scratch_folder


def cores() -> int:
    """How many processes can work at a time: the processors that this one may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class ChildWork:
    """A command line to run.

    Attributes:
        name: what to call it in an error.
        arguments: the command line, without the name of the program.
        environment: variables that the child gets unless they are set already.
        folder: the working directory.
        interpreter: a Python of another environment; None for this one.
        fixed: variables that the child gets, whatever the user has set.
    """

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    interpreter: Interpreter | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one.

    Attributes:
        data: what it answered; empty where it ended with an error.
        messages: what Python wrote to standard error, the error included.
        log: what the compiler logged that is worth a look, a line each.
        error: how it ended before it had an answer; None where it came to its own end.
    """

    data: bytes
    messages: str
    log: tuple[str, ...] = ()
    error: CompilerError | None = None


def run_all(
    works: Sequence[ChildWork], jobs: int, notify: Callable[[int], None] = lambda done: None
) -> list[Answer]:
    """Runs command lines, some at a time; what ends one of them ends no other.

    Args:
        works: the command lines.
        jobs: how many at a time.
        notify: told how many are done.

    Raises:
        Stopped: a signal told this process to stop; all children have been told, too.
        TargetError: there can be no child process.
    """
    with child.supervised() as start, ThreadPoolExecutor(max(jobs, 1)) as pool:
        running = [pool.submit(_run, work, start) for work in works]
        return list(_collected((future.result() for future in running), notify))


def _collected(answers: Iterator[Answer], notify: Callable[[int], None]) -> Iterator[Answer]:
    for done, answer in enumerate(answers, 1):
        notify(done)
        yield answer


def _run(work: ChildWork, start: Callable[..., subprocess.Popen[bytes]]) -> Answer:
    answer = _answer(work, start, guarded=False) or _answer(work, start, guarded=True)
    assert answer is not None
    return answer


def _answer(
    work: ChildWork, start: Callable[..., subprocess.Popen[bytes]], *, guarded: bool
) -> Answer | None:
    """What came of it; None where it has to be run again, guarded."""
    with (
        scratch_folder() as folder,
        scratch_file() as answer,
        scratch_file() as messages,
    ):
        errand = child.Errand(
            arguments=work.arguments,
            log=os.path.join(folder, "log"),
            status=os.path.join(folder, "status"),
            terminal=False,
            columns=None,
            encoding="utf-8",
            guarded=guarded,
        )
        process = start(
            errand.command(work.interpreter),
            stdout=answer,
            stderr=messages,
            env={**work.environment, **os.environ, **work.fixed},
            cwd=work.folder,
        )
        code = process.wait()
        if errand.wants_a_guard(code):
            return None
        log = child.read_text(errand.log)
        answer.seek(0)
        messages.seek(0)
        said = messages.read().decode(errors="replace")
        lines = tuple(compiler_log.noteworthy(log))
        status = child.read_text(errand.status)
        if not status:
            trail = progress.Trail.read(errand.trail)
            return Answer(b"", said, lines, child.ended_early(work.name, code, log, trail))
        return Answer(answer.read() if status in ("0", "1") else b"", said, lines)
