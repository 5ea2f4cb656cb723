"""Processes that need not import JAX again: each is forked from one that has.

A Python that sdyscope starts, and a command line that a test starts, need over a second of CPU time
before they do anything, nearly all of it to import JAX. So ``subprocess.Popen`` is replaced by one
that asks a server, which has imported everything and started nothing, to fork the process. It is a
process like any other: a child of who asked, with its own environment, working directory, files and
signals, that is killed, waited for and measured as always. What can't be had this way (another
``PYTHONPATH``, say) is started anew, as is everything else.

A test about what a new process imports or inherits takes the fixture ``new_processes``.

Linux alone can give a process to who asked for it (``PR_SET_CHILD_SUBREAPER``); elsewhere, and
where importing JAX starts a thread, all processes are new.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

#: What `sdyscope.process.python` begins with, for this Python and for one of another environment;
#: and how a command line does.
_CHILD = ("import sys; sys.path[:] = [", "import sys; sys.path.insert(0, ")
_COMMAND = ["-m", "sdyscope"]
#: What a process runs that starts none.
_LEAF = "_child.serve("

#: Variables that JAX reads when it is imported, and takes a change of afterwards.
_OF_JAX = {
    "JAX_DUMP_IR_TO": str,
    "JAX_NUM_CPU_DEVICES": int,
    "JAX_PLATFORMS": str,
}
#: What importing JAX sets where it is not set.
_BY_JAX = {"TF_CPP_MIN_LOG_LEVEL": "1"}
#: How variables begin that Python, C and JAX read when a process begins. Forked processes hash
#: alike in any case.
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "JAX_", "TF_", "OMP_")
#: Modules that do something where they are imported.
_NOT_IMPORTED = frozenset({"__init__", "__main__", "pytest_plugin", "sitecustomize"})
#: What of these is made up for: folders before those that are known, and whether to write bytecode.
_PATH = "PYTHONPATH"
_MADE_UP = frozenset((*_OF_JAX, "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", _PATH))
_THREADS = "OPENBLAS_NUM_THREADS"

_MESSAGE = 1 << 20
_FILES = 64
#: Above the file descriptors that a process is given.
_HIGH = 200

_SUBREAPER = 36
_COLLAPSE = 25
_HUGE = 2 << 20
_NEW = subprocess.Popen


def _set_subreaper(wanted: bool) -> None:
    """Whether this process becomes the parent of its descendants whose own parents have ended."""
    ctypes.CDLL(None).prctl(_SUBREAPER, int(wanted), 0, 0, 0)


class _Server:
    """Who asks for processes.

    Args:
        connect: gives the socket to the process that forks, and the variables that it was started
            with.
    """

    def __init__(self, connect: Callable[[], tuple[socket.socket, dict[str, str]]]) -> None:
        self._connect = connect
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._environment: dict[str, str] = {}

    def fork(self, task: dict[str, Any], files: list[int]) -> int | None:
        """The process id of a new child of this process for a task; None where there is none."""
        if self._owner != os.getpid():
            return None
        with self._lock:
            if self._channel is None:
                self._channel, self._environment = self._connect()
            before = _folders(task["environment"], self._environment)
            # A file in one of the folders may change how a command line begins.
            is_known = before == [] or (before is not None and task["words"][0] == "-c")
            if not is_known or not self._fits(task["environment"]):
                return None
            task["path"] = before
            message = json.dumps({**task, "parent": os.getpid()}).encode()
            _set_subreaper(True)
            try:
                socket.send_fds(self._channel, [message], files)
                answer = self._channel.recv(16)
            except OSError:
                answer = b""
            finally:
                _set_subreaper(False)
        return int(answer) if answer else None

    def _fits(self, environment: dict[str, str]) -> bool:
        return all(
            environment.get(name, _BY_JAX.get(name))
            == self._environment.get(name, _BY_JAX.get(name))
            for name in environment.keys() | self._environment.keys()
            if name.startswith(_AT_START) and name not in _MADE_UP
        )


def _folders(environment: dict[str, str], known: dict[str, str]) -> list[str] | None:
    """What `PYTHONPATH` has before what is known of it; None where it has something else."""
    path, end = (
        one[_PATH].split(os.pathsep) if _PATH in one else [] for one in (environment, known)
    )
    before = path[: len(path) - len(end)]
    return before if path == [*before, *end] else None


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """``subprocess.Popen``, which has a process forked where that makes no difference."""

    #: Who is asked; None for nobody.
    server: _Server | None = None

    def _execute_child(self, args: Any, *more: Any) -> None:
        if not self._is_forked(args, *more):
            super()._execute_child(args, *more)  # type: ignore[misc]

    def _is_forked(  # type: ignore[no-untyped-def]
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
        creationflags, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite,
        restore_signals, gid, gids, uid, umask, start_new_session, process_group,
    ) -> bool:  # fmt: skip
        words = None if isinstance(args, str | bytes | os.PathLike) else _words(list(args))
        special = (executable, preexec_fn, shell, gid, gids, uid, start_new_session)
        if (
            self.server is None
            or words is None
            or any(special)
            or not close_fds
            or umask >= 0
            or process_group not in (None, -1)
        ):
            return False
        streams = (p2cread, c2pwrite, errwrite)
        files = [number if file == -1 else file for number, file in enumerate(streams)]
        task = {
            "words": words,
            "environment": dict(os.environ if env is None else env),
            "folder": os.fspath(os.getcwd() if cwd is None else cwd),
            "numbers": [0, 1, 2, *pass_fds],
        }
        pid = self.server.fork(task, [*files, *pass_fds]) if os.path.isdir(task["folder"]) else None
        if pid is None:
            return False
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]
        return True


def _words(args: list[Any]) -> list[str] | None:
    """What comes after the name of Python in a command line that can be forked."""
    words = [os.fspath(word) for word in args]
    if words[:1] != [sys.executable]:
        return None
    if words[1:3] == ["-P", "-c"] and words[3].startswith(_CHILD):
        return words[2:]
    return words[1:] if words[1:3] == _COMMAND else None


def start() -> None:
    """Replaces ``subprocess.Popen``; its server begins when it is first asked."""
    if sys.platform == "linux":
        Popen.server = _Server(_connect)
        subprocess.Popen = Popen  # type: ignore[misc]


#: What the server runs, of which only "<string>" is in the stack of a process that it forks.
_BOOT = """
import sys
sys.path.append({tests!r})
import warm
sys.path.pop()
code, names, end = warm.main({descriptor})
try:
    exec(code, names)
except BaseException as error:
    end(error)
end()
"""


def _connect() -> tuple[socket.socket, dict[str, str]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: text for name, text in os.environ.items() if name not in _OF_JAX}
    with theirs:
        code = _BOOT.format(tests=os.path.dirname(__file__), descriptor=theirs.fileno())
        process = _NEW(
            [sys.executable, "-P", "-c", code],
            # Threads of linear algebra do not survive a fork.
            env={**environment, _THREADS: "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours, environment


# --- in the server --------------------------------------------------------------------------------


def main(descriptor: int) -> tuple[str, dict[str, Any], Callable[..., NoReturn]]:
    """Imports everything, and forks whatever is asked for, until nobody can ask any more.

    Returns, in each process that was forked, what it executes, the names for it, and what to call
    at its end, with an exception that ended it.
    """
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    environment = {name: text for name, text in os.environ.items() if name != _THREADS}
    _import_all()
    gc.collect()
    gc.freeze()
    _collapse()
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit()  # A fork would lose the others.
    while True:
        data, files, *_ = socket.recv_fds(channel, _MESSAGE, _FILES)
        if not data:
            os._exit(0)
        between = os.fork()
        if between:
            os.waitpid(between, 0)
        else:
            if os.fork():
                os._exit(0)
            task = json.loads(data)
            _wait_for(task["parent"])
            channel.send(str(os.getpid()).encode())
            channel.close()
            if _LEAF in task["words"][1]:
                return *_become(files, **task), _end
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork():
                theirs.close()
                ours = socket.socket(fileno=_moved(ours.detach()))
                Popen.server = _Server(lambda ours=ours: (ours, environment))
                return *_become(files, **task), _end
            # What this process asks for is forked from another one that has started nothing.
            ours.close()
            channel = theirs
        for file in files:
            os.close(file)


def _collapse() -> None:
    """Has memory in pages of 2 MiB where the kernel does that: a fork copies one entry for 512."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _, _, _, *name = line.split(maxsplit=5)
        if access.startswith("rw-p") and name in ([], ["[heap]"]):
            begin, end = (int(address, 16) for address in span.split("-"))
            for page in range(-(-begin // _HUGE) * _HUGE, end // _HUGE * _HUGE, _HUGE):
                madvise(page, _HUGE, _COLLAPSE)


def _wait_for(parent: int) -> None:
    """Waits until the kernel has given this process to its parent; where that has ended, ends."""
    end = time.monotonic() + 60
    while os.getppid() != parent:
        if time.monotonic() > end:
            os._exit(1)
        time.sleep(0.0002)


def _import_all() -> None:
    import sdyscope

    root = Path(sdyscope.__file__).parent
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        if _NOT_IMPORTED.isdisjoint(parts):
            importlib.import_module(".".join(parts))
    importlib.import_module("sdyscope.models.mlp")


def _become(
    files: list[int],
    *,
    words: list[str],
    environment: dict[str, str],
    folder: str,
    numbers: list[int],
    path: list[str],
    parent: int,
) -> tuple[Any, dict[str, Any]]:
    """Makes this process the one that was asked for, and returns what it executes."""
    import jax

    for file, number in zip([*map(_moved, files)], numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        setattr(sys, name, _stream(getattr(sys, name), number))
    set_by_imports = {
        name: text for name, text in os.environ.items() if name not in _before_imports
    }
    os.environ.clear()
    os.environ.update({**set_by_imports, **environment})
    for name, kind in _OF_JAX.items():
        if name in environment:
            jax.config.update(name.lower(), kind(environment[name]))
    os.chdir(folder)
    sys.path[:0] = path
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in environment
    subprocess.Popen = Popen  # type: ignore[misc]
    names = {"__name__": "__main__", "__builtins__": __builtins__}
    if words[0] == "-c":
        sys.argv = ["-c"]
        return words[1], names
    sys.path.insert(0, folder)
    sys.argv = ["-m", *words[2:]]
    return f"import runpy; runpy._run_module_as_main({words[1]!r})", names


_before_imports = dict(os.environ)


def _moved(file: int) -> int:
    """The same file under a number that no process is given one under."""
    moved = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(file)
    return moved


def _stream(before: Any, number: int) -> IO[str]:
    """A standard stream as Python makes it, which nothing closes."""
    return open(
        number,
        "w" if number else "r",
        buffering=1 if os.isatty(number) or number == 2 else -1,
        encoding=before.encoding,
        errors=before.errors,
        closefd=False,
    )


def _end(error: BaseException | None = None) -> NoReturn:
    """Ends the process as Python does, but for taking everything apart, which takes 0.1 s."""
    status = 0
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    elif error is not None:
        status = 1
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.flush()
    os._exit(status & 0xFF)
