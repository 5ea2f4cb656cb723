"""Where the snapshot of each test is, and those that no test has.

A test has one file, under ``__shardings__`` beside its module. What no test has is found from what
was collected, whatever of it is then run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest


def _parts_of(item: pytest.Item) -> list[str]:
    """The names of a test's classes, then its own."""
    parts: list[str] = []
    for node in item.listchain():
        # What is above the module is told by the folder.
        parts = [] if isinstance(node, pytest.File) else [*parts, node.name]
    return parts


class Collected:
    """The tests that pytest found, those included that it does not run this time.

    A module of which only some tests were looked for, or that could not be imported, says nothing
    about which snapshots are of no use.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.root = config.rootpath
        # --last-failed leaves tests out while it collects.
        self.is_partial = bool(config.getoption("lf", False))
        self.partly = {
            Path(config.invocation_params.dir, arg.partition("::")[0]).resolve()
            for arg in config.args
            if "::" in arg
        }
        self.names: dict[Path, set[str]] = {}
        self.complete: set[Path] = set()
        self.failed: set[Path] = set()
        self.folders: set[Path] = set()
        self._listed: dict[Path, set[str]] = {}

    def item(self, item: pytest.Item) -> None:
        """Notes a test."""
        self.names.setdefault(item.path, set()).add(file_name(_parts_of(item)))

    def file_of(self, item: pytest.Item) -> Path:
        """The snapshot file of a test, whether it is there or not."""
        return folder_of(item.path) / file_name(_parts_of(item))

    def has_file(self, item: pytest.Item) -> bool:
        """Whether a test has a snapshot file from before it ran."""
        folder = folder_of(item.path)
        if folder not in self._listed:
            self._listed[folder] = {file.name for file in files_in(folder)}
        listed = self._listed[folder]
        return bool(listed) and self.file_of(item).name in listed

    def report(self, report: pytest.CollectReport) -> None:
        """Notes a module that was collected, or could not be."""
        path, inside, _ = report.nodeid.partition("::")
        module = self.root / path
        if report.outcome != "passed":
            self.failed.add(module)
        elif not inside and module.suffix == ".py":
            self.complete.add(module)

    def folder(self, path: Path) -> None:
        """Notes a folder that pytest looked into."""
        if path.name == FOLDER:
            self.folders.add(path)

    def unused(self) -> Iterator[Path]:
        """The snapshot files that no test has; files of others are none."""
        files = [] if self.is_partial else list(self._without_test())
        if files:
            from sdyscope.snapshots import is_snapshot

            yield from filter(is_snapshot, files)

    def _without_test(self) -> Iterator[Path]:
        for module in sorted(self.complete - self.failed):
            if module.resolve() in self.partly:
                continue
            known = self.names.get(module, set())
            for file in files_in(folder_of(module)):
                if file.name not in known:
                    yield file
        beside = {module.parent / FOLDER for module in self.complete}
        for folder in sorted(self.folders | {path for path in beside if path.is_dir()}):
            for inside in sorted(folder.iterdir()):
                if inside.is_dir() and not _has_module(inside):
                    yield from files_in(inside)
                elif inside.is_file() and inside.name.endswith(SUFFIX):
                    yield inside


def _has_module(folder: Path) -> bool:
    """Whether the module that a folder of snapshots belongs to is there."""
    above = folder.parent.parent
    return (above / f"{folder.name}.py").exists() or (above / folder.name).is_file()


#: Not ``__snapshots__``, where syrupy takes every file that is not its own for a leftover, and
#: deletes it with its --snapshot-update.
FOLDER = "__shardings__"
SUFFIX = ".snap"

#: File systems allow 255 bytes; some leave less, and a temporary file beside has a longer name.
_LONGEST = 120

_SAFE = re.compile(r"[\w.,=+\[\]-]+", re.ASCII)
_UNSAFE = re.compile(r"[^\w.,=+\[\]-]+", re.ASCII)
#: What Windows takes for a device, whatever follows the first dot.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
_CLASS = re.compile(r"[A-Z][A-Za-z0-9]*")


def folder_of(module: Path) -> Path:
    """Where the snapshots of a module's tests are: ``__shardings__/test_step``."""
    return module.parent / FOLDER / module.name.removesuffix(".py")


def file_name(parts: Sequence[str]) -> str:
    """The name of a test's file: ``TestStep.test_loss[4-2].snap``.

    It is the same on every file system: of letters without case, digits and a few signs, not too
    long, and no name that a system keeps for itself. What it can't say is told apart by a hash.

    Args:
        parts: the names of its classes, then its own with its parameters.
    """
    whole = ".".join(parts)
    own = parts[-1]
    # Names of classes differ in more than case; those of tests and parameters need not.
    is_plain = (
        _SAFE.fullmatch(whole) is not None
        and own == own.lower()
        and all(_CLASS.fullmatch(part) or part == part.lower() for part in parts[:-1])
        and not any("." in part for part in parts[:-1])
        and not _DEVICES.match(whole)
        and not whole.startswith(".")
        and len(whole) <= _LONGEST
    )
    if is_plain:
        return whole + SUFFIX
    short = _UNSAFE.sub("-", whole).strip("-.")[:_LONGEST]
    if _DEVICES.match(short):
        short = f"-{short}"
    told_apart = hashlib.sha256("::".join(parts).encode()).hexdigest()[:10]
    return f"{short}-{told_apart}{SUFFIX}"


def files_in(folder: Path) -> Iterator[Path]:
    """The snapshot files of a module; none where there is no such folder."""
    if folder.is_dir():
        yield from sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIX))
