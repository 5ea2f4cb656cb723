"""Starts the processes that run one program together, each a child, and watches over them.

A child says over a socket who it is and what it goes on to; whoever ends too soon, or does not go
on, is named, and the others are stopped. The socket ties both ends: the parent sees at once that a
child has ended, and a child ends itself when the parent is gone, however it went.

In a cluster (`--processes auto`) a parent has one child, and the cluster starts the parents.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

from sdyscope import child, compiler_log
from sdyscope.errors import CompilerError, SdyscopeError
from sdyscope.views import output

__all__ = ["Wire", "run", "wire"]

#: In a cluster each process waits for the others itself, and can say for whom: a little sooner.
_SLACK = 5.0


#: What JAX logs when it ends a process because of another one.
_LOST = "the JAX distributed service detected fatal errors"


@dataclass
class _Member:
    """One child.

    Attributes:
      number: which process it is; None until a cluster has said so.
      count: how many there are; None likewise.
      process: the child.
      wire: this end of the socket.
      folder: where its log, status and messages are.
      answer: its standard output.
      doing: what it said last that it goes on to.
      said: how often it has said that it goes on to something else.
      failed: whether it has met an error of its own, which it will say.
    """

    number: int | None
    count: int | None
    process: subprocess.Popen[bytes]
    wire: socket.socket
    folder: Path
    answer: BinaryIO
    doing: str = "starting"
    said: int = 0
    failed: bool = False
    _text: bytes = field(default=b"", repr=False)

    @property
    def words(self) -> str:
        """`process 1 of 2 (pid 123 on node7)`."""
        of = "" if self.count is None else f" of {self.count}"
        which = "this process" if self.number is None else f"process {self.number}{of}"
        return f"{which} (pid {self.process.pid} on {socket.gethostname()})"

    def read(self, name: str) -> str:
        """What is in one of its files."""
        file = self.folder / name
        return file.read_text(errors="replace") if file.exists() else ""

    def hear(self, data: bytes) -> None:
        """Takes in what it says, a line of JSON at a time."""
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            self.number, self.count = told.get("process", (self.number, self.count))
            doing = told.get("doing", self.doing)
            self.said += doing != self.doing
            self.doing = doing
            self.failed |= "failed" in told


def run(
    name: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    verbose: bool,
    count: int | None,
    timeout: float,
) -> int:
    """Runs a command line in several child processes together and passes the first one's answer on.

    Args:
      name: what to call the command in an error.
      arguments: the command line, without the name of the program.
      environment: variables that the children get unless they are set already.
      verbose: whether to pass on, at the end, what the compiler logged in each.
      count: how many processes to start; None in a cluster, for the one that this process stands
        for.
      timeout: seconds after which they are stopped when none of them has gone on to anything.

    Returns:
      The exit status.

    Raises:
      CompilerError: one ended before it had an answer, or they do not go on.
    """
    with tempfile.TemporaryDirectory(prefix="sdyscope-") as folder, contextlib.ExitStack() as stack:
        with child.supervised() as start:
            members = list(
                _start(Path(folder), arguments, environment, count, timeout, start, stack)
            )
            try:
                failed = _watch(members, timeout if count else timeout + _SLACK)
            finally:
                _stop(members)
        if verbose:
            for member in members:
                for line in compiler_log.noteworthy(member.read("log")):
                    print(f"compiler, process {member.number}: {line}", file=sys.stderr)
        if failed is not None:
            return _failure(name, members, failed, timeout)
        first = members[0]
        status = int(first.read("status"))
        if status in (0, 1) and not first.number:
            child.pass_on(first.answer, output.answers())
        return status


def _start(
    folder: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    count: int | None,
    timeout: float,
    start: Callable[..., subprocess.Popen[bytes]],
    stack: contextlib.ExitStack,
) -> Iterator[_Member]:
    here = output.answers()
    address = f"127.0.0.1:{_free_port()}"
    for number in range(count or 1):
        own = folder / str(number)
        own.mkdir()
        answer = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        ours, theirs = socket.socketpair()
        stack.enter_context(ours)
        errand = child.Errand(
            arguments=tuple(arguments),
            log=str(own / "log"),
            status=str(own / "status"),
            terminal=here.terminal,
            columns=here.columns,
            encoding=here.stream.encoding,
            wire=theirs.fileno(),
            place=None if count is None else (address, count, number),
        )
        # The first one's messages are seen as they come; those of the others say the same again.
        messages = stack.enter_context((own / "messages").open("wb")) if number else None
        with theirs:
            process = start(
                errand.command(),
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=messages,
                env={**environment, **os.environ},
                pass_fds=[theirs.fileno()],
            )
        yield _Member(number if count else None, count, process, ours, own, answer)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _watch(members: Sequence[_Member], timeout: float) -> _Member | TimeoutError | None:
    """Waits until all have come to their own end.

    Returns:
      None; or the first that ended without an answer; or that none has gone on for so long.
    """
    with selectors.DefaultSelector() as selector:
        member: _Member
        for member in members:
            selector.register(member.wire, selectors.EVENT_READ, member)
        last = time.monotonic()
        while selector.get_map():
            ready = selector.select(max(last + timeout - time.monotonic(), 0))
            if not ready:
                return TimeoutError()
            failed: list[_Member] = []
            for key, _ in ready:
                member = key.data
                data = _received(member.wire)
                before = member.said
                member.hear(data)
                if member.said > before:
                    last = time.monotonic()
                if not data:
                    selector.unregister(member.wire)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        member.process.wait(child.GRACE)
                if member.failed or (not data and member.read("status") not in ("0", "1")):
                    failed.append(member)
            if failed:
                # What is killed is the cause, what JAX aborts for the loss of it the effect.
                worst = min(failed, key=lambda member: member.process.returncode == -signal.SIGABRT)
                _let_speak(worst, members[0])
                return worst
    return None


def _let_speak(failed: _Member, first: _Member) -> None:
    """Gives a process time to say its error, and the first one, which may have met it as well."""
    end = time.monotonic() + child.GRACE
    while failed.failed and not failed.read("status") and time.monotonic() < end:
        time.sleep(0.05)  # At its end it waits for the others, which do not come.
    if failed.read("status") and not failed.failed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            first.process.wait(child.GRACE)


def _received(wire: socket.socket) -> bytes:
    try:
        return wire.recv(1 << 16)
    except ConnectionResetError:
        return b""


def _stop(members: Sequence[_Member]) -> None:
    """Ends all that are left: first by asking them."""
    end = time.monotonic() + child.GRACE
    for member in members:
        member.process.terminate()
    for member in members:
        try:
            member.process.wait(max(end - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            member.process.kill()
            member.process.wait()


def _failure(
    name: str, members: Sequence[_Member], failed: _Member | TimeoutError, timeout: float
) -> int:
    """Raises what went wrong, or returns the exit status where a child has said it."""
    if isinstance(failed, TimeoutError):
        raise _stalled(members, timeout)
    said = failed.read("status")
    if not said:
        code, log = failed.process.returncode, failed.read("log")
        if code == -signal.SIGABRT and _LOST in log:
            raise CompilerError(
                f"{failed.words} was ended by JAX, which has lost another process. It was "
                f"{failed.doing}.",
                hint="The messages of the others may tell why.",
            )
        error = child.ended_early(f"{name}, {failed.words},", code, log)
        raise CompilerError(f"{error.message} It was {failed.doing}.", hint=error.hint)
    if not members[0].read("status"):
        messages = failed.read("messages").strip().removeprefix("error: ")
        raise CompilerError(f"{failed.words}: {messages}")
    return int(said)


def _stalled(members: Sequence[_Member], timeout: float) -> SdyscopeError:
    hint = "All were stopped. --timeout allows more seconds."
    last = min(members, key=lambda member: member.said)
    others = [member for member in members if member.said > last.said]
    if len(members) == 1:
        return CompilerError(
            f"{last.words} has not gone on for {timeout:g} s: it was {last.doing}.",
            hint="It was stopped. Another process may hang: each says where it was. --timeout "
            "allows more seconds.",
        )
    if not others:
        return CompilerError(
            f"None of the {len(members)} processes has gone on for {timeout:g} s: all were "
            f"{last.doing}.",
            hint=hint,
        )
    return CompilerError(
        f"{last.words} has not gone on for {timeout:g} s: it was {last.doing}. Process "
        f"{others[0].number} was {others[0].doing}.",
        hint=hint,
    )


# --- in a child -----------------------------------------------------------------------------------


class Wire:
    """A child's end of the socket.

    Args:
      descriptor: its file descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()

    def _wait_for_the_end(self) -> NoReturn:
        with contextlib.suppress(OSError):
            while self._socket.recv(1):
                pass
        os._exit(2)  # The parent is gone: nobody waits for an answer.

    def tell(self, **what: object) -> None:
        """Says something to the parent.

        Args:
          what: who this is (`process`: number and count), what it goes on to (`doing`), or that it
            has met an error of its own (`failed`).
        """
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(what).encode() + b"\n")


def wire() -> Wire | None:
    """This child's wire; None where it is not one of several processes."""
    task = child.errand()
    return None if task is None or task.wire is None else Wire(task.wire)


def place() -> tuple[str, int, int] | None:
    """Address of the coordinator, how many processes there are, and which one this is.

    None for what the cluster says.
    """
    task = child.errand()
    return None if task is None else task.place
