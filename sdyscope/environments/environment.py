"""Environments: made once and kept, or one of the user's own."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import Requirement

from sdyscope.environments.releases import OLDEST, Release, own_jaxlib
from sdyscope.environments.requirements import Requirements
from sdyscope.environments.tools import Tools, own_variables, run
from sdyscope.errors import TargetError
from sdyscope.facts.program import Versions
from sdyscope.kept import cache_folder
from sdyscope.process import child
from sdyscope.process.output import say, write_atomically

#: What an environment is, in its folder; without it, it is half made.
_SPEC = "sdyscope-environment.json"

#: What is asked of a Python: its version, its packages, and which requirements it does not meet.
_ASK = """
import importlib.metadata as metadata, json, sys
found = {}
for one in metadata.distributions():
    name = one.metadata["Name"]
    if name:
        found.setdefault(name.lower().replace("_", "-"), one.version)
print(json.dumps({"python": list(sys.version_info[:3]), "packages": found}))
"""

#: What has the version that fits JAX, or comes with an environment.
_FITTED = re.compile(r"jax|jaxlib|jax-.*|libtpu.*|nvidia-.*|pip|setuptools|wheel|sdyscope")
_PLUGIN = re.compile(r"jax-(?:cuda|rocm)\d*-(?:plugin|pjrt)|libtpu(?:-nightly)?|jax-metal")


@dataclass(frozen=True)
class Environment:
    """A Python with one JAX.

    Attributes:
        python: path of its executable.
        versions: its JAX.
        python_version: its Python.
        plugins: versions of JAX's plugins that are installed there, by distribution.
        packages: versions of all that is installed there, by distribution.
        is_new: whether it was made just now.
    """

    python: Path
    versions: Versions
    python_version: tuple[int, int, int]
    plugins: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_new: bool = False

    __document__ = ("versions", "python_version", "plugins")

    def lacks(self, lines: Sequence[str]) -> tuple[str, ...]:
        """Which of some requirements it does not meet."""
        return tuple(
            line
            for line in lines
            if (requirement := Requirement(line)).name.lower() not in self.packages
            or not requirement.specifier.contains(
                self.packages[requirement.name.lower()], prereleases=True
            )
        )

    def others(self) -> dict[str, str]:
        """Versions of what is installed there besides JAX and what it brings, by distribution."""
        return {
            name: version for name, version in self.packages.items() if not _FITTED.fullmatch(name)
        }

    def variables(self) -> dict[str, str]:
        """The environment variables with which commands use it, as when it is activated."""
        variables = dict(os.environ)
        variables.pop("PYTHONHOME", None)
        variables["VIRTUAL_ENV"] = str(self.python.parent.parent)
        variables["PATH"] = f"{self.python.parent}{os.pathsep}{variables.get('PATH', os.defpath)}"
        return variables


def existing(word: str) -> Environment:
    """The environment in a folder, or of the Python of a path.

    Raises:
        TargetError: there is no Python, or no JAX that sdyscope works with.
    """
    path = Path(word)
    python = path / "bin" / "python" if path.is_dir() else path
    if not os.access(python, os.X_OK):
        raise TargetError("There is no environment here.", file=word, hint="It has no bin/python.")
    return _asked(python.absolute(), word)


def _asked(python: Path, where: str) -> Environment:
    try:
        done = run([str(python), "-P", "-c", _ASK])
        answer = json.loads(done.stdout)
        packages, version = answer["packages"], tuple(answer["python"])
    except (OSError, ValueError, KeyError) as error:
        raise TargetError("This is not a Python that runs, 3.11 or newer.", file=where) from error
    if "jax" not in packages or "jaxlib" not in packages:
        raise TargetError("JAX is not installed in this environment.", file=where)
    versions = Versions(packages["jax"], packages["jaxlib"])
    if not Release(versions.jax, (0, 0)).key >= OLDEST:
        raise TargetError(
            f"{versions} is too old: sdyscope works with JAX {OLDEST} and newer.", file=where
        )
    plugins = {name: packages[name] for name in sorted(packages) if _PLUGIN.fullmatch(name)}
    return Environment(python, versions, version, plugins, packages)


# --- made -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Maker:
    """Makes environments and keeps them in the user's cache folder.

    Attributes:
        tools: what they are made with.
        verbose: whether what the installer says is shown.
    """

    tools: Tools
    verbose: bool = False

    def make(self, release: Release, requirements: Requirements) -> Environment:
        """The environment with a release of JAX, as it was made before or made now.

        The jaxlib and the plugins are those that this JAX asks for. One that was half made when
        its maker was killed is removed and made again; who comes meanwhile waits.

        Args:
            release: which JAX, and for which Python.
            requirements: what else is installed.

        Raises:
            TargetError: it can't be made, or there is no place to keep it.
            Stopped: a signal told this process to stop.
        """
        key = hashlib.sha256(
            json.dumps(
                [
                    release.version,
                    self.tools.pythons.get(release.python, release.python),
                    requirements.lines,
                    requirements.extras,
                ]
            ).encode()
        ).hexdigest()[:16]
        folder = _kept() / f"jax-{release.version}-{key}"
        with _locked(folder.with_name(f"{folder.name}.lock")):
            spec = folder / _SPEC
            is_new = not spec.exists()
            if is_new:
                shutil.rmtree(folder, ignore_errors=True)
                try:
                    self._install(folder, release, requirements)
                    description = {"jax": release.version, "python": release.python}
                    write_atomically(spec, json.dumps(description))
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
            return replace(_asked(folder / "bin" / "python", str(folder)), is_new=is_new)

    def _install(self, folder: Path, release: Release, requirements: Requirements) -> None:
        what = f"The environment for JAX {release.version} can't be made"
        self._run(self.tools.create(folder, release.python), what)
        extras = f"[{','.join(requirements.extras)}]" if requirements.extras else ""
        lines = [*requirements.lines, f"jax{extras}=={release.version}"]
        if jaxlib := own_jaxlib(self.tools, release):
            lines.append(f"jaxlib=={jaxlib}")
        file = folder / "requirements.txt"
        file.write_text("\n".join((*lines, "")))
        self._run(self.tools.install(folder, ["-r", str(file)]), what, lines)

    def _run(self, command: Sequence[str], what: str, lines: Sequence[str] = ()) -> None:
        """Runs an installer to its end; a signal that stops this process stops it first."""
        status, text = child.run_to_end(command, env=own_variables())
        if self.verbose:
            for line in text.splitlines():
                say(line)
        if status:
            message, hint = _said(_LINE.sub(lambda at: lines[int(at[1]) - 1], text))
            raise TargetError(
                f"{what}: {message or f'{Path(command[0]).name} ended with status {status}'}",
                hint=hint or "--verbose shows what the installer says.",
            )


#: What pip calls a requirement of a file.
_LINE = re.compile(r"-r \S+ \(line (\d+)\)")
#: What pip and uv put in front of what is wrong.
_WRONG = re.compile(r"^(?:ERROR: |error: |\s*[×x] )(.*)$")
#: The lines after that say which requirements don't go together.
_BECAUSE = re.compile(
    r"^\s*(?:(?:╰─▶|cause:) (?P<uv>.*)|(?P<pip>\S.* depends on .*|The user requested .*))$"
)


def _said(text: str) -> tuple[str, str]:
    """What is wrong in the words of pip or uv, a line; and why, where they say it."""
    lines = text.splitlines()
    wrong = [match[1].strip() for line in lines if (match := _WRONG.match(line))]
    # pip's last lines tell where to read about conflicts.
    telling = [line for line in wrong if not line.startswith(("ResolutionImpossible", "Could not"))]
    because = []
    for number, line in enumerate(lines):
        match = _BECAUSE.match(line)
        if match is not None and match["uv"] is not None:
            # uv folds a sentence over several lines.
            rest = (text.strip() for text in lines[number + 1 :])
            because.append(" ".join([match["uv"].strip(), *filter(None, rest)]))
            break
        if match is not None:
            because.append(match["pip"].strip())
    return (telling or wrong or [""])[0].rstrip(":."), "; ".join(because[:4])


def _kept() -> Path:
    """Where environments are kept.

    Raises:
        TargetError: there is no such place that nobody else can write to.
    """
    cache = cache_folder()
    if cache is None:
        raise TargetError(
            "There is no cache folder of your own to keep environments in.",
            hint="XDG_CACHE_HOME names another one, which only you may write to.",
        )
    folder = cache / "environments"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def kept_releases() -> set[Release]:
    """The releases of JAX that environments were made for before."""
    cache = cache_folder()
    releases = set()
    for path in () if cache is None else (cache / "environments").glob(f"*/{_SPEC}"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            description = json.loads(path.read_text())
            releases.add(Release(description["jax"], tuple(description["python"])))
    return releases


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with contextlib.suppress(OSError):  # of a file system without locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"note: waiting for another sdyscope, which makes {path.stem}.")
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
