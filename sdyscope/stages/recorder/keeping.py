"""Keeps every program of a process in a folder."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

# The package has another name in a program that is recorded, so its modules meet by relative names.
from . import hearing
from .refs import NO_REFS, RefNames
from .secrets import redacted

#: Version of the lines that a process writes.
SCHEMA = "sdyscope.record/1"


class Keeper:
    """Writes what it hears into a folder that any number of processes share.

    A module is `modules/HASH.mlir`, what the compiler made of it `compiled/HASH.hlo`, once for all
    that are identical; what happened is a line of JSON in the process's own file, whole as soon as
    it is written.

    Args:
        folder: where to.
        both: whether to lower every program under the other partitioner as well.
    """

    def __init__(self, folder: str, both: bool) -> None:
        self.folder = os.path.abspath(folder)
        self.both = both
        self._kept: set[str] = set()
        self._alive: dict[int, tuple[Any, str, Mapping[str, str]]] = {}
        self._lock = threading.RLock()
        self._file: int | None = None
        self._complained = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = threading.RLock()
        self._file = None

    def lowered(self, event: hearing.Lowering) -> None:
        """Keeps the module, and under the other partitioner if that is asked for."""
        module = event.computation.stablehlo()
        if self._known(module, event.computation) is not None:
            return  # JAX had it in a cache: for shardings that differ in writing alone
        own, others, failures = hearing.own_partitioner(), {}, {}
        names = event.caller.names
        refs = event.refs
        name = self._keep(module, names, refs)
        self._know(module, event.computation, name, names)
        if self.both:
            other = "gspmd" if own == "shardy" else "shardy"
            try:
                others[other] = self._keep(_under(other, event.call).stablehlo(), names, refs)
            except Exception as error:  # JAX raises every kind of error from here
                failures[other] = hearing.first_line(error)
        self._line(
            "lowered",
            module=name,
            name=event.name,
            author=event.caller.function,
            defined=event.defined,
            by_jax=event.by_jax,
            called=event.called,
            partitioner=own,
            arguments=event.types,
            weak=event.weak,
            meshes=event.meshes,
            mesh=event.mesh,
            paths=event.paths,
            results=event.results,
            seconds=round(event.seconds, 6),
            others=others,
            failures=failures,
        )

    def compiled(self, event: hearing.Compile) -> None:
        """Counts it and keeps what was made; so a module that was not seen to be lowered."""
        known = self._known(event.module)
        text = hearing.named(event.hlo, known[1] if known else {})
        self._line(
            "compiled",
            module=known[0] if known else self._keep(event.module, {}, NO_REFS),
            name=hearing.module_name(event.module),
            partitioner=hearing.own_partitioner(),
            devices=event.devices,
            device_runs=event.device_runs,
            index=event.process,
            seconds=round(event.seconds, 6),
            called=event.called,
            failed=event.failed,
            cached=event.cached,
            platform=event.platform,
            hlo=self._keep_text("compiled", text.encode(), ".hlo") if text else "",
            results=event.results,
            memory=event.memory,
            options=event.options,
            flags=event.flags,
            device_kind=event.device_kind,
        )

    def problem(self, what: str) -> None:
        """Notes it down, or says it, once, where that can't be."""
        try:
            self._line("problem", what=what)
        except OSError as error:
            if not self._complained:
                self._complained = True
                print(f"sdyscope record: {what} ({error.strerror})", file=sys.stderr)

    def _know(self, module: Any, computation: Any, name: str, names: Mapping[str, str]) -> None:
        """Remembers what a module is called, for as long as JAX holds the very same object."""
        key = id(module)

        def forget(gone: Any) -> None:
            if self._alive.get(key, (None,))[0] is gone:
                del self._alive[key]

        self._alive[key] = weakref.ref(computation, forget), name, names

    def _known(self, module: Any, computation: Any = None) -> tuple[str, Mapping[str, str]] | None:
        """What a module that JAX holds is called, and its paths by the author's names.

        `computation` also holds it from now on.
        """
        known = self._alive.get(id(module))
        if known is None:
            return None
        if computation is not None:
            self._know(module, computation, *known[1:])
        return known[1:]

    def _keep(self, module: Any, names: Mapping[str, str], refs: RefNames) -> str:
        text = hearing.named(hearing.module_text(module), names, refs)
        return self._keep_text("modules", text.encode(), ".mlir")

    def _keep_text(self, folder: str, text: bytes, suffix: str) -> str:
        name = hashlib.sha256(text).hexdigest()[:16]
        if name not in self._kept:
            path = os.path.join(self.folder, folder, f"{name}{suffix}")
            if not os.path.exists(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                beside = f"{path}.{os.getpid()}.{threading.get_ident()}"
                with open(beside, "wb") as file:
                    file.write(text)
                os.replace(beside, path)
            self._kept.add(name)
        return name

    def _line(self, kind: str, **what: Any) -> None:
        with self._lock:
            if self._file is None:
                self._file = self._opened()
                self._line("process", **_this_process())
            line = json.dumps({"line": kind, "at": round(time.time(), 3), **what})
            os.write(self._file, line.encode() + b"\n")

    def _opened(self) -> int:
        folder = os.path.join(self.folder, "processes")
        os.makedirs(folder, exist_ok=True)
        name = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.open(os.path.join(folder, name), flags, 0o666)


def _this_process() -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "host": socket.gethostname(),
        "arguments": redacted(getattr(sys, "orig_argv", sys.argv)),
        "jax": str(getattr(sys.modules.get("jax"), "__version__", "")),
        "jaxlib": str(getattr(sys.modules.get("jaxlib"), "__version__", "")),
        "python": sys.version.partition(" ")[0],
    }


def _under(partitioner: str, call: Callable[[], Any]) -> Any:
    flag = hearing.partitioner_flag()
    if flag is None:
        raise RuntimeError("this JAX does not let one choose the partitioner")
    with flag(partitioner == "shardy"):
        return call()


def start(folder: str, *, both: bool) -> None:
    """Keeps every program of this process in a folder, from the moment that jax is imported."""
    hearing.add_at_import(Keeper(folder, both))
