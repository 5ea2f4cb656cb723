"""The programs that make environments: uv, or Python's venv and pip; and what they are asked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sdyscope.errors import TargetError

PythonVersion = tuple[int, int]
"""Such as (3, 12)."""

#: What sdyscope itself needs.
OLDEST_PYTHON: PythonVersion = (3, 11)
#: No wheel of JAX is looked for beyond.
_NEWEST_PYTHON: PythonVersion = (3, 16)

_NAMED = re.compile(r"python(3)\.(\d+)")
#: Where pyenv and uv keep the Pythons that they install.
_MANAGED = (
    ("PYENV_ROOT", "~/.pyenv", "versions/*/bin/python3"),
    ("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python", "*/bin/python3"),
)
_FOLDER_VERSION = re.compile(r"(?:^|-)(3)\.(\d+)(?:\.|$)")


@dataclass(frozen=True)
class Tools:
    """What environments are made with on this machine.

    Attributes:
        uv: path of uv; None where it is not installed.
        pythons: executables by version, this process's own first.
    """

    uv: str | None
    pythons: Mapping[PythonVersion, str]

    @property
    def candidates(self) -> tuple[PythonVersion, ...]:
        """The versions of Python that an environment can have, those nearest to this one first.

        uv installs what is missing.
        """
        own = sys.version_info[:2]
        known = set(self.pythons)
        if self.uv is not None:
            known |= {(3, minor) for minor in range(OLDEST_PYTHON[1], max(own[1], 14) + 1)}
        return tuple(
            sorted(known, key=lambda candidate: (candidate < own, abs(candidate[1] - own[1])))
        )

    def index_versions(self, package: str, python: PythonVersion) -> list[str]:
        """The command that lists a package's versions that have wheels for a version of Python."""
        words = ["index", "versions", package, "--pre", "--only-binary", ":all:"]
        words += ["--python-version", ".".join(map(str, python)), "--disable-pip-version-check"]
        return [*self._pip(), *words]

    def _pip(self) -> list[str]:
        for executable in (sys.executable, *self.pythons.values()):
            if _has_pip(executable):
                return [executable, "-m", "pip"]
        if self.uv is not None:
            return [self.uv, "tool", "run", "--quiet", "pip"]
        raise TargetError(
            "Neither pip nor uv is installed, so no environment can be made.",
            hint="Install uv, or name environments that are there: --from DIR --to DIR.",
        )

    def create(self, folder: Path, python: PythonVersion) -> list[str]:
        """The command that makes an empty environment in a folder."""
        if self.uv is not None:
            interpreter = self.pythons.get(python) or ".".join(map(str, python))
            return [
                self.uv,
                "venv",
                "--quiet",
                "--no-project",
                "--python",
                interpreter,
                str(folder),
            ]
        return [self.pythons[python], "-m", "venv", str(folder)]

    def install(self, folder: Path, words: Sequence[str]) -> list[str]:
        """The command that installs requirements into an environment."""
        executable = str(folder / "bin" / "python")
        if self.uv is not None:
            return [self.uv, "pip", "install", "--python", executable, *words]
        quiet = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")
        return [executable, "-m", "pip", "install", *quiet, *words]


def find_tools(python: str | None = None) -> Tools:
    """Looks for uv and for Pythons.

    Args:
        python: the only one to use: a version such as `3.12`, or the path of an executable.

    Raises:
        TargetError: there is no such Python.
    """
    uv = shutil.which("uv")
    pythons: dict[PythonVersion, str] = {}
    for version, executable in _pythons():
        if OLDEST_PYTHON <= version < _NEWEST_PYTHON:
            pythons.setdefault(version, executable)
    if python is None:
        return Tools(uv, pythons)
    if re.fullmatch(r"3\.\d+", python):
        version = (3, int(python.partition(".")[2]))
        if version not in pythons and uv is None:
            raise TargetError(
                f"There is no Python {python} on this machine.",
                hint=f"Here is {', '.join('.'.join(map(str, own)) for own in sorted(pythons))}; "
                "uv, where it is installed, installs others.",
            )
        return Tools(uv, {version: pythons.get(version, python)})
    executable = shutil.which(python) or ""
    asked = _version_of(executable)
    if asked is None:
        raise TargetError(f"{python!r} is not a Python.", hint="Name a version, such as 3.12.")
    return Tools(uv, {asked: executable})


def _pythons() -> Iterator[tuple[PythonVersion, str]]:
    """Pythons without the packages of an environment, this process's own first."""
    own = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    yield sys.version_info[:2], str(own) if own.exists() else sys.executable
    for entry in os.get_exec_path():
        for path in _listed(Path(entry), "python3.*"):
            if named := _NAMED.fullmatch(path.name):
                version = (int(named[1]), int(named[2]))
                # A shim of pyenv is there for versions that are not chosen.
                if "shims" not in path.parts and not _is_environment(path):
                    yield version, str(path)
    for variable, default, pattern in _MANAGED:
        root = Path(os.environ.get(variable) or default).expanduser()
        for path in sorted(_listed(root, pattern), reverse=True):
            named = _FOLDER_VERSION.search(path.parent.parent.name)
            if named is not None:
                yield (int(named[1]), int(named[2])), str(path)


def _listed(folder: Path, pattern: str) -> Iterable[Path]:
    try:
        return [path for path in folder.glob(pattern) if os.access(path, os.X_OK)]
    except OSError:
        return ()


def _is_environment(executable: Path) -> bool:
    return (executable.parent.parent / "pyvenv.cfg").exists()


def _version_of(executable: str) -> PythonVersion | None:
    if not executable:
        return None
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = run([executable, "-c", code])
    except OSError:
        return None
    words = done.stdout.split()
    return (int(words[0]), int(words[1])) if done.returncode == 0 and len(words) == 2 else None


@cache
def _has_pip(executable: str) -> bool:
    try:
        return run([executable, "-m", "pip", "--version"]).returncode == 0
    except OSError:
        return False


def own_variables() -> dict[str, str]:
    """This process's variables without those that show another environment to a Python."""
    shown = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
    return {name: value for name, value in os.environ.items() if name not in shown}


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a short command to its end; nothing of it is seen.

    Raises:
        OSError: it can't be started.
    """
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
        env=own_variables(),
    )
