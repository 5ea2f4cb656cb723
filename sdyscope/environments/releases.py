"""Releases of JAX: which the index has for a version of Python, and which one a word names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from sdyscope.environments.tools import PythonVersion, Tools, run
from sdyscope.errors import TargetError

#: The oldest JAX that the recorder and the stages work with.
OLDEST = Version("0.7.2")

_AVAILABLE = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Release:
    """A release of JAX, and the Python that it is looked at with.

    Attributes:
        version: as the index writes it.
        python: version of Python.
    """

    version: str
    python: PythonVersion

    @property
    def key(self) -> Version:
        """What releases are ordered by."""
        return Version(self.version)


def listed_by_index(tools: Tools, python: PythonVersion) -> list[str]:
    """The releases of JAX that can be installed for a version of Python, the newest first.

    Those with a jaxlib of their own minor version, dev releases and release candidates included.

    Raises:
        TargetError: the index can't be asked.
    """
    jaxlib = [Version(word) for word in _versions(tools, "jaxlib", python)]
    installable = []
    for word in _versions(tools, "jax", python):
        version = Version(word)
        if version >= OLDEST and any(
            jaxlib_version <= version and jaxlib_version.release[:2] == version.release[:2]
            for jaxlib_version in jaxlib
        ):
            installable.append(word)
    return sorted(installable, key=Version, reverse=True)


def own_jaxlib(tools: Tools, release: Release) -> str:
    """The jaxlib that a dev release or release candidate was made with; empty for any other.

    Installers take the newest final jaxlib that fits, unless one of these is named.

    Raises:
        TargetError: the index can't be asked.
    """
    if not release.key.is_prerelease:
        return ""
    known = _versions(tools, "jaxlib", release.python)
    return release.version if release.version in known else ""


def _versions(tools: Tools, package: str, python: PythonVersion) -> list[str]:
    try:
        done = run(tools.index_versions(package, python))
    except OSError as error:
        raise TargetError(f"pip can't be run: {error.strerror}.") from error
    match = _AVAILABLE.search(done.stdout)
    if done.returncode == 0 and match is not None:
        return [word for word in match[1].split(", ") if _is_version(word)]
    if "No matching distribution found" in done.stderr and "onnection" not in done.stderr:
        return []  # None for this Python.
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    why = (lines or done.stderr.splitlines() or ["it says nothing"])[-1].removeprefix("ERROR: ")
    raise TargetError(f"The releases of {package} can't be listed: {why}")


def _is_version(word: str) -> bool:
    try:
        Version(word)
    except InvalidVersion:
        return False
    return True


def newest_of(word: str, versions: Iterable[str], *, pre: bool) -> str | None:
    """The release that a word names: itself, or the newest that begins with it; None without any.

    Args:
        word: `0.12`, `0.10.2`, or `latest`.
        versions: the releases.
        pre: whether dev releases and release candidates count where they are not named.
    """
    every = list(versions)
    if word in every:
        return word
    parts = [] if word == "latest" else word.split(".")
    fitting = [
        known
        for known in every
        if known.split(".")[: len(parts)] == parts and (pre or not Version(known).is_prerelease)
    ]
    return max(fitting, key=Version, default=None)


def checked(word: str) -> str:
    """A word that may name a release.

    Raises:
        TargetError: it has not the form of one, or names one that is too old.
    """
    if word == "latest":
        return word
    if not _is_version(word):
        raise TargetError(
            f"{word!r} is not a JAX version.",
            hint="Write 0.10.2, 0.12 for the newest 0.12, latest, or the folder of an environment.",
        )
    parts = Version(word).release
    if parts < OLDEST.release[: len(parts)]:
        raise TargetError(f"JAX {word} is too old: sdyscope works with JAX {OLDEST} and newer.")
    return word


_Listing = Callable[[PythonVersion], Sequence[str]]


def chosen(
    words: Sequence[str], candidates: Sequence[PythonVersion], listing: _Listing, *, pre: bool
) -> tuple[Release, ...]:
    """The release that each word names, all on the first Python that has them all if there is one.

    Args:
        words: the words, which `checked` has passed.
        candidates: the versions of Python, the preferred ones first.
        listing: the releases for a version of Python.
        pre: see `newest_of`.

    Raises:
        TargetError: a word names no release, for no Python; or the index can't be asked.
    """
    known: dict[PythonVersion, Sequence[str]] = {}
    for python in candidates:
        known[python] = listing(python)
        # Only the newest of all may be for a Python that is not the first with one.
        if "latest" not in words and all(newest_of(w, known[python], pre=pre) for w in words):
            break
    every = {version for versions in known.values() for version in versions}
    wanted = {word: newest_of(word, every, pre=pre) for word in words}
    common = [candidate for candidate, there in known.items() if {*wanted.values()} <= {*there}]
    releases = []
    for word in words:
        version = wanted[word]
        if version is None:
            raise _no_release(word, known, pre=pre)
        having = (python for python, there in known.items() if version in there)
        releases.append(Release(version, common[0] if common else next(having)))
    return tuple(releases)


def _no_release(
    word: str, listed: Mapping[PythonVersion, Sequence[str]], *, pre: bool
) -> TargetError:
    newest = [
        f"JAX {version} for Python {'.'.join(map(str, python))}"
        for python in sorted(listed)
        if (version := newest_of("latest", listed[python], pre=pre)) is not None
    ]
    pythons = ", ".join(".".join(map(str, python)) for python in sorted(listed))
    return TargetError(
        f"The index has no JAX {word} for Python {pythons}.",
        hint=(f"The newest is {', '.join(newest)}. " if newest else "")
        + "--python names another Python; --pre takes dev releases, too.",
    )


def between(first: Release, last: Release, listing: _Listing, *, pre: bool) -> tuple[Release, ...]:
    """The releases from one to another, both included, in order.

    Args:
        first: the older.
        last: the newer.
        listing: the releases for a version of Python.
        pre: whether dev releases and release candidates are among them.
    """
    pythons = dict.fromkeys((first.python, last.python))
    by_version = {
        version: Release(version, python)
        for python in reversed(pythons)
        for version in listing(python)
        if first.key < Version(version) < last.key and (pre or not Version(version).is_prerelease)
    }
    inside = sorted(by_version.values(), key=lambda release: release.key)
    return (first, *inside, last)
