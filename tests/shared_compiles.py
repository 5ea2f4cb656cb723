"""What XLA makes of a module is made once a run of the tests, and shared by all of its processes.

A compile and a propagation are a question in bytes to a child process and its answer. The tests ask
the same of the reference models over and over, so an answer is kept under the hash of its question,
for this run alone. What is refused, crashes or is killed is asked again each time. A test about the
children themselves takes the fixture ``own_compiles``.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from xla_flags import WITHOUT_EMITTERS

from sdyscope.stages.compiled import compiler
from sdyscope.stages.propagated import debug_info, xla_dump

OWN: dict[str, Any] = {
    "start": compiler._start,
    "environment": compiler.environment,
    "dump": xla_dump.xla_dump,
    "ask": debug_info._worker.ask,
}


def key(*parts: bytes | str) -> str:
    """The name of an answer; equal questions under equal flags of XLA have one."""
    found = hashlib.sha256()
    for part in (os.environ.get("XLA_FLAGS", ""), *parts):
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()


def keep(path: Path, write: Callable[[Path], object]) -> None:
    """Writes an answer that other processes see whole or not at all."""
    made = Path(tempfile.mkdtemp(dir=path.parent))
    write(made)
    try:
        made.rename(path)
    except OSError:
        shutil.rmtree(made)


class Child:
    """A child that compiles in a folder, whose answer is kept once it has ended well."""

    def __init__(self, child: subprocess.Popen[bytes], folder: Path, path: Path) -> None:
        self._child, self._folder, self._path = child, folder, path
        self.kill = child.kill

    def wait(self, timeout: float | None = None) -> int:
        status = self._child.wait(timeout)
        if status == 0 and not self._path.exists() and self._folder.exists():
            keep(self._path, functools.partial(shutil.copytree, self._folder, dirs_exist_ok=True))
        return status


class Ended:
    """A child that has ended before it began: its answer was there."""

    def kill(self) -> None:
        pass

    def wait(self, timeout: float | None = None) -> int:
        return 0


class SharedCompiles:
    """Asks the children, or takes what they have answered already.

    Args:
        folder: where answers are kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def start(self, folder: Path, on: Any) -> Child | Ended:
        asked = [(folder / name).read_bytes() for name in sorted(os.listdir(folder))]
        path = self.folder / key("compile", str(asdict(on)), *asked)
        if path.exists():
            shutil.copytree(path, folder, dirs_exist_ok=True)
            return Ended()
        return Child(OWN["start"](folder, on), folder, path)

    def dump(self, module: Any, graph: Any, *words: Any, **options: Any) -> Any:
        bytecode = io.BytesIO()
        module.operation.write_bytecode(bytecode)
        path = self.folder / key(
            "dump", bytecode.getvalue(), repr((words, sorted(options.items())))
        )
        if not path.exists():
            found = pickle.dumps(OWN["dump"](module, graph, *words, **options))
            self.keep_bytes(path, found)
        return pickle.loads((path / "answer").read_bytes())

    def keep_bytes(self, path: Path, data: bytes) -> None:
        keep(path, lambda made: [(made / "answer").write_bytes(data)])

    def ask(self, request: bytes) -> bytes:
        path = self.folder / key("ask", request)
        if not path.exists():
            found: bytes = OWN["ask"](request)
            self.keep_bytes(path, found)
        return (path / "answer").read_bytes()


def plain_environment(on: Any) -> dict[str, str]:
    """That of a process that compiles, without the flag that would change its fusions."""
    made: dict[str, str] = OWN["environment"](on)
    return {**made, "XLA_FLAGS": made["XLA_FLAGS"].replace(WITHOUT_EMITTERS, "")}


def ask_through(patch: pytest.MonkeyPatch, shared: SharedCompiles | None) -> None:
    """Has the children asked through ``shared``, or as they are."""
    patch.setattr(compiler, "_start", OWN["start"] if shared is None else shared.start)
    environment = OWN["environment"] if shared is None else plain_environment
    patch.setattr(compiler, "environment", environment)
    patch.setattr(xla_dump, "xla_dump", OWN["dump"] if shared is None else shared.dump)
    patch.setattr(debug_info._worker, "ask", OWN["ask"] if shared is None else shared.ask)
