"""Starts the processes that run one program together, each a child, and watches over them.

A child says over a socket who it is and what it goes on to; whoever ends too soon, or does not go
on, is named, and the others are stopped. The socket ties both ends: the parent sees at once that a
child has ended, and a child ends itself when the parent is gone, however it went.

What crashes a child under one partitioner need not under the other: they are started again, without
that one.

One process alone is a child as well, which joins no others. In a cluster (`--processes auto`) a
parent has one child, and the cluster starts the parents.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sdyscope.errors import CompilerError, SdyscopeError
from sdyscope.facts.program import Partitioner
from sdyscope.process import child, compiler_log, output
from sdyscope.process.scratch import scratch_file, scratch_folder

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
        under: the partitioner that it has the program under; None before and after.
        failed: whether it has met an error of its own, which it will say.
        error: the text of that error; empty for what nobody foresaw.
    """

    number: int | None
    count: int | None
    process: subprocess.Popen[bytes]
    wire: socket.socket
    folder: Path
    answer: BinaryIO
    doing: str = "starting"
    said: int = 0
    under: Partitioner | None = None
    failed: bool = False
    error: str = ""
    _text: bytes = field(default=b"", repr=False)

    @property
    def words(self) -> str:
        """`process 1 of 2 (pid 123 on node7)`; `the process` for one alone."""
        if self.count == 1:
            return "the process"
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
            message = json.loads(line)
            self.number, self.count = message.get("process", (self.number, self.count))
            doing = message.get("doing", self.doing)
            self.said += doing != self.doing
            self.doing = doing
            self.under = message.get("under", self.under)
            self.failed |= "failed" in message
            self.error = message.get("failed", self.error)

    def crash(self) -> str:
        """How an error in C++ has ended it, to go on with after its name; empty where none has."""
        signum, log = -(self.process.returncode or 0), self.read("log")
        if signum not in compiler_log.CRASHES or _LOST in log or self.read("status"):
            return ""
        words = compiler_log.last_words(log)
        return f"was ended by {signal.Signals(signum).name}, {self.doing}" + (
            f": {words}" if words else "."
        )


def run(
    name: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    verbose: bool,
    count: int | None,
    timeout: float | None,
    partitioners: Sequence[Partitioner],
) -> int:
    """Runs a command line in several child processes together and passes the first one's answer on.

    Args:
        name: what to call the command in an error.
        arguments: the command line, without the name of the program.
        environment: variables that the children get unless they are set already.
        verbose: whether to pass on, at the end, what the compiler logged in each.
        count: how many processes to start; None in a cluster, for the one that this process stands
            for.
        timeout: seconds after which they are stopped when none of them has gone on to anything;
            None for never.
        partitioners: what they are to have the program under, one after the other.

    Returns:
        The exit status.

    Raises:
        CompilerError: one ended before it had an answer, or they do not go on.
    """
    crashed: dict[Partitioner, str] = {}
    while True:
        try:
            return _try(name, arguments, environment, verbose, count, timeout, crashed)
        except _Crashed as error:
            left = {*partitioners} - {*crashed, error.under}
            # In a cluster the others would have to begin again, too.
            if count is None or error.under is None or not left:
                before = " ".join(["", *(f"Before, {words}" for words in crashed.values())])
                raise CompilerError(error.message + before, hint=error.hint) from error
            crashed[error.under] = error.words


class _Crashed(CompilerError):  # noqa: N818 - it need not be the end
    """C++ has ended a process, which may have had the program under a partitioner."""

    def __init__(self, message: str, under: Partitioner | None, words: str) -> None:
        super().__init__(message, hint="--verbose prints the compiler's log.")
        self.under, self.words = under, words


def _try(
    name: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    verbose: bool,
    count: int | None,
    timeout: float | None,
    crashed: Mapping[Partitioner, str],
) -> int:
    """As `run`, without the partitioners under which a process has crashed."""
    with scratch_folder() as folder, contextlib.ExitStack() as stack:
        with child.supervised() as start:
            members = list(
                _start(Path(folder), arguments, environment, count, crashed, start, stack)
            )
            try:
                slack = _SLACK if count is None else 0.0
                failed = _watch(members, None if timeout is None else timeout + slack)
            finally:
                _stop(members)
        if verbose:
            for member in members:
                which = "" if count == 1 else f", process {member.number}"
                for line in compiler_log.noteworthy(member.read("log")):
                    output.say(f"compiler{which}: {line}")
        if failed is not None:
            return _failure(name, members, failed, timeout)
        first = members[0]
        status = int(first.read("status"))
        if status in (0, 1) and not first.number:
            child.pass_on(first.answer, output.answers())
        return status


#: JAX 0.7 writes replica groups in the order of a set, which is another in each process.
_ALIKE = {"PYTHONHASHSEED": "0"}


def _start(
    folder: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    count: int | None,
    crashed: Mapping[Partitioner, str],
    start: Callable[..., subprocess.Popen[bytes]],
    stack: contextlib.ExitStack,
) -> Iterator[_Member]:
    here = output.answers()
    address = f"127.0.0.1:{reserved_port(stack)}"
    for number in range(count or 1):
        own = folder / str(number)
        own.mkdir()
        answer = stack.enter_context(scratch_file())
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
            crashed=tuple(crashed.items()),
        )
        # The first one's messages are seen as they come; those of the others say the same again.
        messages = stack.enter_context((own / "messages").open("wb")) if number else None
        with theirs:
            theirs.set_inheritable(True)
            process = start(
                errand.command(),
                stdin=None if count == 1 else subprocess.DEVNULL,
                stdout=answer,
                stderr=messages,
                env={**environment, **({} if count is None else _ALIKE), **os.environ},
                # What a cluster has opened for its task (PMI_FD of an MPI) is for the child.
                **({"close_fds": False} if count is None else {"pass_fds": [theirs.fileno()]}),
            )
        yield _Member(number if count else None, count, process, ours, own, answer)


def reserved_port(stack: contextlib.ExitStack) -> int:
    """A port that only those can listen on who share it, as gRPC does, until the stack unwinds."""
    listener = stack.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", 0))
    return int(listener.getsockname()[1])


def _watch(members: Sequence[_Member], timeout: float | None) -> _Member | TimeoutError | None:
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
            left = None if timeout is None else max(last + timeout - time.monotonic(), 0)
            ready = selector.select(left)
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
                worst = min(failed, key=_is_effect)
                _let_speak(worst, members[0])
                return worst
    return None


def _is_effect(member: _Member) -> tuple[bool, bool]:
    return member.process.returncode == -signal.SIGABRT, _LOST in member.read("log")


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
    name: str, members: Sequence[_Member], failed: _Member | TimeoutError, timeout: float | None
) -> int:
    """Raises what went wrong, or returns the exit status where a child has said it."""
    if isinstance(failed, TimeoutError):
        raise _stalled(members, timeout or 0.0)
    said = failed.read("status")
    if not said:
        code, log = failed.process.returncode, failed.read("log")
        if code == -signal.SIGABRT and _LOST in log:
            raise CompilerError(
                f"{failed.words} was ended by JAX, which has lost another process. It was "
                f"{failed.doing}.",
                hint="The messages of the others may say why.",
            )
        who = name if failed.count == 1 else f"{name}, {failed.words},"
        if crash := failed.crash():
            raise _Crashed(f"{who} {crash}", failed.under, f"{failed.words} {crash}")
        error = child.ended_early(who, code, log)
        raise CompilerError(f"{error.message} It was {failed.doing}.", hint=error.hint)
    if not members[0].read("status"):
        messages = failed.error or failed.read("messages").strip().removeprefix("error: ")
        named = failed.words in messages
        raise CompilerError(messages if named else f"{failed.words}: {messages}")
    return int(said)


def _stalled(members: Sequence[_Member], timeout: float) -> SdyscopeError:
    hint = "All were stopped. --timeout allows more seconds."
    last = min(members, key=lambda member: member.said)
    others = [member for member in members if member.said > last.said]
    if last.count == 1:
        return CompilerError(
            f"It made no progress for {timeout:g} s: it was {last.doing}.",
            hint="It was stopped. --timeout allows more seconds.",
        )
    if len(members) == 1:
        return CompilerError(
            f"{last.words} made no progress for {timeout:g} s: it was {last.doing}.",
            hint="It was stopped. Another process may hang: each says where it was. --timeout "
            "allows more seconds.",
        )
    if not others:
        return CompilerError(
            f"None of the {len(members)} processes made progress for {timeout:g} s: all were "
            f"{last.doing}.",
            hint=hint,
        )
    return CompilerError(
        f"{last.words} made no progress for {timeout:g} s: it was {last.doing}. Process "
        f"{others[0].number} was {others[0].doing}.",
        hint=hint,
    )
